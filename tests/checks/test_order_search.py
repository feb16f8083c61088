"""The search for an order, against all orders there are."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlens.checks.order_search import search_order


def table_of(seed, features):
    """A score for every set, drawn at random: no structure helps a search."""
    return np.random.default_rng(seed).normal(size=2**features)


def scorer(table):
    def score(sets):
        assert len({int(size) for size in sets.sum(axis=1)}) == 1
        return table[sets @ 2 ** np.arange(sets.shape[1])]

    return score


def value_of(order, table, weights):
    sets = itertools.accumulate(order, lambda there, feature: there + 2**feature, initial=0)
    return sum(weights[size] * table[one] for size, one in enumerate(sets) if size)


def drawn(seed=0):
    return np.random.default_rng(seed)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_a_beam_as_wide_as_there_are_sets_finds_the_best_order(seed, features):
    table, weights = table_of(seed, features), drawn(seed).random(features + 1)
    found = search_order(scorer(table), weights, width=2**features, generator=drawn())
    best = max(value_of(order, table, weights) for order in itertools.permutations(range(features)))
    assert found.score == pytest.approx(best)
    assert value_of(found.order, table, weights) == pytest.approx(best)
    assert sorted(found.order) == list(range(features))


def test_wider_beams_cost_more_and_never_find_less_than_a_single_order():
    features, weights = 8, np.ones(9) / 8
    for seed in range(5):
        table = table_of(seed, features)
        found = {width: search_order(scorer(table), weights, width=width, generator=drawn()) for width in (1, 4, 256)}
        assert found[1].calls == features * (features + 1) / 2
        assert found[1].calls < found[4].calls < found[256].calls
        assert found[256].score >= max(found[1].score, found[4].score) - 1e-12
        assert found[256].calls == 2**features - 1  # no set is scored twice


def test_sizes_without_a_weight_still_guide():
    """Only the pair counts, and single features tell which pair: greedy finds it."""
    worth = np.array([0.1, 3.0, 0.2, 2.0])
    found = search_order(lambda sets: sets @ worth, np.array([0, 0, 1.0, 0, 0]), width=1, generator=drawn())
    assert set(found.order[:2]) == {1, 3}
    assert found.calls == 4 + 3  # nothing behind the last size that counts is asked


def test_equal_scores_are_decided_by_the_seed():
    orders = [
        search_order(lambda sets: np.zeros(len(sets)), np.ones(6), width=2, generator=drawn(seed)).order
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
