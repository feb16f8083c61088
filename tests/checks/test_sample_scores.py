"""Per-sample scores: their mean, its interval, and undefined values."""

import numpy as np
import pytest

from twinlens.checks.sample_scores import SampleScores


def scores(values):
    return SampleScores(name="test", values=np.asarray(values), ids=tuple(str(k) for k in range(len(values))))


def test_the_interval_contains_the_mean_and_shrinks_with_more_samples():
    values = np.random.default_rng(0).random(400)
    few, many = scores(values[:25]).estimate(), scores(values).estimate()
    assert many.low < many.value < many.high
    assert many.high - many.low < 0.5 * (few.high - few.low)
    assert (many.high - many.low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.15)


def test_undefined_values_are_left_out():
    estimate = scores([0.2, np.nan, 0.4, np.nan]).estimate()
    assert estimate.value == pytest.approx(0.3)
    assert estimate.samples == 2
    assert estimate.interval is None  # of two samples
    # A resample may consist of undefined values alone: 1 in 16.
    assert 0.9 < np.isfinite(estimate.replicates).mean() < 1
    assert scores([np.nan, np.nan]).estimate().value is None


def test_the_order_of_samples_does_not_matter():
    values, order = np.random.default_rng(1).random(20), np.random.default_rng(2).permutation(20)
    ids = tuple("abcdefghijklmnopqrst")
    one = SampleScores(name="test", values=values, ids=ids).estimate(seed=3)
    other = SampleScores(name="test", values=values[order], ids=tuple(ids[k] for k in order)).estimate(seed=3)
    assert (one.low, one.high) == pytest.approx((other.low, other.high))


def test_intervals_stay_within_what_a_score_can_be():
    """All samples agree: the interval allows for one that does not, but not for a correlation above 1."""
    agree = np.ones(20)
    ids = tuple(map(str, range(20)))
    assert SampleScores(name="test", values=agree, ids=ids).estimate().high > 1
    within = SampleScores(name="test", values=agree, ids=ids, limits=(-1.0, 1.0)).estimate()
    assert within.low < 1
    assert within.high == 1
