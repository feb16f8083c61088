"""ROAR, on images whose label depends on one pixel."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from tests.reproduction.watching import Watch
from twinlens.checks import remove_and_retrain
from twinlens.checks.remove_and_retrain import RoarCurve, remove_most_relevant, roar
from twinlens.errors import RunError
from twinlens.models.training import Training

HOW = Training(epochs=4, batch_size=16, rate=0.05)


def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(18, 2))


def exact(model, inputs, targets, *, ids=None, seed=0):
    """Marks the one pixel that the label is made of."""
    return torch.eye(9)[4].reshape(3, 3).expand(len(inputs), 3, 3)


def corner(model, inputs, targets, *, ids=None, seed=0):
    return torch.eye(9)[0].reshape(3, 3).expand(len(inputs), 3, 3)


def fails(model, inputs, targets, *, ids=None, seed=0):
    raise RuntimeError("no maps today")


def images(count, seed):
    inputs = torch.randn(count, 2, 3, 3, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs[:, :, 1, 1].sum(dim=1) > 0).long()


TRAIN, TEST = images(120, 1), images(80, 2)


def run(out=None, methods=None, **options):
    chosen = {"exact": exact, "corner": corner} if methods is None else methods
    options = {"levels": (1 / 9, 1.0), "training": HOW} | options
    return roar(build, TRAIN, TEST, chosen, out=out, **options)


def networks(file):
    return json.loads(file.read_text())["results"]


def test_what_matters_is_missed_and_what_does_not_is_not():
    curves = run(retrainings=2)
    assert list(curves) == ["exact", "corner"]
    exact_curve, corner_curve = curves["exact"], curves["corner"]
    assert exact_curve.performance.shape == (2, 2)
    assert exact_curve.baseline.min() > 0.8
    assert exact_curve.values[0] > 0.25
    assert abs(corner_curve.values[0]) < 0.1
    assert np.array_equal(exact_curve.performance[:, 1], corner_curve.performance[:, 1])  # nothing is left of either
    assert exact_curve.area() > corner_curve.area()
    assert len(set(exact_curve.baseline)) == 2  # other initial weights


def test_the_mean_of_each_channel_stands_in():
    inputs = torch.arange(16.0).reshape(1, 2, 2, 4)
    rank = torch.arange(8)[None]
    found = remove_most_relevant(inputs, rank, 0.25, torch.tensor([100.0, 200.0]))
    assert found[0, :, 1, 2:].tolist() == [[100.0, 100.0], [200.0, 200.0]]
    assert torch.equal(found[0, :, 0], inputs[0, :, 0])
    assert torch.equal(found[0, :, 1, :2], inputs[0, :, 1, :2])


def test_training_and_test_images_are_filled_alike(monkeypatch):
    seen = []

    def train(build, inputs, labels, **options):
        seen.append(inputs)
        return nn.Sequential(nn.Flatten(), nn.Linear(18, 2))

    def accuracy(model, inputs, labels):
        seen.append(inputs)
        return 0.5

    monkeypatch.setattr(remove_and_retrain, "train", train)
    monkeypatch.setattr(remove_and_retrain, "accuracy", accuracy)
    run(methods={"exact": exact}, levels=(1 / 9,), model=build())
    original_train, original_test, changed_train, changed_test = seen
    assert torch.equal(original_train, TRAIN[0])
    assert torch.equal(original_test, TEST[0])
    mean = TRAIN[0].mean(dim=(0, 2, 3))
    for changed, whole in ((changed_train, TRAIN[0]), (changed_test, TEST[0])):
        assert torch.allclose(changed[:, :, 1, 1], mean.expand(len(changed), 2))
        different = (changed != whole).any(dim=1).any(dim=0)
        assert different.nonzero().tolist() == [[1, 1]]


def test_an_interrupted_call_resumes(tmp_path, monkeypatch):
    whole = run(out=tmp_path / "whole.json")
    stored = networks(tmp_path / "whole.json")
    assert len(stored) == 5
    kept = dict(list(stored.items())[:3])
    (tmp_path / "part.json").write_text(json.dumps({"format": 1, "results": kept}))
    trained, original = [], remove_and_retrain.train
    monkeypatch.setattr(remove_and_retrain, "train", lambda *a, **k: trained.append(1) or original(*a, **k))
    again = run(out=tmp_path / "part.json")
    assert len(trained) == 2 + 1  # and the network to explain
    for name in whole:
        assert np.array_equal(again[name].performance, whole[name].performance)
    assert (tmp_path / "whole.json").read_bytes() == (tmp_path / "part.json").read_bytes()
    monkeypatch.setattr(remove_and_retrain, "train", lambda *a, **k: pytest.fail("all networks are stored"))
    run(out=tmp_path / "part.json")


def test_only_networks_of_the_same_settings_are_reused(tmp_path):
    out = tmp_path / "networks.json"
    first = run(out=out, methods={"exact": exact}, levels=(0.5,))["exact"]
    more = run(out=out, levels=(0.25, 0.5), retrainings=2)
    assert more["exact"].performance[0, 1] == first.performance[0, 0]
    assert len(networks(out)) == 2 + 2 * 2 * 2
    before = networks(out)
    run(out=out, methods={"exact": exact}, levels=(0.5,), training=Training(epochs=5, batch_size=16, rate=0.05))
    assert len(networks(out)) == len(before) + 2
    roar(build, images(120, 3), TEST, {"exact": exact}, levels=(0.5,), training=HOW, out=out)
    run(out=out, methods={"exact": corner}, levels=(0.5,))  # another method of the same name
    assert len(networks(out)) == len(before) + 2 + 2 + 1
    assert before.items() <= networks(out).items()
    out.write_text("[]")
    with pytest.raises(RunError, match="holds no stored results, or is damaged"):
        run(out=out)


def test_networks_are_kept_when_a_method_fails(tmp_path):
    out = tmp_path / "networks.json"
    with pytest.raises(ValueError, match="`method` raised RuntimeError: no maps today"):
        run(out=out, methods={"exact": exact, "bad": fails})
    assert len(networks(out)) == 3


def test_progress_counts_networks(tmp_path):
    for _ in range(2):  # the second time all are stored, and count as well
        progress = Watch()
        run(out=tmp_path / "networks.json", retrainings=2, device="cpu", progress=progress)
        assert progress.announced == {"networks": 10}
        assert progress.notes == ["Networks trained for 4 epochs in batches of 16 on cpu."]
        assert progress.done == {"networks": 10}


def test_values_and_areas():
    curve = RoarCurve(
        method="m",
        levels=np.array([0.1, 0.5]),
        performance=np.array([[0.8, 0.4], [0.6, 0.2]]),
        baseline=np.array([0.9, 0.8]),
    )
    assert np.allclose(curve.values, [0.15, 0.55])
    assert curve.area() == pytest.approx(0.35)
    assert repr(curve) == "RoarCurve(m, 2 levels, 2 retrainings)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ()}, "`levels` must name at least one level; got none"),
        ({"levels": (0.5, 0.2)}, r"`levels` must increase within \(0, 1\]; got 0.5 then 0.2"),
        ({"levels": (0.0, 0.2)}, r"`levels` must increase within \(0, 1\]; got 0\."),
        ({"retrainings": 0}, "`retrainings` must be at least 1; got 0"),
        ({"methods": {}}, "`methods` must name at least one of"),
        ({"methods": ["gradcamm"]}, "`methods` must be one of .* got 'gradcamm'. Did you mean 'gradcam'"),
        ({"methods": {"a/b": exact}}, "`methods` must be named with letters"),
    ],
)
def test_arguments_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        run(**options)


def test_data_is_checked():
    with pytest.raises(ValueError, match="`test_data` must be inputs"):
        roar(build, TRAIN, (torch.zeros(4, 18), [0] * 4), ["random"])
    with pytest.raises(TypeError, match="`training_data`: `inputs` must be floating-point"):
        roar(build, (torch.zeros(4, 1, 2, 2).long(), [0] * 4), TRAIN, ["random"])


def test_a_stored_result_that_is_no_accuracy_is_measured_again(tmp_path):
    out = tmp_path / "networks.json"
    before = run(out=out)["exact"].values
    stored = networks(out)
    out.write_text(json.dumps({"format": 1, "results": dict(zip(stored, ["x", 5.0, [1], None], strict=False))}))
    assert run(out=out)["exact"].values.tolist() == before.tolist()
