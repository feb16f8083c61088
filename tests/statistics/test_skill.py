import dataclasses
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import binom

import twinlens as tl
from twinlens.laboratory.tasks import sparse_linear
from twinlens.probing.exchange import draw_controlled, draw_partners

LEVELS = tuple(p / 100 for p in range(98, 0, -4))


def measure_maps(task, maps, ids=None):
    """Soundness as a rank, completeness, and the loss when the least relevant features go first."""
    arguments, options = (task.model, task.inputs, task.labels, maps), {"imputer": task.imputer, "ids": ids}
    return {
        "soundness": tl.soundness(*arguments, estimator="rank", **options),
        "completeness": tl.completeness(*arguments, **options),
        "road": tl.road(*arguments, order="lerf", **options),
    }


def of_samples(curve, index, ids):
    """The same metric of some samples, under new names."""

    def take(table):
        return dataclasses.replace(table.take(index), ids=ids)

    if isinstance(curve, tl.StepCurve):
        return tl.Soundness(estimator="rank").read([take(curve.table), take(curve.opposite)])
    read = tl.completeness_from_probes if isinstance(curve, tl.CompletenessCurve) else tl.removal_from_probes
    return read(take(curve.table))


@pytest.fixture(scope="module")
def task():
    return sparse_linear(120, features=60)


@pytest.fixture(scope="module")
def both(task):
    """Curves of own maps, and of maps that belong to another input."""
    maps = task.information + 0.01
    return measure_maps(task, maps), measure_maps(task, np.roll(maps, 1, axis=0))


@pytest.mark.parametrize("metric", ["soundness", "completeness", "road"])
def test_own_maps_are_better_whatever_the_sign_of_the_metric(both, metric):
    own, exchanged = (curves[metric] for curves in both)
    found = tl.skill(*(curves[metric] for curves in both), resamples=200)
    assert found.value == pytest.approx(abs(own.area() - exchanged.area()))
    assert 0 < found.low < found.value < found.high
    assert found.p == pytest.approx(1 / 201)
    assert (found.samples, found.confidence) == (120, 0.95)
    turned = tl.skill(exchanged, own, resamples=200)
    assert (turned.value, turned.low, turned.high) == pytest.approx((-found.value, -found.high, -found.low))
    assert turned.p == found.p


def test_samples_are_matched_by_id_and_resampled_alike(task, both):
    own, exchanged = (curves["completeness"] for curves in both)
    found = tl.skill(own, exchanged, resamples=100)
    order = np.random.default_rng(0).permutation(120)
    shuffled = tl.completeness_from_probes(exchanged.table.take(order))
    again = tl.skill(own, shuffled, resamples=100)
    assert (again.value, *again.interval, again.p) == pytest.approx((found.value, *found.interval, found.p))
    renamed = measure_maps(task, np.roll(task.information + 0.01, 1, axis=0), ids=[f"x{k}" for k in range(120)])
    with pytest.raises(
        ValueError, match="`exchanged` must be measured on the same samples as `own`; 240 ids"
    ) as refused:
        tl.skill(own, renamed["completeness"])
    remedy = "Give the same `ids` to both, or take the common samples with ProbeTable.take."
    assert str(refused.value).endswith(remedy)
    with pytest.raises(ValueError, match="must be a CompletenessCurve as `own` is; got a RemovalCurve"):
        tl.skill(own, both[1]["road"])
    with pytest.raises(ValueError, match="`confidence` must lie within"):
        tl.skill(own, exchanged, confidence=95)


@pytest.mark.parametrize("metric", ["completeness", "road"])
def test_maps_have_no_skill_against_themselves(both, metric):
    """Of the latter less is better, which turns 0 into -0."""
    found = tl.skill(both[0][metric], both[0][metric], resamples=50)
    assert (found.value, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)  # the same answers at every level
    assert str(found) == "0.000 [0.000, 0.000]"


@pytest.mark.parametrize(("samples", "groups", "known"), [(9, 9, False), (10, 5, False), (12, 6, True), (10, 10, True)])
def test_a_skill_of_few_samples_or_groups_has_neither_interval_nor_p_value(both, samples, groups, known):
    """Flipping the signs of five differences reaches 1 in 16 at best, and never 5%."""
    ids = tuple(map(str, range(samples)))
    own, exchanged = (of_samples(curves["soundness"], range(samples), ids) for curves in both)
    found = tl.skill(own, exchanged, resamples=500, groups={name: str(int(name) % groups) for name in ids})
    assert found.value == pytest.approx(own.area() - exchanged.area())
    assert (found.interval is not None) == known
    if known:
        assert found.decided
        assert 0.5 ** (groups - 1) <= found.p < 0.05
    else:
        assert (found.p, found.decided) == (None, False)


def test_an_area_that_is_not_reached_has_no_skill(task):
    maps = task.information + 0.01
    curves = [
        tl.soundness(task.model, task.inputs, task.labels, m, imputer=task.imputer, levels=LEVELS)
        for m in (maps, np.roll(maps, 1, axis=0))
    ]
    reached = tl.skill(*curves, high=0.2, resamples=50)
    assert reached.value == pytest.approx(curves[0].area(high=0.2) - curves[1].area(high=0.2))
    never = tl.skill(*curves, high=2.0, resamples=50)
    assert (never.value, never.interval, never.p, str(never)) == (None, None, None, "–")


@cache
def flawed(size):
    """Curves of two sets of maps that lack half of the information each, whose samples have names of their own."""
    task, rng = sparse_linear(size, features=60), np.random.default_rng(0)
    pair = [task.information * (rng.random(task.information.shape) > 0.5) + 1e-3 for _ in range(2)]
    return [measure_maps(task, maps, ids=[f"{k}-{n}" for n in range(size)]) for k, maps in enumerate(pair)]


@pytest.mark.slow
@pytest.mark.parametrize("samples", [50, 200])
@pytest.mark.parametrize("metric", ["soundness", "completeness"])
def test_false_alarms_without_skill(metric, samples):
    """Own and exchanged are two flawed maps of equal quality, swapped at random sample by sample."""
    size, sets, rng = 2000, 200, np.random.default_rng(1)
    prefixed = [curves[metric] for curves in flawed(size)]
    names, alarms = tuple(map(str, range(samples))), []
    for _ in range(sets):
        index, swap = rng.integers(size, size=samples), rng.random(samples) < 0.5
        sides = [[prefixed[side] for side in order] for order in ((0, 1), (1, 0))]
        one, other = (_mixed(own, exchanged, index, swap, names) for own, exchanged in sides)
        alarms.append(tl.skill(one, other, resamples=200).p < 0.05)
    assert 0.02 <= np.mean(alarms) <= 0.08  # 5%, give or take two standard errors of 200 data sets


def _mixed(first, second, index, swap, ids):
    """The curve of samples from the first population, and of those to swap from the second."""
    joined = tl.ProbeTable.concatenate([first.table, second.table])
    places = index + len(first.table) * swap
    if isinstance(first, tl.StepCurve):
        opposite = tl.ProbeTable.concatenate([first.opposite, second.opposite])
        first = dataclasses.replace(first, table=joined, opposite=opposite)
    else:
        first = dataclasses.replace(first, table=joined)
    return of_samples(first, places, ids)


ALL = 40  # inputs and maps, each of which meets each
TESTED = {
    "soundness_rank": tl.METRICS["soundness_rank"],
    "completeness": tl.Completeness(performance="probability"),
}


@pytest.fixture(scope="module")
def bank():
    """Probes of random maps on all inputs of a model to which some features matter more than others."""
    rng, weights = np.random.default_rng(0), torch.linspace(3.0, 0.0, 20)
    inputs = torch.as_tensor(rng.random((ALL, 20)), dtype=torch.float32)
    maps, every = rng.random((ALL, 20)), np.repeat(np.arange(ALL), ALL)

    def model(x):
        return torch.stack([x @ weights - 4, 0 * x[:, 0]], dim=1)

    schedules = {sweep.schedule: None for metric in TESTED.values() for sweep in metric.sweeps(20)}
    return {
        schedule: tl.probe(
            model, inputs[every], [0] * ALL**2, np.tile(maps, (ALL, 1)), schedule=schedule,
            imputer=tl.ConstantImputer(0.0),
        )
        for schedule in schedules
    }  # fmt: skip


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("name", TESTED)
def test_false_alarms_of_random_maps(bank, name, share):
    """A reduced version of benchmarks/false_alarms.py: 5% of 200 data sets, within the limits of chance.

    With samples instead of groups drawn, completeness raises 1% of alarms: some maps are better on any input.
    """
    metric, alarms, labels = TESTED[name], [], np.arange(24) % 5
    for seed in range(200):
        rng = np.random.default_rng(seed)
        inputs, maps = (rng.permutation(ALL)[:24] for _ in range(2))
        ids = tuple(map(str, inputs))
        chosen = draw_controlled(ids, labels, share, seed=seed)
        names = tuple(ids[k] for k in chosen)
        own, exchanged = (
            metric.read(
                [
                    dataclasses.replace(bank[sweep.schedule].take((ALL * inputs + each)[chosen]), ids=names)
                    for sweep in metric.sweeps(20)
                ]
            )
            for each in (maps, maps[draw_partners(ids, labels, seed=seed)])
        )
        groups = tl.probing.exchange_groups(ids, labels, seed=seed)
        alarms.append(tl.skill(own, exchanged, resamples=150, groups=groups).p < 0.05)
    least, most = binom.ppf([0.005, 0.995], 200, 0.05)
    assert least <= sum(alarms) <= most
