"""What holds for all experiments that train networks of their own."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from PIL import Image

from tests.reproduction.watching import Watch, check_figures
from tests.tiny import model_file
from twinlens.models.loading import load_model
from twinlens.models.training import Training
from twinlens.reproduction import EXPERIMENTS, ExperimentOptions, retraining, semi_natural, semi_natural_road
from twinlens.reproduction.networks import SmallCNN

NAMES = ("retraining", "spurious-edge", "semi-natural", "semi-natural-road")


@pytest.fixture
def short(monkeypatch):
    quick = Training(epochs=3, batch_size=16, rate=0.01, schedule="one_cycle")
    monkeypatch.setattr("twinlens.reproduction.networks.QUICK", quick)
    monkeypatch.setattr(semi_natural, "EXPLAINED", 24)  # below ten there are no intervals
    monkeypatch.setattr(semi_natural_road, "EXPLAINED", 12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_experiments_run_and_can_be_written(name, archive, short, tmp_path):
    progress = Watch()
    options = ExperimentOptions(out=tmp_path, data=archive, seed=2)
    torch.manual_seed(1)
    outcome = EXPERIMENTS[name].run(options, progress)
    text = json.dumps(outcome.numbers, allow_nan=False)
    assert outcome.numbers["data"] == "bright"
    assert outcome.claims
    assert all(claim.text and claim.source and claim.measured for claim in outcome.claims)
    assert all(claim.verdict in ("holds", "does not hold", "open") for claim in outcome.claims)
    assert all(claim.unit == "test images" and claim.estimate.low <= claim.estimate.high for claim in outcome.claims)
    assert len(progress.announced) >= 3
    assert progress.done == progress.announced
    check_figures(outcome)
    torch.manual_seed(7)
    again = EXPERIMENTS[name].run(options, Watch())
    assert json.dumps(again.numbers) == text
    assert again.claims == outcome.claims


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("option", ["model", "weights", "classes"])
def test_options_that_are_not_used_are_refused(name, option, tmp_path):
    if name == "semi-natural-road" and option != "classes":
        pytest.skip("it takes a trained network for real images")
    options = dataclasses.replace(ExperimentOptions(out=tmp_path), **{option: "x"})
    with pytest.raises(
        ValueError, match=f"`{option}` is not used by this experiment, because it trains its own networks"
    ):
        EXPERIMENTS[name].run(options, Watch())


@pytest.mark.slow
def test_a_trained_network_replaces_the_one_for_real_images(archive, short, tmp_path):
    progress = Watch()
    options = ExperimentOptions(out=tmp_path, data=archive, model=model_file(tmp_path))
    outcome = semi_natural_road.run(options, progress)
    assert "training on real images" not in progress.announced
    assert "training on semi-natural images" in progress.announced
    network = load_model(options.model)
    inputs = torch.stack([network.preprocessing(Image.fromarray(one)) for one in np.load(archive)["x_test"]])
    answers = network.module(inputs).argmax(dim=1).numpy()
    assert outcome.numbers["learned"]["real"] == pytest.approx((answers == np.load(archive)["y_test"]).mean())
    assert not any("real data" in claim.reason for claim in outcome.claims)


def test_paper_settings_are_taken(archive, tmp_path, monkeypatch):
    seen = []

    def train(build, inputs, labels, *, training, seed, device, advance):
        seen.append((type(build()).__name__, training.epochs, training.batch_size, seed, inputs.shape[-1]))
        return SmallCNN(3, 3, width=2, size=inputs.shape[-1]).eval()

    monkeypatch.setattr("twinlens.reproduction.networks.train", train)
    retraining.run_retraining(ExperimentOptions(out=tmp_path, data=archive, paper=True, seed=5), Watch())
    assert seen == [("TinyResNet", 35, 256, 5, 32)] * 3
    seen.clear()
    retraining.run_retraining(ExperimentOptions(out=tmp_path, data=archive, paper=True, epochs=2), Watch())
    assert seen == [("TinyResNet", 2, 256, 0, 32)] * 3
    seen.clear()
    monkeypatch.setattr(semi_natural, "EXPLAINED", 2)
    semi_natural.run(ExperimentOptions(out=tmp_path, data=archive, paper=True), Watch())
    assert seen == [("VGG16", 35, 256, 0, 224)] * 2
