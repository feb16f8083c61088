import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from twinlens.support.estimate import Estimate
from twinlens.support.resampling import around, band, draw


def student(distances, outside, samples):
    """How far new samples deviate as rarely as resamples that deviate by these distances, with some of them outside."""
    scale = np.sqrt(np.mean(distances**2))
    if scale == 0:
        return 0.0
    reach = np.sort(distances)[-outside] / scale
    return scale * t.isf(norm.sf(reach), samples - 1) * np.sqrt(samples / (samples - 1))


def test_draws_belong_to_ids():
    names = ["b", "a", "d", "c"]
    counts = draw(names, 50, seed=3)
    assert (counts.sum(axis=1) == 4).all()
    other = draw(names[::-1], 50, seed=3)
    assert np.array_equal(counts, other[:, ::-1])
    assert not np.array_equal(counts, draw(names, 50, seed=4))
    with pytest.raises(ValueError, match="`resamples` must be at least 2; got 1"):
        draw(names, 1, seed=0)


def test_bands_of_constant_and_of_undefined_values():
    replicates = np.random.default_rng(0).random((50, 3))
    replicates[:, 1], replicates[:, 2] = 0.5, np.nan
    values = np.array([0.5, 0.5, np.nan])
    for whole_curve in (False, True):
        low, high = band(values, replicates, 0.9, samples=20, simultaneous=whole_curve)
        assert low[0] < high[0]
        # None of 20 samples differs from 0.5, but up to 3 in 20 others may: the rule of three, two-sided at 90%, for
        # which 5 of 51 resamples are outside.
        assert (0.5 - low[1], high[1] - 0.5) == pytest.approx((-np.log(5 / 51 / 2) / 20 * 0.5,) * 2)
        assert np.isnan([low[2], high[2]]).all()
    replicates[::2, 2] = 1.0
    half = Estimate.of(1.0, replicates[:, 2], confidence=0.9, samples=20)  # 2 of 26, since half of them are undefined
    assert half.interval == pytest.approx((1 + np.log(2 / 26 / 2) / 20, 1 - np.log(2 / 26 / 2) / 20))
    with pytest.raises(ValueError, match=r"`confidence` must lie within \(0, 1\), such as 0.95; got 95"):
        Estimate.of(1.0, replicates[:, 2], confidence=95, samples=20)


@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([0.8, 0.9, 0.95, 0.99]), st.integers(2, 400))
def test_intervals_hold_their_estimate_and_agree_with_p_values(seed, numbers, confidence, resamples):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=numbers) * rng.choice([0.0, 1.0, 3.0], size=numbers)
    replicates = values + rng.normal(loc=rng.normal(), size=(resamples, numbers)) * rng.choice([0.5, 1.0], numbers)
    replicates[rng.random(replicates.shape) < 0.1] = np.nan
    found = around(values, replicates, samples=30)
    low, high = found.ends(confidence)
    excluded = (low > 0) | (high < 0)
    assert np.array_equal(found.p_values() < 1 - confidence, excluded)
    # A confidence that the resamples are too few for has no interval, and nothing is excluded.
    there = np.isfinite(low)
    assert ((low <= values) & (values <= high))[there].all()
    if resamples < 1 / (1 - confidence) - 1:
        assert not there.any()
    elif resamples > 1.5 / (1 - confidence) + 20:
        assert there.all()


def test_numbers_by_themselves_are_those_of_one_at_a_time():
    rng = np.random.default_rng(0)
    values, samples = np.array([0.0, 1.0, 0.3, np.nan]), np.array([12, 40, 8, 40])
    replicates = values + rng.exponential(size=(300, 4)) - 1
    replicates[rng.random((300, 4)) < 0.1] = np.nan
    found = around(values, replicates, samples, reach=1.0, together=False)
    for k in range(4):
        alone = around(values[[k]], replicates[:, [k]], samples[[k]], reach=1.0)
        assert found.ends(0.9)[:, k] == pytest.approx(alone.ends(0.9)[:, 0], nan_ok=True)
        assert found.p_values()[k] == pytest.approx(alone.p_values()[0], nan_ok=True)


def test_a_biased_estimator_gets_a_wider_interval():
    rng = np.random.default_rng(0)
    straight = 0.5 + 0.1 * rng.normal(size=1000)
    low, high = Estimate.of(0.5, straight, samples=1000).interval
    below, above = Estimate.of(0.5, straight + 0.15, samples=1000).interval
    assert below < low < 0.5 < high < above
    assert above - 0.5 == pytest.approx(0.5 - below)


@pytest.mark.parametrize(("differ", "widened"), [(0, True), (1, True), (2, True), (8, False)])
def test_levels_at_which_few_samples_differ_are_wider_than_resampling_shows(differ, widened):
    values = np.where(np.arange(100) < differ, 0.0, 1.0)
    replicates = draw([str(k) for k in range(100)], 500, seed=0) @ values / 100
    low, high = Estimate.of(values.mean(), replicates, samples=100).interval
    strays = student(np.abs(replicates - values.mean()), 25, 100)
    assert high - values.mean() == pytest.approx(strays + widened * -np.log(25 / 501 / 2) / 100 * values.mean())
    assert low <= 2 * values.mean() - high + 1e-12  # the long tail is below


@pytest.mark.parametrize(("samples", "factor"), [(25, 1.8), (2500, 1.008)])
def test_a_long_tail_extends_the_interval_on_its_side_and_shortens_no_other(samples, factor):
    """By the first term of the Cornish-Fisher expansion, with the skewness of few samples counted more than once."""
    noise = np.random.default_rng(0).normal(size=(2, 4000))
    tail = noise[0] + 0.3 * (noise[1] ** 2 - 1)
    found = around(np.zeros(1), tail[:, None], samples)
    low, high = found.ends(0.95)
    plain, reach, scale = student(np.abs(tail), 200, samples), found.farthest[-200, 0], np.sqrt(np.mean(tail**2))
    skewness = np.mean((tail - tail.mean()) ** 3) / tail.std() ** 3
    extended = factor * np.sqrt(skewness**2 - 24 / 4000) * (2 * reach**2 + 1) / 6
    assert -low[0] == pytest.approx(plain)
    assert high[0] == pytest.approx(plain + scale * extended)
    assert around(np.zeros(1), -tail[:, None], samples).ends(0.95)[:, 0] == pytest.approx((-high[0], -low[0]))


def test_skewness_that_chance_explains_extends_nothing():
    symmetric = np.random.default_rng(0).normal(size=(1000, 1))
    low, high = around(np.zeros(1), symmetric, 30).ends(0.95)
    assert -low == pytest.approx(high)


@pytest.mark.parametrize("samples", [50, 200])
def test_false_alarms_over_all_pairs_at_once(samples):
    """Four methods whose means are equal: of six pairs, any one is decided in about 5% of the data sets."""
    rng, first, second = np.random.default_rng(0), *np.triu_indices(4, 1)
    counts, alarms, held = draw([str(k) for k in range(samples)], 400, seed=0), [], []
    for _ in range(1000):
        scores = rng.normal(size=(samples, 1)) + rng.exponential(size=(samples, 4)) * [0.5, 1.0, 1.0, 2.0]
        scores -= [0.5, 1.0, 1.0, 2.0]
        pairs = scores[:, first] - scores[:, second]
        found = around(pairs.mean(axis=0), counts @ pairs / samples, samples)
        low, high = found.ends(0.95)
        alarms.append((found.p_values() < 0.05).any())
        held.append(((low <= 0) & (high >= 0)).all())
    assert np.array_equal(held, np.logical_not(alarms))
    assert 0.03 <= np.mean(alarms) <= 0.07


def test_zeros_that_never_differ_have_no_width():
    """Whatever may not have been seen is measured by the largest value, and here there is none."""
    low, high = band(np.zeros(2), np.zeros((50, 2)), 0.9, samples=20, simultaneous=False)
    assert (low.tolist(), high.tolist()) == ([0, 0], [0, 0])


def test_a_share_of_resamples_that_is_just_the_confidence_is_inside():
    """Three resamples stray by 0, 1 and 2, and each is a quarter, because the data set itself counts among them."""
    found = around(np.array([1.0]), np.array([[1.0], [2.0], [3.0]]), samples=10**9)
    for confidence, outside in ((0.5, False), (0.49, True)):
        _, high = found.ends(confidence)
        assert bool(high[0] < 3) == outside, confidence
