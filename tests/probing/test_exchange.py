"""The exchanged control: who gets whose map, and on which samples."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twinlens as tl
from twinlens.probing.exchange import draw_controlled, draw_partners, exchange_groups
from twinlens.support.randomness import drawn_order

CLASSES = st.lists(st.integers(0, 4), min_size=2, max_size=60)
LABELS = np.arange(100) % 7


def names(count):
    return [f"sample {k}" for k in range(count)]


@given(labels=CLASSES, seed=st.integers(0, 3))
def test_everybody_gets_the_map_of_another_and_of_another_class_where_there_is_one(labels, seed):
    partners = draw_partners(names(len(labels)), labels, seed=seed)
    assert sorted(partners) == list(range(len(labels)))
    assert (partners != np.arange(len(labels))).all()
    largest = np.bincount(labels).max()
    met_their_own = (np.array(labels)[partners] == labels).sum()
    assert met_their_own == max(0, 2 * largest - len(labels))  # no exchange can do with fewer


@given(labels=CLASSES, seed=st.integers(0, 3))
def test_two_swap_their_maps_and_three_of_an_odd_number_take_turns(labels, seed):
    ids = names(len(labels))
    partners = draw_partners(ids, labels, seed=seed)
    odd = np.flatnonzero(partners[partners] != np.arange(len(labels)))
    assert len(odd) == 3 * (len(labels) % 2)
    groups = exchange_groups(ids, labels, seed=seed)
    assert sorted(Counter(groups.values()).values()) == [2] * ((len(labels) - len(odd)) // 2) + [3] * (len(odd) // 3)
    assert all(groups[ids[k]] == groups[ids[partner]] for k, partner in enumerate(partners))


def test_samples_that_exchange_maps_are_controlled_together():
    ids, labels = names(101), np.arange(101) % 7
    groups = exchange_groups(ids, labels, seed=3)
    sizes = Counter(groups.values())
    drawn = Counter(groups[ids[k]] for k in draw_controlled(ids, labels, 0.5, seed=3))
    assert sum(drawn[name] < sizes[name] for name in drawn) <= 1


@given(labels=CLASSES, order=st.randoms(use_true_random=False))
def test_the_order_of_the_samples_changes_nothing(labels, order):
    ids, places = names(len(labels)), list(range(len(labels)))
    order.shuffle(places)
    before = draw_partners(ids, labels, seed=0)
    after = draw_partners([ids[k] for k in places], [labels[k] for k in places], seed=0)
    assert [ids[before[k]] for k in places] == [ids[places[k]] for k in after]


def test_partners_come_from_all_other_classes():
    labels = np.repeat(np.arange(10), 50)
    partners = draw_partners(names(500), labels, seed=0)
    seen = np.array([np.bincount(labels[partners[labels == k]], minlength=10) for k in range(10)])
    assert (np.diag(seen) == 0).all()
    # Fifty draws from nine classes: five or six each, and no class is left out or takes over.
    assert seen[~np.eye(10, dtype=bool)].min() >= 1
    assert seen.max() <= 15


@pytest.mark.parametrize("count", [128, 192, 576])
def test_more_samples_leave_whole_blocks_as_they_are(count):
    """The first samples that the seed draws exchange their maps among themselves, however many follow."""
    ids, labels = names(700), np.arange(700) % 7
    first = np.array(drawn_order(ids, seed=1)[:count])
    few, many = (draw_partners([ids[k] for k in some], labels[some], seed=1) for some in (first, np.arange(700)))
    before = {ids[k]: ids[first[partner]] for k, partner in zip(first, few, strict=True)}
    assert {name: ids[many[ids.index(name)]] for name in before} == before
    few, many = (draw_controlled([ids[k] for k in some], labels[some], 0.5, seed=1) for some in (first, np.arange(700)))
    controlled = {ids[first[k]] for k in few}
    assert {ids[k] for k in many} & {ids[k] for k in first} == controlled
    assert len(controlled) == count // 2


def test_another_seed_is_another_exchange():
    labels = np.arange(40) % 4
    one, other = (draw_partners(names(40), labels, seed=seed) for seed in (0, 1))
    assert (one != other).mean() > 0.5


def test_a_larger_share_only_adds_samples():
    half, most = (set(draw_controlled(names(100), LABELS, share, seed=3).tolist()) for share in (0.5, 0.8))
    assert (len(half), len(most)) == (50, 80)
    assert half < most
    assert draw_controlled(names(100), LABELS, 1.0, seed=3).tolist() == list(range(100))
    assert len(draw_controlled(names(3), LABELS[:3], 0.01, seed=3)) == 1


def test_exchange_maps():
    maps, labels = torch.arange(12.0).reshape(6, 2), [0, 0, 0, 1, 1, 1]
    exchanged = tl.probing.exchange_maps(maps, labels, ids=list("abcdef"), seed=5)
    partners = draw_partners(list("abcdef"), labels, seed=5)
    assert torch.equal(exchanged, maps[partners])
    assert set(exchanged[:3, 0].tolist()) == {6.0, 8.0, 10.0}
    with pytest.raises(ValueError, match="`labels` must hold one number for each of the 6 samples; got shape"):
        tl.probing.exchange_maps(maps, [0, 1])
    with pytest.raises(ValueError, match="at least two samples"):
        tl.probing.exchange_maps(maps[:1], [0])


def test_two_samples_exchange_their_maps():
    assert tl.probing.exchange_maps(torch.tensor([[1.0], [2.0]]), [0, 1]).flatten().tolist() == [2.0, 1.0]
    with pytest.raises(ValueError, match="`maps` must be finite; some contain NaN or infinity"):
        tl.probing.exchange_maps(torch.tensor([[1.0], [torch.nan]]), [0, 1])
    with pytest.raises(ValueError, match="`ids` must name at least two samples"):
        draw_partners(["a"], [0], seed=0)
