"""Estimates: intervals from replicates, arithmetic that stays paired, and what JSON holds of them."""

import numpy as np
import pytest

from twinlens.support.estimate import Estimate
from twinlens.support.fields import from_json, to_json
from twinlens.support.resampling import band, resample_mean

IDS = [str(k) for k in range(30)]
VALUES = np.random.default_rng(0).normal(0.3, 0.1, 30)


def mean_of(values):
    mean, replicates = resample_mean(values, IDS, 200, 0)
    return Estimate.of(mean, replicates, samples=len(values))


def test_the_interval_is_that_of_the_mean():
    mean, replicates = resample_mean(VALUES, IDS, 200, 0)
    low, high = band(np.array([mean]), replicates[:, None], 0.95, samples=30, simultaneous=True)
    estimate = mean_of(VALUES)
    assert estimate == Estimate.of_mean(VALUES, IDS, resamples=200)
    assert estimate.value == mean
    assert estimate.interval == (low[0], high[0])
    assert estimate.decided
    assert not (estimate - estimate.value).decided


def test_a_difference_is_paired():
    shifted = mean_of(VALUES + 0.2) - mean_of(VALUES)
    assert shifted.value == pytest.approx(0.2)
    assert shifted.replicates == pytest.approx(np.full(200, 0.2))


def test_multiples_scale_the_interval():
    estimate, double = mean_of(VALUES), 2 * mean_of(VALUES).value
    assert (mean_of(VALUES) * 2).value == double
    assert (mean_of(VALUES) * 2).high == pytest.approx(2 * estimate.high)
    assert (-estimate).interval == pytest.approx((-estimate.high, -estimate.low))
    assert (estimate / 2 + estimate / 2).interval == pytest.approx(estimate.interval)
    assert (1 - estimate).value == pytest.approx(1 - estimate.value)


def test_an_undefined_number_has_no_interval():
    nothing = Estimate.of(float("nan"), np.full(200, np.nan), samples=30)
    assert (nothing.value, nothing.interval, nothing.decided, str(nothing)) == (None, None, False, "–")
    assert (mean_of(VALUES) - nothing).value is None


def test_estimates_without_replicates_cannot_be_combined():
    with pytest.raises(ValueError, match="replicates"):
        Estimate(value=1.0, samples=3) - mean_of(VALUES)


def test_json_holds_the_numbers_and_not_the_replicates():
    estimate = mean_of(VALUES)
    stored = to_json(estimate)
    assert list(stored) == ["value", "low", "high", "samples", "p"]
    assert from_json(Estimate, stored, "estimate") == estimate


def test_clipping_keeps_the_value():
    assert Estimate(value=0.9, low=0.7, high=1.1, samples=9).clipped(0, 1).interval == (0.7, 1.0)


def test_the_magnitude_of_a_negative_number_has_a_mirrored_interval():
    negative = Estimate(value=-0.5, low=-0.7, high=0.1, samples=9, p=0.2)
    assert negative.magnitude == Estimate(value=0.5, low=-0.1, high=0.7, samples=9, p=0.2)
    assert Estimate(value=-0.5, samples=9).magnitude.interval is None


def test_differences_are_tested_together():
    values = np.array([0.0, 5.0, np.nan])
    replicates = np.random.default_rng(0).normal(size=(200, 3)) + values
    none, clear, undefined = Estimate.of_differences(values, replicates, samples=30)
    assert (none.decided, clear.decided, undefined.decided) == (False, True, False)
    assert none.p > 0.05 > clear.p
    assert (undefined.value, undefined.interval, undefined.p) == (None, None, None)
    [alone] = Estimate.of_differences(np.array([5.0]), replicates[:, [1]], samples=30)
    assert alone.high - alone.low < clear.high - clear.low


@pytest.mark.parametrize(("samples", "shown"), [(9, False), (10, True)])
def test_few_samples_have_neither_interval_nor_p_value(samples, shown):
    replicates = np.random.default_rng(0).normal(size=(200, 2)) + 5
    for estimate in Estimate.of_differences(np.array([5.0, 5.0]), replicates, samples=np.array([samples, 20])):
        known = shown or estimate.samples == 20
        assert (estimate.p is not None) == (estimate.interval is not None) == estimate.decided == known
    assert (Estimate.of(5.0, replicates[:, 0], samples=samples).interval is not None) == shown


@pytest.mark.parametrize(("groups", "least"), [(6, 1 / 32), (8, 1 / 128), (20, 1 / 1001)])
def test_p_is_never_below_what_flipping_signs_can_reach(groups, least):
    """All resamples are far from zero, 1 in 1,001; of 64 ways to sign six groups two are as extreme, 1 in 32."""
    replicates = 5 + 0.1 * np.random.default_rng(0).normal(size=(1000, 1))
    [estimate] = Estimate.of_differences(np.array([5.0]), replicates, samples=40, groups=groups)
    assert estimate.p == pytest.approx(least)
    assert estimate.decided
    [strict] = Estimate.of_differences(np.array([5.0]), replicates, samples=40, groups=groups, confidence=0.98)
    assert strict.decided == (least < 0.02)
    assert (estimate - estimate).groups == groups


def test_differences_without_any_between_samples_have_a_width():
    """The rule of three: nothing seen in 20 samples does not make it certain for others."""
    [estimate] = Estimate.of_differences(np.zeros(1), np.zeros((1000, 1)), samples=20, reach=1.0)
    assert estimate.interval == pytest.approx((np.log(50 / 1001 / 2) / 20, -np.log(50 / 1001 / 2) / 20))
    assert estimate.p == 1.0
