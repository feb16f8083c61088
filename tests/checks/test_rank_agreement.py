"""Agreement of rankings: against SciPy, and verdicts counted by hand."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import kendalltau

from twinlens.checks.rank_agreement import VerdictChanges, kendall
from twinlens.statistics.bootstrap import Area
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import draw

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
    assert found.describe(NAMES) == "there is no verdict to reverse"


def measured_areas(values):
    """Areas that are means of samples, from values (N, M)."""
    ids = [str(k) for k in range(len(values))]
    counts = draw(ids, 300, 0)
    areas = {}
    for k, column in enumerate(values.T):
        replicates = counts @ column / len(ids)
        estimate = Estimate.of(column.mean(), replicates, samples=len(ids))
        areas[str(k)] = Area(
            estimate=estimate, replicates=replicates, per_sample=column, kind="soundness_rank", higher_is_better=True
        )
    return areas


def test_resamples_and_verdicts_are_those_of_loops():
    """Each resample by SciPy; each verdict from paired differences, all pairs together, with draws of its own."""
    draws = np.random.default_rng(0)
    means = np.array([[0.9, 0.7, 0.5, 0.3, 0.31], [0.8, 0.1, 0.5, 0.7, 0.49]])
    one, other = (own + 0.2 * draws.normal(size=(200, 1)) + 0.2 * draws.normal(size=(200, 5)) for own in means)
    areas = measured_areas(one), measured_areas(other)
    counts = draw([str(k) for k in range(200)], 300, 0)
    expected = [kendalltau(row @ one, row @ other).statistic for row in counts]
    np.testing.assert_allclose(kendall(*areas).replicates, expected, atol=1e-12)

    def decide(values):
        rows = [draws.integers(200, size=200) for _ in range(500)]
        pairs = {(str(a), str(b)): values[:, a] - values[:, b] for a, b in combinations(range(5), 2)}
        distances = np.array([[abs(own[row].mean() - own.mean()) for own in pairs.values()] for row in rows])
        units = np.sqrt((distances**2).mean(axis=0))
        least = units * np.quantile((distances / units).max(axis=1), 0.95)
        return {
            pair: np.sign(own.mean()) * (abs(own.mean()) > end)
            for (pair, own), end in zip(pairs.items(), least, strict=True)
        }

    before, after = decide(one), decide(other)
    found = VerdictChanges.between(*({"soundness_rank": own} for own in areas))
    for kind, change in (("same", 1), ("lost", 0), ("reversed", -1)):
        by_hand = {pair for pair, sign in before.items() if sign and sign * after[pair] == change}
        assert by_hand
        assert {(pair.first, pair.second) for pair in getattr(found, kind)} == by_hand, kind


def coverage(gap, simulations=100, samples=100, methods=6):
    """How often the interval holds the tau of the true means, which differ by about `gap` standard deviations."""
    draws, hits = np.random.default_rng(1), 0
    for _ in range(simulations):
        one = gap * draws.normal(size=methods)
        other = 0.7 * (one + gap * draws.normal(size=methods))
        noise = 0.5 * draws.normal(size=(samples, 1))
        found = kendall(*(measured_areas(own + noise + draws.normal(size=(samples, methods))) for own in (one, other)))
        hits += found.low <= kendalltau(one, other).statistic + 1e-9 <= found.high + 2e-9
    return hits / simulations


def test_the_interval_holds_unless_methods_are_tied():
    """Where methods are tied, any order is as good, and the bootstrap knows one of them too well: docs state it."""
    assert coverage(0.3) >= 0.93  # standard errors are 0.1
    assert 0.6 < coverage(0.01) < 0.9
