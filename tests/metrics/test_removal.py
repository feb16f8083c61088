"""Completeness by absolute thresholds, against a slow computation by hand; the gain of ROAD in both orders."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import twinlens as tl
from twinlens.metrics.curves import GainCurve

THRESHOLDS = (0.9, 0.5, 0.25, 0.0)


def case(seed, samples=12, features=9, classes=3):
    """A linear classifier, and maps of every size: far below 1, around it, far above it, equal to a threshold, zero."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(features, classes))
    inputs = rng.normal(size=(samples, features))
    labels = (inputs @ weights).argmax(axis=1)
    maps = rng.random((samples, features)) * 10.0 ** rng.integers(-3, 4, size=(samples, 1))
    maps[rng.random(maps.shape) < 0.2] = 0.5
    maps[0] = 0.0
    return weights, inputs, labels, maps


def by_hand(weights, inputs, labels, maps, value):
    """Accuracy of the untouched inputs, and how much of it is lost at each threshold."""

    def accuracy(removes):
        hits = 0
        for x, y, m in zip(inputs, labels, maps, strict=True):
            left = [value if removes(m[f]) else x[f] for f in range(len(x))]
            logits = [sum(left[f] * weights[f, k] for f in range(len(x))) for k in range(weights.shape[1])]
            hits += int(np.argmax(logits)) == y
        return hits / len(inputs)

    untouched = accuracy(lambda _: False)
    return untouched, [untouched - accuracy(lambda v, t=t: v > t) for t in THRESHOLDS]


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([0.0, -1.5]))
def test_absolute_thresholds_are_those_of_the_computation_by_hand(seed, value):
    weights, inputs, labels, maps = case(seed)
    matrix = torch.from_numpy(weights)
    curve = tl.completeness(
        lambda x: x @ matrix,
        torch.from_numpy(inputs),
        labels,
        maps,
        thresholds=THRESHOLDS,
        relative=False,
        imputer=tl.ConstantImputer(value),
    )
    untouched, losses = by_hand(weights, inputs, labels, maps, value)
    assert curve.baseline == untouched == 1.0
    assert np.allclose(curve.values, losses)
    assert curve.levels.tolist() == list(THRESHOLDS)
    assert np.allclose(curve.performance, untouched - np.array(losses))


def test_the_metric_as_a_value_needs_the_untouched_inputs_beside_its_thresholds():
    metric = tl.Completeness(thresholds=THRESHOLDS, relative=False, imputer=tl.ConstantImputer(0.0))
    by_value, untouched = (sweep.schedule for sweep in metric.sweeps(9))
    assert (by_value.by, by_value.relative, by_value.levels) == ("value", False, THRESHOLDS)
    assert (untouched.by, untouched.levels) == ("area", (0.0,))
    [relative] = tl.Completeness(thresholds=THRESHOLDS).sweeps(9)
    assert relative.schedule.levels == (1.0, *THRESHOLDS)
    assert relative.schedule.relative
    weights, inputs, labels, maps = case(3)
    matrix = torch.from_numpy(weights)
    arguments = (lambda x: x @ matrix, torch.from_numpy(inputs), labels, maps)
    curve = tl.metrics.measure_metric(metric, *arguments)
    assert np.allclose(curve.values, by_hand(weights, inputs, labels, maps, 0.0)[1])
    tables = [tl.probe(*arguments, schedule=each, imputer=metric.imputer) for each in (by_value, untouched)]
    assert np.array_equal(metric.read(tables).values, curve.values)


def test_of_maps_with_maximum_one_both_kinds_of_thresholds_remove_the_same():
    weights, inputs, labels, maps = case(5)
    maps = maps[1:] / maps[1:].max(axis=1, keepdims=True)
    matrix = torch.from_numpy(weights)
    arguments = (lambda x: x @ matrix, torch.from_numpy(inputs[1:]), labels[1:], maps)
    options = {"thresholds": THRESHOLDS, "imputer": tl.ConstantImputer(0.0)}
    absolute, relative = (tl.completeness(*arguments, relative=kind, **options) for kind in (False, True))
    assert np.array_equal(absolute.values, relative.values)
    assert absolute.baseline == relative.baseline
    assert np.array_equal(absolute.table.removed, relative.table.removed)


def test_scaling_maps_changes_what_absolute_thresholds_remove_and_nothing_else():
    weights, inputs, labels, maps = case(7)
    matrix = torch.from_numpy(weights)
    arguments = (lambda x: x @ matrix, torch.from_numpy(inputs), labels)
    options = {"thresholds": THRESHOLDS, "imputer": tl.ConstantImputer(0.0)}
    small, large = (tl.completeness(*arguments, scale * maps, relative=False, **options) for scale in (1e-9, 1e9))
    assert small.values[:-1].tolist() == [0.0] * 3  # nothing exceeds 0.25
    assert len(set(large.values)) == 1  # whatever is above zero exceeds all thresholds
    assert small.values[-1] == large.values[-1] > 0
    assert np.array_equal(*(tl.completeness(*arguments, scale * maps, **options).values for scale in (1e-9, 1e9)))


def test_without_the_untouched_inputs_absolute_thresholds_have_no_loss():
    weights, inputs, labels, maps = case(2)
    matrix = torch.from_numpy(weights)
    schedule = tl.probing.Schedule(by="value", order="morf", levels=THRESHOLDS, relative=False)
    table = tl.probe(lambda x: x @ matrix, torch.from_numpy(inputs), labels, maps, schedule=schedule,
                     imputer=tl.ConstantImputer(0.0))  # fmt: skip
    with pytest.raises(ValueError, match="`table` must hold probes by value, among them level 1"):
        tl.completeness_from_probes(table)


def test_the_curve_of_absolute_thresholds_is_resampled_like_any_other():
    weights, inputs, labels, maps = case(4, samples=40)
    matrix = torch.from_numpy(weights)
    curve = tl.completeness(lambda x: x @ matrix, torch.from_numpy(inputs), labels, maps, thresholds=THRESHOLDS,
                            relative=False, imputer=tl.ConstantImputer(0.0))  # fmt: skip
    low, high = curve.band(resamples=200)
    assert ((low <= curve.values) & (curve.values <= high)).all()
    index = np.sort(np.random.default_rng(0).integers(40, size=40))
    counts = np.bincount(index, minlength=40).astype(float)
    expected = by_hand(weights, inputs[index], labels[index], maps[index], 0.0)[1]
    assert np.allclose(curve.replicate(counts[None])[1][0], expected)


def gain_of(performance="probability", seed=1, samples=60, maps=None):
    """A linear classifier's gain and both removal curves that it is made of."""
    weights, inputs, labels, _ = case(seed, samples)
    matrix, random = torch.from_numpy(weights), np.random.default_rng(seed).random(inputs.shape)
    arguments = (lambda x: x @ matrix, torch.from_numpy(inputs), labels, random if maps is None else maps)
    options = {"performance": performance, "imputer": tl.ConstantImputer(0.0)}
    gain = tl.metrics.measure_metric(tl.RoadGain(**options), *arguments)
    return gain, *(tl.road(*arguments, order=order, **options) for order in ("morf", "lerf"))


@pytest.mark.parametrize("performance", ["probability", "accuracy", "balanced_accuracy"])
def test_the_gain_is_the_difference_of_both_orders(performance):
    gain, most, least = gain_of(performance)
    assert np.ptp(gain.values) > 0
    assert np.array_equal(gain.levels, most.levels)
    assert np.array_equal(gain.values, most.values - least.values)
    assert gain.at(0.3) == most.at(0.3) - least.at(0.3)
    assert gain.area() == pytest.approx(most.area() - least.area())
    weights = np.random.default_rng(0).multinomial(60, [1 / 60] * 60, size=5).astype(float)
    performances, values = gain.replicate(weights)
    assert np.array_equal(performances, most.replicate(weights)[0])
    assert np.array_equal(values, most.replicate(weights)[1] - least.replicate(weights)[1])
    assert np.allclose(gain.areas(performances, values), (values[:, :-1] + values[:, 1:]).mean(axis=1) / 2)
    assert np.allclose(gain.replicate(np.ones((1, 60)))[1], gain.values)


def test_the_gain_of_each_sample_averages_to_the_area():
    gain, most, least = gain_of()
    areas = gain.area_per_sample()
    assert np.array_equal(areas, most.area_per_sample() - least.area_per_sample())
    assert areas.mean() == pytest.approx(gain.area())
    some = gain.take([7, 3])
    assert some.table.ids == (gain.table.ids[7], gain.table.ids[3])
    assert np.array_equal(some.area_per_sample(), areas[[7, 3]])
    assert np.array_equal(some.values, gain.values)
    assert gain_of("balanced_accuracy")[0].area_per_sample() is None


def test_the_gain_is_zero_by_chance_and_above_it_for_the_exact_order():
    weights, inputs, labels, _ = case(1, samples=60)
    exact = inputs * (weights[:, labels].T - weights.mean(axis=1))
    areas = [gain_of(seed=seed)[0] for seed in range(1, 21)]
    scores = np.array([each.area() for each in areas])
    error = scores.std(ddof=1) / np.sqrt(len(scores))
    assert abs(scores.mean()) < 3 * error < 0.05
    good, bad = (gain_of(maps=order - order.min())[0] for order in (exact, -exact))
    assert good.area() == pytest.approx(-bad.area())
    assert good.interval(resamples=200).low > 5 * error


def test_a_gain_of_different_samples_or_levels_is_refused():
    _, most, least = gain_of()
    with pytest.raises(ValueError, match="`least` must hold the same samples and levels as `most`"):
        GainCurve.of(most, least.take(range(59)))
    with pytest.raises(ValueError, match="`least` must hold the same samples and levels as `most`"):
        GainCurve.of(most, dataclasses.replace(least, levels=least.levels + 0.05))
    assert tl.RoadGain().sweeps(9) == (*tl.Road().sweeps(9), *tl.Road(order="lerf").sweeps(9))
