"""Completeness by thresholds that are not relative to the maximum, against a slow computation by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import twinlens as tl

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
