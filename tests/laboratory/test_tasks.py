import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.laboratory import tasks, true_completeness, true_soundness, true_soundness_curve
from twinlens.laboratory.tasks import TASKS, map_grid
from twinlens.probing.ranking import rank_features

SMALL = {
    "linear": {"features": 40},
    "sparse linear": {"features": 40},
    "interaction": {"features": 40, "groups": 10},
    "network": {"features": 30, "planted": 6},
    "suppressor": {"features": 40, "informative": 10},
    "patch": {"side": 18, "patch": 4},
}


def small(name, samples=30, **options):
    return TASKS[name](samples, **SMALL[name] | options)


@pytest.mark.parametrize("name", TASKS)
def test_the_model_reads_only_what_the_task_says(name):
    task = small(name)
    read = task.predictive.any(axis=0)
    noise = torch.rand(task.inputs.shape, generator=torch.manual_seed(1), dtype=torch.float64)
    other = torch.where(torch.from_numpy(read), task.inputs, noise)
    changed = torch.where(torch.from_numpy(read), noise, task.inputs)
    assert torch.equal(task.model(task.inputs), task.model(other))
    assert not torch.equal(task.model(task.inputs), task.model(changed))
    decided = task.model(task.inputs).argmax(1).numpy()
    assert np.mean(decided == task.labels) == pytest.approx(0.9)
    assert set(decided) - {2} == {0, 1}


@pytest.mark.parametrize("name", ["network", "patch"])
def test_a_task_is_the_subject_of_a_run(name):
    task = small(name)
    asked = {"metrics": ["completeness"], "imputer": task.imputer, "resamples": 20, "progress": False}
    found = tl.evaluate(task.model, (task.inputs, task.labels), ["input_x_gradient"], **asked)
    assert not found.failures
    maps = found.maps("input_x_gradient").double().numpy()
    assert true_soundness(maps, task.predictive).mean() > 0.9


def by_definition(task, sample, feature, rng, orders=200):
    """The mean gain of a feature's score over random orders in which features join a blank input."""
    size = task.information[0].size
    x, y = task.inputs[sample].flatten(), int(task.labels[sample])
    gains = []
    for _ in range(orders):
        order = rng.permutation(size)
        before = order[: int(np.flatnonzero(order == feature)[0])]
        keep = torch.zeros(2, size, dtype=torch.float64)
        keep[:, before] = 1
        keep[1, feature] = 1
        logits = task.model((x * keep).reshape(2, *task.inputs.shape[1:]))
        margin = logits[:, y] - logits[:, 1 - y]
        gains.append((margin[1] - margin[0]).item())
    return np.mean(gains), np.std(gains) / np.sqrt(orders)


@pytest.mark.parametrize("name", TASKS)
def test_information_is_the_shapley_value_of_the_score(name):
    task, rng = small(name, samples=12), np.random.default_rng(0)
    flat = task.effects.reshape(12, -1)
    read = np.flatnonzero(task.predictive.any(axis=0).ravel())[:4]
    found, known = [], []
    for sample in range(3):
        for feature in read:
            mean, error = by_definition(task, sample, feature, rng)
            found.append(mean)
            known.append(flat[sample, feature])
            assert mean * np.sign(flat[sample, feature]) > -3 * error
    # Scores are scaled to the size that log-odds have, so that values agree up to one factor.
    assert len(found) > 3
    assert np.corrcoef(found, known)[0, 1] > 0.98


def test_exact_shapley_values_of_few_features():
    x = np.array([[1.0, 2.0, 3.0]])
    values = tasks._shapley(lambda p: p[:, 0] * p[:, 1] + 5 * p[:, 2], x)
    assert np.allclose(values, [[1.0, 1.0, 15.0]])


def test_seeds_and_sizes():
    one, same, other = (small("network", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.inputs, same.inputs)
    assert not torch.equal(one.inputs, other.inputs)
    assert repr(one) == "Task(network, 30 samples, 30 features)"
    assert tasks.linear(5).information.shape == (5, 200)


def test_the_grid_is_wrong_as_its_names_say():
    task = small("sparse linear", samples=60)
    grid = map_grid(task)
    truth = grid["truth"]
    shares = {name: (maps * task.predictive).sum() / maps.sum() for name, maps in grid.items()}
    complete = {name: true_completeness(maps, task.information).mean() for name, maps in grid.items()}
    for share in (0.25, 0.5, 0.75):
        name = f"removed {share:g}"
        assert shares[name] == 1.0
        assert complete[name] == pytest.approx(1 - share, abs=0.1)
    for strength in ("0.25", "0.5", "1"):
        introduced = grid[f"introduced {strength}"]
        assert np.array_equal(introduced[task.predictive], truth[task.predictive])
        assert (introduced[~task.predictive] > 0).all()
    falling = [shares[name] for name in ("truth", "introduced 0.25", "introduced 0.5", "introduced 1")]
    assert falling == sorted(falling, reverse=True)
    assert all(complete[f"introduced {s}"] == pytest.approx(1.0) for s in (0.25, 0.5, 1))
    assert np.array_equal(grid["inverted"].argmin(axis=1), truth.argmax(axis=1))


def test_truth_of_whole_maps():
    """By hand, and as the last level of a sweep that removes nothing in the end."""
    maps = np.array([[[4.0, 1.0], [3.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    predictive = np.array([[True, False], [False, True]])
    assert np.allclose(true_soundness(maps, predictive), [0.5, np.nan], equal_nan=True)
    assert np.allclose(true_soundness(maps, np.stack([~predictive, predictive])), [0.5, np.nan], equal_nan=True)
    information = np.array([[1.0, 0.0], [0.0, 3.0]])
    assert true_completeness(maps, information).tolist() == [0.25, 0.0]
    assert true_completeness(maps[:1], np.array([[1.0, 0.0], [2.0, 5.0]]), threshold=0.75).tolist() == [1 / 8]
    assert np.isnan(true_completeness(maps, 0 * information)).all()
    with pytest.raises(ValueError, match=r"`predictive` must have the shape \(2, 2, 2\) of the maps, or \(2, 2\); got"):
        true_soundness(maps, predictive[0])
    with pytest.raises(ValueError, match="`maps` must not have negative values; the smallest is -4"):
        true_completeness(-maps, information)
    task = small("sparse linear", samples=8)
    maps = map_grid(task)["introduced 0.5"]
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=(0.5, 0.0))
    table = tl.probe(task.model, task.inputs, task.labels, maps, schedule=schedule, imputer=task.imputer)
    whole = true_soundness_curve(maps, task.predictive, table)[:, -1]
    assert np.allclose(true_soundness(maps, task.predictive), whole)


def test_suppressors_say_nothing_by_themselves_and_are_read():
    task = tasks.suppressor(4000, features=60, informative=20)
    x, sign = task.inputs.numpy(), np.where(task.labels == 1, 1.0, -1.0)
    with_label = np.array([np.corrcoef(sign, column)[0, 1] for column in x.T])
    assert (np.abs(with_label[:20]) > 0.3).all()
    assert (np.abs(with_label[20:]) < 0.06).all()
    shared = [np.corrcoef(x[:, i], x[:, 20 + i])[0, 1] for i in range(20)]
    assert min(shared) > 0.6
    assert 0.4 < task.predictive[:, 20:40].mean() < 0.6
    assert not task.predictive[:, 40:].any()


@pytest.mark.parametrize(
    "task", [tasks.interaction(6, features=20, groups=4, partners=3), tasks.network(6, features=12, planted=5, depth=3)]
)
def test_information_in_tasks_with_more_partners_and_layers(task):
    rng, flat = np.random.default_rng(0), task.information
    found = np.array([[by_definition(task, i, f, rng, orders=200)[0] for f in range(8)] for i in range(3)])
    known = flat[:3, :8]
    assert np.corrcoef(np.clip(found, 0, None).ravel(), known.ravel())[0, 1] > 0.98
    assert (known > 0).any()


def test_true_soundness_by_sets():
    task = small("sparse linear", samples=8)
    maps = map_grid(task)["introduced 0.5"]
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=(0.9, 0.5, 0.1))
    table = tl.probe(task.model, task.inputs, task.labels, maps, schedule=schedule, imputer=task.imputer)
    found = true_soundness_curve(maps, task.predictive, table)
    rank = rank_features(torch.from_numpy(maps), ids=table.ids, seed=0).rank.numpy()
    for i in range(8):
        for m, share in enumerate(schedule.levels):
            kept = rank[i] >= round(40 * share)
            right = maps[i][kept & task.predictive[i]].sum() / maps[i][kept].sum()
            assert found[i, m] == pytest.approx(right)
    maps = maps.copy()
    maps[0] = 0
    table = tl.probe(task.model, task.inputs, task.labels, maps, schedule=schedule, imputer=task.imputer)
    assert np.isnan(true_soundness_curve(maps, task.predictive, table)[0]).all()
