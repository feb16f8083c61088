"""How small a difference between methods the samples of a run can show."""

import numpy as np
import pytest

from twinlens.statistics.power import visible_difference
from twinlens.support.estimate import Estimate


def difference(value, reach):
    return Estimate(value=value, low=value - reach, high=value + reach, samples=50)


def test_it_is_the_median_half_width():
    assert visible_difference([difference(0.5, reach) for reach in (0.1, 0.03, 0.2)]) == pytest.approx(0.1)
    assert visible_difference([difference(-0.5, reach) for reach in (0.1, 0.2)]) == pytest.approx(0.15)


def test_nothing_is_claimed_without_intervals():
    assert visible_difference([]) is None
    assert visible_difference([Estimate(value=0.2, samples=5)]) is None
    assert visible_difference([difference(0.0, 0.0)]) is None  # equal maps
    assert visible_difference([difference(0.0, 0.0), Estimate(value=0.2, samples=5), difference(0.1, 0.04)]) == (
        pytest.approx(0.04)
    )


def test_a_difference_of_this_size_is_decided_in_half_of_the_data_sets_and_a_larger_one_mostly():
    rng, samples = np.random.default_rng(0), 100
    ids = [str(k) for k in range(samples)]
    noise = rng.normal(size=(200, samples))
    estimates = [Estimate.of_mean(values, ids, resamples=200, seed=k) for k, values in enumerate(noise)]
    size = visible_difference(estimates)
    decided = {factor: np.mean([each.low + factor * size > 0 for each in estimates]) for factor in (0.0, 1.0, 1.4)}
    assert decided[0.0] < 0.06
    assert 0.4 < decided[1.0] < 0.6
    assert decided[1.4] > 0.7
