"""Looking several times: what it costs, and that the level holds."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from twinlens.probing.exchange import BLOCK
from twinlens.statistics.bootstrap import Area
from twinlens.statistics.comparison import compare_areas
from twinlens.statistics.sequential import ONE_LOOK, Looks, crossings, round_sizes
from twinlens.support.estimate import Estimate

EQUAL = Looks((1, 2, 3, 4, 5))


@given(st.integers(1, 60_000))
def test_rounds_grow_to_all_samples_by_whole_blocks(samples):
    sizes = round_sizes(samples)
    assert sizes[-1] == samples
    assert all(size % BLOCK == 0 and size + BLOCK <= samples for size in sizes[:-1])
    assert all(size < other <= 2 * size + BLOCK for size, other in pairwise(sizes))
    assert len(sizes) <= 18


@pytest.mark.parametrize(("count", "reach"), [(1, 1.960), (2, 2.178), (3, 2.289), (5, 2.413), (10, 2.555)])
def test_the_boundary_is_pococks(count, reach):
    """Constants of Pocock (1977) for looks after equal numbers of samples, at 5%."""
    confidence = Looks(tuple(range(1, count + 1))).confidence(0.95)
    assert norm.isf((1 - confidence) / 2) == pytest.approx(reach, abs=6e-4)


def test_chances_are_those_of_a_random_walk():
    sums = np.random.default_rng(0).normal(size=(200_000, 5)).cumsum(axis=1)
    crossed = np.maximum.accumulate(np.abs(sums) > 2.2 * np.sqrt(np.arange(1, 6)), axis=1)
    np.testing.assert_allclose(crossings(EQUAL.sizes, 2.2), crossed.mean(axis=0), atol=0.002)


@given(st.floats(1e-6, 1.0), st.integers(1, 100))
def test_p_values_lie_between_one_look_and_the_sum_of_all(p, at_once):
    paid = EQUAL.p_value(p, at_once=at_once)
    assert p - 1e-9 <= paid <= min(1.0, 5 * p * (1 + 1e-6))
    assert ONE_LOOK.p_value(p) == p


@pytest.mark.parametrize("at_once", [1, 10])
def test_p_values_fall_below_the_level_where_intervals_exclude_zero(at_once):
    level = 1 - EQUAL.confidence(0.95, at_once=at_once)
    assert EQUAL.p_value(level * 0.999, at_once=at_once) < 0.05 < EQUAL.p_value(level * 1.001, at_once=at_once)
    assert EQUAL.spent(0.95, 5) == pytest.approx(0.05, abs=1e-6)
    assert EQUAL.spent(0.95, 1) == pytest.approx(1 - EQUAL.confidence(0.95), rel=1e-3)


def test_one_look_costs_nothing():
    assert ONE_LOOK.confidence(0.95) == 0.95
    assert EQUAL.p_value(0.0) == 0.0


def areas_of(values, rng, confidence):
    """Means of values (N, M), resampled alike."""
    again = values[rng.integers(len(values), size=(600, len(values)))].mean(axis=1)
    return {
        str(k): Area(
            estimate=Estimate.of(values[:, k].mean(), again[:, k], samples=len(values), confidence=confidence),
            replicates=again[:, k],
            per_sample=None,
            kind="completeness",
            higher_is_better=True,
        )
        for k in range(values.shape[1])
    }


@pytest.mark.slow
def test_the_level_holds_for_whoever_stops_when_something_is_decided():
    """Of 150 studies of three equal methods, a twentieth may find a difference; unpaid for, far more do."""
    looks, rng, studies = Looks((64, 128, 192, 320)), np.random.default_rng(5), 150
    alarms, held = {True: 0, False: 0}, 0
    for _ in range(studies):
        values, seen, holds = rng.gamma(2.0, size=(320, 3)) - 2.0, {True: False, False: False}, True
        for size in looks.sizes:
            areas = areas_of(values[:size], rng, looks.confidence(0.95))
            for paid in alarms:
                pairs = compare_areas({"m": areas}, looks=looks if paid else ONE_LOOK).pairs
                seen[paid] |= any(pair.decided for pair in pairs)
                assert all((pair.difference.p < 0.05) == pair.decided for pair in pairs)
            holds &= not areas["0"].estimate.decided
        alarms = {paid: alarms[paid] + seen[paid] for paid in alarms}
        held += holds
    assert alarms[True] / studies <= 0.09  # two standard errors above 5%
    assert alarms[False] / studies >= 0.10
    assert held / studies >= 0.91  # at all looks at once
