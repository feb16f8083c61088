"""Models fine-tuned on inputs with features removed: what they see, what they learn, and the check of a run."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.checks.conftest import content_of_run
from twinlens.checks import fine_tuning
from twinlens.checks.check_catalogue import run_check
from twinlens.checks.check_definition import CheckOptions
from twinlens.checks.fine_tuning import fine_tuned
from twinlens.checks.probe_distribution import probe_distribution
from twinlens.models.training import Training, train
from twinlens.support.tensor_files import save_tensors

SHORT = Training(epochs=10, batch_size=32, rate=0.01)


def task(samples=300):
    """Every feature shows the class, by its sign; a removed one becomes 5, which looks like the second class."""
    labels = torch.arange(samples) % 2
    noise = torch.randn(samples, 8, generator=torch.Generator().manual_seed(0))
    return labels[:, None] * 2.0 - 1 + 0.5 * noise, labels


def network():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))


def test_the_copy_knows_removed_features_and_the_model_stays():
    x, labels = task()
    model, odd = train(network, x, labels, training=SHORT), tl.ConstantImputer(5.0)
    weights = model[0].weight.clone()
    state = torch.random.get_rng_state()
    copy = fine_tuned(model, (x, labels), imputer=odd, training=SHORT)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(model[0].weight, weights)
    assert not copy.training
    before, after = (probe_distribution(each, x, labels, imputer=odd, levels=(0.5,)) for each in (model, copy))
    assert after.correct[:, 1].mean() > before.correct[:, 1].mean() + 0.1
    again = fine_tuned(model, (x, labels), imputer=odd, training=SHORT)
    assert torch.equal(again[0].weight, copy[0].weight)
    other = fine_tuned(model, (x, labels), imputer=odd, training=SHORT, seed=1)
    assert not torch.equal(other[0].weight, copy[0].weight)


def test_masks_cover_all_shares_and_leave_a_feature():
    x, labels = task()
    kept, streams = [], []

    def watch(inputs, keep, seeds):
        assert inputs.shape == keep.shape
        kept.append(keep.sum(dim=1))
        streams.extend(seeds)
        return inputs

    fine_tuned(network(), (x, labels), imputer=watch, training=SHORT)
    counts = torch.cat(kept).bincount(minlength=9)
    assert len(streams) == len(set(streams)) == 3000
    assert counts[0] == 0
    assert (counts[1:] > 300).all()  # of 3000, uniform over eight


def test_images_lose_positions_with_all_channels():
    x = torch.randn(40, 3, 4, 4)

    def watch(inputs, keep, seeds):
        assert keep.shape == (len(inputs), 4, 4)
        return inputs

    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    fine_tuned(model, (x, [0, 1] * 20), imputer=watch, training=Training(epochs=1))


def record_of(measured, **options):
    run, spec = measured
    evaluation = tl.open_evaluation(run)
    train = evaluation.manifest.source.data
    return run_check(evaluation, "fine-tuned", options=CheckOptions(train=train, epochs=2, **options), model=spec)


def test_the_check_measures_both_models_and_resumes(measured, monkeypatch):
    run, _ = measured
    before, evaluation = content_of_run(run), tl.open_evaluation(run)
    check = record_of(measured)
    assert content_of_run(run) == before
    for name, own in check.methods.items():
        stored = evaluation.results.methods[name].metrics
        assert [own.values[k].value for k in (0, 2)] == [
            stored[metric].area.value for metric in ("soundness_rank", "completeness_share")
        ]
        if name != "random":
            assert own.values[1].value != own.values[0].value
    assert check.line.startswith("After fine-tuning on inputs with features removed at random, ")
    assert "Kendall's tau of the rankings: soundness" in check.line
    assert check.notes[0].startswith("Fine-tuned for 2 epochs on 12 samples. Accuracy on the checked samples: ")
    assert check.notes[1].startswith("12 of 12 checked samples are also")
    monkeypatch.setattr(fine_tuning, "train", lambda *_, **__: pytest.fail("it is trained again"))
    assert record_of(measured) == check
    [weights] = (run / "checks" / "fine-tuned").glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(tl.RunError, match="damaged"):
        record_of(measured)


def test_stored_weights_of_another_network_are_damage(measured):
    run, _ = measured
    record_of(measured)
    [weights] = (run / "checks" / "fine-tuned").glob("*.safetensors")
    save_tensors(weights, {"other": torch.zeros(3)})
    with pytest.raises(tl.RunError, match="is damaged: it holds the weights of another network"):
        record_of(measured)


def test_weights_that_a_network_uses_twice_are_stored(measured, tmp_path):
    spec = measured[1]
    path = tmp_path / "tied.py"
    code = (
        Path(spec.rpartition(":")[0])
        .read_text()
        .replace("return model\n", "model[4].twin = model[0]\n    return model\n")
    )
    path.write_text(code)
    data = tl.open_evaluation(measured[0]).manifest.source.data
    tl.evaluate(f"{path}:build", data, ["random", "centre"], metrics="headline", out=tmp_path / "tied", resamples=20)
    record = record_of((tmp_path / "tied", f"{path}:build"))
    assert list(record.methods) == ["random", "centre"]
    assert list((tmp_path / "tied" / "checks" / "fine-tuned").glob("*.safetensors"))


def test_training_data_with_other_classes_are_refused(measured):
    run, spec = measured
    data = Path(tl.open_evaluation(run).manifest.source.data)
    train = run.parent / "train"
    shutil.copytree(data, train)
    shutil.rmtree(sorted(train.iterdir())[0])
    options = CheckOptions(train=str(train), epochs=1)
    with pytest.raises(
        tl.DataError,
        match=r"`train` .* must have the classes of the run's data; class 0 is 'bee' there, and 'ant' here",
    ):
        run_check(tl.open_evaluation(run), "fine-tuned", options=options, model=spec)


def test_arguments_are_named():
    with pytest.raises(TypeError, match="`train_data`: `inputs` must be floating-point"):
        fine_tuned(network(), (torch.zeros(4, 8).long(), [0, 1, 0, 1]))
    with pytest.raises(ValueError, match="`train_data`: `labels` must be class indices from 0; got -1"):
        fine_tuned(network(), (torch.zeros(4, 8), [0, 1, 0, -1]))


def test_training_data_are_required(measured):
    run, spec = measured
    with pytest.raises(ValueError, match="`train` is missing: pass --train"):
        run_check(tl.open_evaluation(run), "fine-tuned", model=spec)
    assert not np.any([path.is_dir() for path in (run / "checks").glob("fine-tuned/*")])
