"""Agreement of rankings: against SciPy, and verdicts counted by hand."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from twinlens.checks.rank_agreement import VerdictChanges, kendall
from twinlens.statistics.bootstrap import Area
from twinlens.support.estimate import Estimate

NAMES = {"soundness_rank": "soundness", "completeness_share": "completeness"}


def areas_of(values, spread=0.001, seed=0):
    draw = np.random.default_rng(seed)
    areas = {}
    for name, value in values.items():
        replicates = value + spread * draw.normal(size=200)
        estimate = Estimate.of(value, replicates, samples=100)
        areas[name] = Area(
            estimate=estimate, replicates=replicates, per_sample=None, kind="soundness_rank", higher_is_better=True
        )
    return areas


@pytest.mark.parametrize("seed", range(5))
def test_tau_is_that_of_scipy_also_with_ties(seed):
    draw = np.random.default_rng(seed)
    one, other = (dict(zip("abcdef", np.round(draw.random(6), 1), strict=True)) for _ in range(2))
    found = kendall(areas_of(one), areas_of(other, seed=1))
    assert found.value == pytest.approx(kendalltau(list(one.values()), list(other.values())).statistic)
    assert -1 <= found.low <= found.high <= 1


def test_the_same_order_is_one_and_the_opposite_minus_one():
    values = {"a": 0.1, "b": 0.5, "c": 0.9}
    assert kendall(areas_of(values), areas_of(values, seed=1)).value == 1
    assert kendall(areas_of(values), areas_of({name: -value for name, value in values.items()})).value == -1
    # Where resamples change the order, the interval says so.
    unsure = kendall(areas_of(values), areas_of({"a": 0.5, "b": 0.501, "c": 0.9}, spread=0.05))
    assert unsure.value == 1
    assert unsure.low < 0.9


def test_the_order_of_methods_does_not_matter():
    one, other = areas_of({"a": 0.1, "b": 0.5, "c": 0.3}), areas_of({"a": 0.2, "b": 0.1, "c": 0.4})
    assert kendall(one, dict(reversed(other.items()))).value == kendall(one, other).value


def test_verdicts_stay_or_are_reversed_or_lost():
    before = {"soundness_rank": areas_of({"a": 0.9, "b": 0.5, "c": 0.1, "d": 0.1001})}
    after = {"soundness_rank": areas_of({"a": 0.9, "b": 0.3, "c": 0.5, "d": 0.8999}, seed=1)}
    found = VerdictChanges.between(before, after)
    pairs = [{(pair.first, pair.second) for pair in kind} for kind in (found.same, found.reversed, found.lost)]
    # c and d are alike before, and no verdict that could change.
    assert pairs == [{("a", "b"), ("a", "c")}, {("b", "c"), ("b", "d")}, {("a", "d")}]
    assert found.decided == 5
    assert found.share(found.reversed) == pytest.approx(2 / 5)
    assert found.describe(NAMES) == (
        "2 of 5 verdicts are reversed: b over c in soundness, b over d in soundness; 1 is no longer decided"
    )
    assert (found.without(()), found.without(("d",)), found.without(("b",))) == (2, 1, 0)


def test_without_decided_verdicts_there_is_no_share():
    same = {"soundness_rank": areas_of({"a": 0.5, "b": 0.5})}
    found = VerdictChanges.between(same, same)
    assert found.share(found.same) is None
    assert found.describe(NAMES) == "none of 0 verdicts is reversed; 0 are no longer decided"
