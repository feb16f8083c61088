import json

import numpy as np
import pytest
import torch
from torch import nn

from tests.reproduction.watching import Watch
from twinlens.checks import roar_job
from twinlens.checks.roar import RoarCurve, read_curve, roar
from twinlens.checks.roar_job import (
    FunctionRecord,
    RoarJob,
    RoarManifest,
    Split,
    SplitsRecord,
    remove_most_relevant,
)
from twinlens.errors import RunError
from twinlens.models.training import Training
from twinlens.run.directory import Run
from twinlens.run.engines import run_local
from twinlens.run.method_sources import find_methods
from twinlens.run.units import Cluster, Unit
from twinlens.support.progress import Quiet

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


def parts(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("roar/*/*.json"))


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

    monkeypatch.setattr(roar_job, "train", train)
    monkeypatch.setattr(roar_job, "accuracy", accuracy)
    run(methods={"exact": exact}, levels=(1 / 9,), model=build())
    untouched_train, untouched_test, changed_train, changed_test = seen
    assert torch.equal(untouched_train, TRAIN[0])
    assert torch.equal(untouched_test, TEST[0])
    mean = TRAIN[0].mean(dim=(0, 2, 3))
    for changed, whole in ((changed_train, TRAIN[0]), (changed_test, TEST[0])):
        assert torch.allclose(changed[:, :, 1, 1], mean.expand(len(changed), 2))
        different = (changed != whole).any(dim=1).any(dim=0)
        assert different.nonzero().tolist() == [[1, 1]]


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    whole = run(out=tmp_path / "whole")
    made = parts(tmp_path / "whole")
    assert len(made) == 5
    run(out=tmp_path / "part")
    for name in made[2:]:
        (tmp_path / "part" / name).unlink()
    (tmp_path / "part" / "roar.json").unlink()
    trained = []
    original = roar_job.train
    monkeypatch.setattr(roar_job, "train", lambda *a, **k: trained.append(1) or original(*a, **k))
    monkeypatch.setattr(roar_job, "attribute", lambda *a, **k: pytest.fail("maps were there"))
    again = run(out=tmp_path / "part")
    assert len(trained) == 3
    for name in whole:
        assert np.array_equal(again[name].performance, whole[name].performance)
    stored = [(tmp_path / folder / "roar.json").read_bytes() for folder in ("whole", "part")]
    assert stored[0] == stored[1]


def test_a_run_can_be_extended_but_not_changed(tmp_path):
    first = run(out=tmp_path, methods={"exact": exact}, levels=(0.5,))["exact"]
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in parts(tmp_path)}
    more = run(out=tmp_path, levels=(0.25, 0.5), retrainings=2)
    assert more["exact"].performance[0, 1] == first.performance[0, 0]
    assert before == {name: (tmp_path / name).stat().st_mtime_ns for name in before}
    assert len(parts(tmp_path)) == 2 + 2 * 2 * 2
    with pytest.raises(RunError, match=r"holds another run: training.epochs is 4 there and 5 here"):
        run(out=tmp_path, training=Training(epochs=5, batch_size=16, rate=0.05))
    with pytest.raises(RunError, match=r"data.train is .* there"):
        roar(build, images(120, 3), TEST, {"exact": exact}, levels=(0.5,), training=HOW, out=tmp_path)


def test_a_method_that_fails_leaves_what_is_done(tmp_path):
    with (
        pytest.warns(UserWarning, match="bad fails and is left out: `method` raised RuntimeError: no maps today"),
        pytest.raises(
            RunError, match=r"is incomplete\. bad: `method` raised RuntimeError: no maps today\. What is done is kept"
        ),
    ):
        run(out=tmp_path, methods={"bad": fails, "exact": exact})
    assert [name for name in parts(tmp_path) if "exact" in name]


def test_the_job_survives_pickling(tmp_path):
    mine = lambda model, inputs, targets, ids, seed: torch.rand(len(inputs), 3, 3)  # noqa: E731 (which pickle refuses)
    methods = find_methods({"exact": exact, "mine": mine})
    manifest = RoarManifest(
        build=FunctionRecord(function="build", source="a"),
        model=None,
        data=SplitsRecord(train="b", test="c"),
        training=HOW,
        seed=0,
        methods={name: method.record for name, method in methods.items()},
        versions={},
    )
    run = Run(tmp_path, manifest)
    run.write_manifest(manifest)
    job = RoarJob(
        run=run,
        build=build,
        model=build(),
        train=Split(inputs=TRAIN[0], labels=TRAIN[1], ids=tuple(f"train-{k}" for k in range(120))),
        test=Split(inputs=TEST[0], labels=TEST[1], ids=tuple(f"test-{k}" for k in range(80))),
        methods=methods,
        levels=(0.2, 0.4),
        retrainings=1,
        training=HOW,
        seed=0,
        device="cpu",
    )
    assert job.units() == [Unit(0)] + [Unit(shard, name) for name in ("exact", "mine") for shard in (0, 1)]
    assert sum(job.rows().values()) == 5
    assert [job.describe(unit) for unit in job.units()[:2]] == ["nothing removed", "share 0.2"]
    cloudpickle = pytest.importorskip("cloudpickle", reason="it comes with Ray")
    sent = cloudpickle.loads(cloudpickle.dumps(job))
    failures, seconds = run_local(sent, sent.units(), Quiet())
    assert not failures
    assert set(seconds) == {"original inputs", "exact", "exact/maps", "mine", "mine/maps"}
    # Another worker, elsewhere, finds everything done.
    worker = job.worker(Quiet())
    for unit in job.units():
        worker.do(unit)
    assert worker.seconds == {}
    assert read_curve(job, "mine", np.array([job.read(None, 0.0, 0)])).performance.shape == (1, 2)


def test_progress_counts_networks(tmp_path):
    for _ in range(2):  # the second time everything is there, and counts as well
        progress = Watch()
        run(out=tmp_path, retrainings=2, device="cpu", progress=progress)
        assert progress.announced == {"original inputs": 2, "exact": 4, "corner": 4}
        assert progress.notes == ["Networks trained for 4 epochs in batches of 16 on cpu."]
        assert [progress.done[name] for name in ("exact", "corner")] == [4, 4]


def test_frames_and_areas():
    curve = RoarCurve(
        method="m",
        levels=np.array([0.1, 0.5]),
        performance=np.array([[0.8, 0.4], [0.6, 0.2]]),
        baseline=np.array([0.9, 0.8]),
    )
    assert np.allclose(curve.values, [0.15, 0.55])
    assert curve.area() == pytest.approx(0.35)
    frame = curve.to_frame()
    assert frame["loss"].round(9).tolist() == [0.1, 0.5, 0.2, 0.6]
    assert frame["retraining"].tolist() == [0, 0, 1, 1]
    assert repr(curve) == "RoarCurve(m, 2 levels, 2 retrainings)"


def test_curves_can_be_drawn():
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="drawing needs matplotlib")
    curve = RoarCurve(
        method="m", levels=np.array([0.5]), performance=np.array([[0.4], [0.6]]), baseline=np.array([0.9, 0.7])
    )
    axes = curve.plot()
    assert axes.lines[0].get_ydata() == pytest.approx([0.8, 0.5])
    assert len(axes.lines) == 3
    pyplot.close("all")


def test_results_are_written(tmp_path):
    curves = run(out=tmp_path)
    stored = json.loads((tmp_path / "roar.json").read_text())
    assert stored["baseline"] == curves["exact"].baseline.tolist()
    assert [row["performance"] for row in stored["methods"]["exact"]] == curves["exact"].performance.ravel().tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ()}, "`levels` must name at least one level; got none"),
        ({"levels": (0.5, 0.2)}, r"`levels` must increase within \(0, 1\]; got 0.5 then 0.2"),
        ({"levels": (0.0, 0.2)}, r"`levels` must increase within \(0, 1\]; got 0\."),
        ({"retrainings": 0}, "`retrainings` must be at least 1; got 0"),
        ({"engine": "cloud"}, "`engine` must be one of local, ray; got 'cloud'"),
        ({"methods": {}}, "`methods` must name at least one of"),
        ({"methods": ["gradcamm"]}, "`methods` must be one of .* got 'gradcamm'. Did you mean 'gradcam'"),
        ({"methods": {"a/b": exact}}, "`methods` must be named with letters"),
        ({"engine": "ray", "device": "cuda", "cluster": Cluster()}, "`device` must be 'cpu' with 0 GPUs per unit"),
    ],
)
def test_arguments_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        run(**options)


def test_data_is_checked():
    with pytest.raises(ValueError, match="`test` data must be inputs"):
        roar(build, TRAIN, (torch.zeros(4, 18), [0] * 4), ["random"])
