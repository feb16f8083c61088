"""Our metrics as metrics of torchmetrics: batches, processes, duplicates."""

import pickle

import numpy as np
import pytest
import torch
from torch import multiprocessing
from torchmetrics import MetricCollection

import twinlens as tl
from tests.integrations import two_processes
from tests.integrations.conftest import FEW, LEVELS
from tests.tiny import tiny_model
from twinlens.integrations.torchmetrics import Completeness, Deletion, Insertion, Road, Soundness

IDS = list("abcdef")
OURS = [
    (Soundness(**FEW), tl.Soundness(estimator="rank", **FEW)),
    (Soundness(estimator="paper", **LEVELS), tl.Soundness(**LEVELS)),
    (Completeness(**FEW), tl.Completeness(estimator="share", **FEW)),
    (
        Completeness(estimator="paper", performance="balanced_accuracy"),
        tl.Completeness(performance="balanced_accuracy"),
    ),
    (Completeness(estimator="paper", relative=False), tl.Completeness(relative=False, performance="probability")),
    (Road(order="lerf", seed=3), tl.Road(order="lerf", performance="probability")),
    (Deletion(performance="accuracy"), tl.Deletion()),
    (Insertion(), tl.Insertion(performance="probability")),
]


def halves(images, labels, maps):
    for part in (slice(0, 4), slice(4, 6)):
        yield images[part], labels[part], maps[part], IDS[part]


@pytest.mark.parametrize(("theirs", "ours"), OURS)
def test_batches_come_to_our_number(model, images, labels, maps, theirs, ours):
    for inputs, classes, given, ids in halves(images, labels, maps):
        theirs.update(model, inputs, classes, given, ids)
    how = {"ids": IDS, "seed": theirs.how.get("seed", 0)}
    expected = tl.metrics.measure_metric(ours, model, images, labels, maps, **how)
    assert theirs.compute().item() == pytest.approx(expected.area(), abs=1e-6)
    curve = theirs.curve()
    assert curve.table.settings == expected.table.settings
    assert curve.table.ids == expected.table.ids
    np.testing.assert_array_equal(curve.table.kept_mass, expected.table.kept_mass)
    np.testing.assert_array_equal(curve.table.removed, expected.table.removed)
    assert theirs.higher_is_better == expected.higher_is_better


def test_scores_of_samples_stand_in_the_order_of_updates(model, images, labels, maps):
    metric, backwards = Deletion(reduction="none"), [5, 4, 3, 2, 1, 0]
    metric.update(model, images[backwards], labels[backwards], maps[backwards], [IDS[k] for k in backwards])
    expected = tl.deletion(model, images, labels, maps, ids=IDS, performance="probability").area_per_sample()
    np.testing.assert_allclose(metric.compute().numpy(), expected[backwards], atol=1e-6)


def test_forward_scores_the_batch_and_keeps_it(model, images, labels, maps):
    metric = Deletion()
    first, second = (metric(model, *batch).item() for batch in halves(images, labels, maps))
    assert metric.compute().item() == pytest.approx((4 * first + 2 * second) / 6, abs=1e-9)
    metric.reset()
    with pytest.warns(UserWarning, match="before the"), pytest.raises(ValueError, match=r"Call update\(\)"):
        metric.compute()


def test_samples_are_known_by_their_content(model, images, labels, maps):
    """In whatever batch and order they come; one that comes twice, as a sampler fills up a batch, counts once."""
    once, again = Road(), Road()
    once.update(model, images, labels, maps)
    padded = [3, 4, 5, 0, 1, 2, 3, 3]
    for part in (padded[:3], padded[3:]):
        again.update(model, images[part], labels[part], maps[part])
    assert len(again.curve().table) == 6
    assert again.curve().table.ids == once.curve().table.ids
    assert again.compute().item() == pytest.approx(once.compute().item(), abs=1e-7)


def test_one_name_of_two_samples_is_refused(model, images, labels, maps):
    metric = Deletion()
    for inputs, classes, given, _ in halves(images, labels, maps):
        metric.update(model, inputs, classes, given, ids=range(len(inputs)))
    with pytest.raises(ValueError, match=r"`ids` must name a sample each.*'0' names two with different maps"):
        metric.compute()
    with pytest.raises(ValueError, match="`ids` must name a sample each"):
        Deletion().update(model, images[[0, 0]], labels[[0, 0]], maps[:2])


def test_regression():
    rows, weights = torch.randn(8, 5), torch.randn(5)
    metric = Deletion(performance="r2")
    metric.update(lambda x: x @ weights, rows, rows @ weights, (rows * weights).abs(), ids=range(8))
    expected = tl.deletion(lambda x: x @ weights, rows, rows @ weights, (rows * weights).abs(), performance="r2")
    assert metric.compute().item() == pytest.approx(expected.area(), abs=1e-6)


def test_models_on_arrays():
    """As those of scikit-learn, which get arrays if inputs are; some rows come twice."""
    rows = np.random.default_rng(0).normal(size=(8, 5))[[0, 1, 2, 3, 4, 5, 6, 7, 0]]

    def model(given):
        assert isinstance(given, np.ndarray)
        positive = 1 / (1 + np.exp(-given.sum(axis=1)))
        return np.stack([1 - positive, positive], axis=1)

    metric = Deletion()
    metric.update(model, rows, [1] * 9, abs(rows))
    expected = tl.deletion(model, rows[:8], [1] * 8, abs(rows[:8]), performance="probability")
    assert metric.compute().item() == pytest.approx(expected.area(), abs=1e-12)


def test_sizes_that_differ_are_refused(model, images, labels, maps):
    metric = Deletion()
    metric.update(model, images, labels, maps)
    metric.update(model, images[..., :6], labels, maps[..., :6])
    with pytest.raises(ValueError, match=r"same settings; .* spatial is \(8, 6\) instead of \(8, 8\)"):
        metric.compute()


def test_a_collection_asks_several_questions(model, images, labels, maps):
    """Metrics with the same probes become one group of torchmetrics, which is probed once."""
    paper = {"performance": "probability", **LEVELS}
    strict = Soundness(epsilon=0.5, estimator="paper", **paper)
    metrics = MetricCollection({"strict": strict, "usual": Soundness(estimator="paper", **paper)})
    for inputs, classes, given, ids in halves(images, labels, maps):
        metrics.update(model, inputs, classes, given, ids)
    assert len(metrics.compute_groups) == 1
    found = metrics.compute()
    for name, epsilon in {"strict": 0.5, "usual": 0.01}.items():
        curve = tl.soundness(model, images, labels, maps, ids=IDS, epsilon=epsilon, **paper)
        assert found[name].item() == pytest.approx(curve.area(), abs=1e-6)
    assert found["strict"] < found["usual"]


def test_options(model, images, labels, maps):
    with pytest.raises(ValueError, match="`performance` must be one that each sample has"):
        Completeness(estimator="paper", performance="balanced_accuracy", reduction="none")
    with pytest.raises(ValueError, match="epsilom"):
        Soundness(epsilom=0.1)
    with pytest.raises((ValueError, TypeError), match="`reduction` must be one of area, none"):
        Soundness(reduction="mean")
    metric = Deletion(compute_on_cpu=True)
    metric.update(model, images, labels, maps)
    copy = pickle.loads(pickle.dumps(metric))  # our own bytes, as torchmetrics does for processes
    assert copy.compute() == metric.compute()


@pytest.mark.slow
def test_two_processes_equal_one(model, images, labels, maps, tmp_path):
    """Even shares, a share that a sampler filled up, and a process without any sample; with ids and without."""
    data = (images.double(), labels, torch.from_numpy(maps))
    second = multiprocessing.spawn(two_processes.second, (tmp_path, *data), nprocs=1, join=False)
    first = two_processes.work(0, tmp_path, *data)
    while not second.join():
        pass
    expected = two_processes.measure(tiny_model().double().eval(), [[0, 1, 2, 3, 4, 5]], *data)
    for found in (first, torch.from_numpy(np.load(tmp_path / "second.npy"))):
        assert found.shape == (len(two_processes.SHARES), *expected.shape)
        torch.testing.assert_close(found, expected.expand_as(found), rtol=0, atol=1e-12)
