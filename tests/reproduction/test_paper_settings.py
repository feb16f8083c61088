"""Every configuration of `--paper` runs: thin networks with random weights, few images and steps, all else as it is."""

import dataclasses
from functools import partial

import numpy as np
import pytest

import twinlens as tl
from tests.reproduction.watching import Watch
from tests.tiny import image_folder
from twinlens.attribution import METHODS
from twinlens.attribution.method import options_of
from twinlens.models.loading import load_model
from twinlens.models.training import PAPER
from twinlens.reproduction import (
    EXPERIMENTS,
    ExperimentOptions,
    networks,
    retraining,
    semi_natural,
    semi_natural_road,
)
from twinlens.reproduction.method_comparison import paper_options
from twinlens.reproduction.networks import VGG16, TinyResNet
from twinlens.reproduction.scenes import drawn_images

THIN = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    plan, channels, parts = (2, 2, 0, 4, 4, 0, 8, 8, 8, 0, 8, 8, 8, 0, 8, 8, 8, 0), 3, []
    for width in plan:  # the layers of torchvision's VGG16, by name and kind
        parts += [nn.MaxPool2d(2)] if width == 0 else [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        channels = width or channels
    for part in parts:
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
    model = nn.Sequential()
    model.add_module("features", nn.Sequential(*parts))
    model.add_module("avgpool", nn.AdaptiveAvgPool2d(2))
    model.add_module("flatten", nn.Flatten())
    model.add_module("classifier", nn.Linear(32, 3))
    model.preprocessing = {"resize": 36, "crop": 32, "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
    return model
"""
COSTLY = {"steps": 2, "samples": 2, "rounds": 1, "critic_steps": 1, "critic_noise": 2, "noise": 2, "feature_steps": 2}


@pytest.fixture
def cheap(monkeypatch):
    """The numbers that only cost time, as small as they can be."""
    for method in METHODS.values():
        own = method.__wrapped__  # whose defaults those are
        few = {name: count for name, count in COSTLY.items() if name in (own.__kwdefaults__ or {})}
        monkeypatch.setattr(own, "__kwdefaults__", {**(own.__kwdefaults__ or {}), **few})
    monkeypatch.setattr("twinlens.reproduction.claims.RESAMPLES", 50)
    monkeypatch.setattr("twinlens.reproduction.order_vs_value.RESAMPLES", 50)
    monkeypatch.setattr("twinlens.reproduction.networks.PAPER", dataclasses.replace(PAPER, epochs=1, threads=1))
    monkeypatch.setattr(networks, "_VGG16", [width // 64 for width in networks._VGG16])
    for module in (semi_natural, semi_natural_road):
        monkeypatch.setattr(module, "EXPLAINED", 2)
    monkeypatch.setattr(retraining, "TinyResNet", partial(TinyResNet, width=2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["benchmark", "ensembles", "order-vs-value"])
def test_experiments_on_a_trained_network(name, cheap, tmp_path, monkeypatch):
    file = tmp_path / "thin.py"
    file.write_text(THIN)
    data = image_folder(tmp_path / "images", per_class=1, size=40)
    seen = []
    for module in ("benchmark", "ensemble_gains", "order_vs_value"):
        monkeypatch.setattr(f"twinlens.reproduction.{module}.paper_options", _few_steps(seen))
    noise = {} if name == "order-vs-value" else {"noise": "deviation"}
    options = ExperimentOptions(out=tmp_path / "out", paper=True, data=data, model=f"{file}:build", **noise)
    outcome = EXPERIMENTS[name].run(options, Watch())
    assert outcome.numbers["samples"] == 3
    assert EXPERIMENTS[name].smoke(options) == ""
    assert all(claim.verdict in ("open", "by construction", "holds", "does not hold") for claim in outcome.claims)
    options_of = dict(seen)
    if name != "ensembles":
        assert options_of["gradcam"] == {"layer": "features.28"}
        assert options_of["extremal_perturbation"]["areas"] == 0.3
    if name == "benchmark":
        assert options_of["iba"] == {"beta": 20.0, "layer": "features.17"}
        assert options_of["input_iba"]["layer"] == "features.17"
    if name != "order-vs-value":
        assert options_of["ig_sg"]["variance"] == 0.09


def _few_steps(seen):
    """The paper's options but for the number of steps, which the fixture sets; they are kept in `seen`."""

    def options(method, module, noise):
        own = paper_options(method, module, noise)
        seen.append((method, own))
        return {name: value for name, value in own.items() if name not in COSTLY}

    return options


@pytest.mark.slow
@pytest.mark.parametrize("name", ["retraining", "spurious-edge", "semi-natural", "semi-natural-road"])
def test_experiments_that_train(name, cheap, tmp_path):
    file = tmp_path / "cifar.npz"
    images = drawn_images(16, 32)
    labels = np.arange(16) % 3
    np.savez(file, x_train=images[:10], y_train=labels[:10], x_test=images[10:], y_test=labels[10:])
    progress = Watch()
    options = ExperimentOptions(out=tmp_path / "out", paper=True, data=str(file))
    outcome = EXPERIMENTS[name].run(options, progress)
    assert progress.done == progress.announced
    assert outcome.numbers["images"]["train"] == 10
    assert all(claim.text and claim.source and claim.measured for claim in outcome.claims)


def test_options_of_the_paper_are_options_of_the_methods(tmp_path):
    file = tmp_path / "thin.py"
    file.write_text(THIN)
    module = load_model(f"{file}:build").module
    named = dict(module.named_modules())
    for method in tl.METHODS:
        options = paper_options(method, module, "variance")
        assert set(options) <= set(options_of(tl.METHODS[method])), method
        assert options.get("layer", "features.28") in named
    assert paper_options("ig_sg", module, "deviation") == {"steps": 50, "variance": 0.09}
    # Another network has no such layers, and is explained at its last one.
    assert "layer" not in paper_options("gradcam", VGG16(3, 3).classifier, "variance")
