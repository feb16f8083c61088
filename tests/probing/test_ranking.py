import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.authors import FILE
from twinlens.probing.ranking import (
    ORDERS,
    Schedule,
    check_levels,
    count_removed,
    keep_features,
    kept_mass,
    rank_features,
)
from twinlens.support.randomness import stream

# Few different values, so that ties are frequent.
tied_maps = st.lists(st.integers(0, 4), min_size=1, max_size=40)


def keeps(maps, schedule, *, seed=0):
    maps = torch.as_tensor(maps, dtype=torch.float64)
    ids = [str(i) for i in range(len(maps))]
    ranking = rank_features(maps, ids=ids, seed=seed)
    removed = count_removed(ranking, schedule)
    keep = torch.stack([keep_features(ranking.rank, removed[:, k], schedule.order) for k in range(removed.shape[1])], 1)
    return keep, removed, kept_mass(ranking, removed, schedule.order)


@given(tied_maps, st.integers(0, 9))
def test_the_order_is_that_of_a_stable_sort_of_shuffled_features(values, seed):
    maps = torch.tensor([values], dtype=torch.float64)
    shuffled = torch.randperm(len(values), generator=torch.Generator().manual_seed(stream(seed, "a")))
    order = shuffled[maps[0, shuffled].sort(stable=True).indices]
    ranking = rank_features(maps, ids=["a"], seed=seed)
    assert torch.equal(ranking.rank[0].argsort(), order)
    assert torch.equal(ranking.ascending[0] * maps.max(), maps[0, order])


@given(tied_maps, st.sampled_from(ORDERS), st.sampled_from(["area", "value"]), st.integers(0, 9))
def test_masks_nest_and_masses_are_those_of_the_masks(values, order, by, seed):
    levels = (0.98, 0.9, 0.5, 0.31, 0.3, 0.1, 0.0)
    keep, removed, mass = keeps([values], Schedule(by=by, order=order, levels=levels), seed=seed)
    counts = keep[0].sum(dim=1)
    assert torch.equal(counts, len(values) - removed[0])
    for here, there in zip(keep[0], keep[0, 1:], strict=False):
        smaller, larger = (here, there) if here.sum() <= there.sum() else (there, here)
        assert bool((larger | ~smaller).all())
    scale = max(values) or 1
    for kept, total in zip(keep[0], mass[0], strict=True):
        assert total.item() == pytest.approx(math.fsum(np.array(values)[kept.numpy()] / scale), abs=1e-12)


@given(tied_maps, st.sampled_from(ORDERS))
def test_what_is_removed_first_is_least_or_most_relevant(values, order):
    keep, _, _ = keeps([values], Schedule(by="area", order=order, levels=(0.5,)))
    kept, gone = np.array(values)[keep[0, 0].numpy()], np.array(values)[~keep[0, 0].numpy()]
    if len(gone):
        assert (kept.min() >= gone.max()) if order == "lerf" else (kept.max() <= gone.min())


@given(tied_maps, st.floats(1e-6, 1e6))
def test_scaling_a_map_changes_no_mask(values, factor):
    maps = np.random.default_rng(len(values)).random((1, 30)).astype(np.float32).astype(np.float64)
    for by in ("area", "value"):
        schedule = Schedule(by=by, order="morf", levels=(0.9, 0.5, 0.1))
        one, two = keeps(maps, schedule), keeps(maps * factor, schedule)
        assert torch.equal(one[0], two[0])
        assert torch.allclose(one[2], two[2], rtol=1e-12)


def test_ties_depend_on_seed_and_sample_id_alone():
    maps = torch.zeros(3, 50)
    rank = rank_features(maps, ids=["a", "b", "c"], seed=0).rank
    assert torch.equal(rank_features(maps[1:2], ids=["b"], seed=0).rank, rank[1:2])
    assert not torch.equal(rank[0], rank[1])
    assert not torch.equal(rank_features(maps, ids=["a", "b", "c"], seed=1).rank, rank)
    assert rank.sort(dim=1).values.tolist() == [list(range(50))] * 3


def test_ties_are_broken_without_preference():
    """With two candidates for one place, each gets it about half of the time."""
    ids = [str(i) for i in range(2000)]
    rank = rank_features(torch.ones(2000, 2), ids=ids, seed=3).rank
    assert abs(rank[:, 0].double().mean().item() - 0.5) < 0.05


def test_mass_is_exact_at_the_size_of_an_imagenet_map():
    generator = np.random.default_rng(0)
    values = (generator.pareto(1.5, 224 * 224)).astype(np.float32)
    levels = tuple(p / 100 for p in range(98, 0, -1))
    keep, _, mass = keeps(values[None], Schedule(by="area", order="lerf", levels=levels))
    scaled = values.astype(np.float64) / values.max()
    for kept, total in zip(keep[0].numpy(), mass[0].tolist(), strict=True):
        assert total == pytest.approx(math.fsum(scaled[kept]), rel=1e-12)


@pytest.mark.parametrize("features", [1, 2, 3, 7, 25, 50])
@pytest.mark.parametrize("rounding", ["round", "floor"])
def test_by_area_below_one_something_is_always_kept(features, rounding):
    schedule = Schedule(by="area", order="lerf", levels=(1.0, 0.999, 0.98, 0.5), rounding=rounding)
    _, removed, _ = keeps(torch.rand(1, features), schedule)
    assert removed[0, 0] == features
    assert int(removed[0, 1:].max()) < features


def test_by_value_zero_maps_lose_nothing_and_constant_maps_everything():
    schedule = Schedule(by="value", order="morf", levels=(1.0, 0.9, 0.1, 0.0))
    _, removed, _ = keeps([[0.0] * 5, [3.0] * 5], schedule)
    assert removed.tolist() == [[0, 0, 0, 0], [0, 5, 5, 5]]
    _, removed, _ = keeps([[0.0] * 5], Schedule(by="value", order="lerf", levels=(1.0, 0.5)))
    assert removed.tolist() == [[0, 0]]


def test_streams_differ_by_every_key():
    keys = [(0, "a", 0.5), (1, "a", 0.5), (0, "b", 0.5), (0, "a", 0.25), (0, "a"), (0, "a0.5")]
    assert len({stream(*key) for key in keys}) == len(keys)


def test_schedules_refuse_what_makes_no_sense():
    with pytest.raises(ValueError, match=r"within \[0, 1\]; got 1.2"):
        Schedule(by="area", order="lerf", levels=(1.2, 0.5))
    with pytest.raises(ValueError, match=r"`levels` must increase within \[0, 1\]; got 0.5 then 0.5"):
        Schedule(by="area", order="lerf", levels=(0.5, 0.5))
    with pytest.raises(ValueError, match="at least one level"):
        Schedule(by="area", order="lerf", levels=())
    with pytest.raises(ValueError, match="`order` must be one of lerf, morf; got 'first'"):
        Schedule(by="area", order="first", levels=(0.5,))


def check_masks_of_the_authors_code(stored, names):
    for name in names:
        maps = stored[f"{name}/map"][None].astype(np.float64)
        shape = maps.shape[1:]
        for order in ORDERS:
            area = Schedule(by="area", order=order, levels=tuple(stored["area_ratios"]), rounding="floor")
            keep, _, _ = keeps(maps.reshape(1, -1), area)
            assert np.array_equal(keep[0].numpy().reshape(-1, *shape), stored[f"{name}/area_{order}"])
            # The code counts from the top for morf: its ratio r is our threshold 1 - r.
            ratios = stored["value_ratios"]
            levels = tuple(np.round(1 - ratios, 10)) if order == "morf" else tuple(ratios)
            keep, _, _ = keeps(maps.reshape(1, -1), Schedule(by="value", order=order, levels=levels))
            assert np.array_equal(keep[0].numpy().reshape(-1, *shape), stored[f"{name}/value_{order}"])


def test_masks_are_those_of_the_authors_code():
    check_masks_of_the_authors_code(np.load(FILE), ("u8_16x16", "u8_15x13", "f32_32x32", "f32_exp_24x40"))


absolute_maps = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.3, 4.0, 1e6]), min_size=1, max_size=30)


@given(st.lists(absolute_maps, min_size=1, max_size=3), st.sampled_from(ORDERS))
def test_absolute_thresholds_are_compared_with_values_as_they_are(rows, order):
    """Values equal to a threshold, maps far above 1, and maps of zeros: always the plain comparison."""
    width = min(map(len, rows))
    maps = np.array([row[:width] for row in rows])
    levels = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)
    keep, removed, _ = keeps(maps, Schedule(by="value", order=order, levels=levels, relative=False))
    for k, level in enumerate(levels):
        gone = maps > level if order == "morf" else maps < level
        assert np.array_equal(~keep[:, k].numpy(), gone), level
        assert removed[:, k].tolist() == gone.sum(axis=1).tolist()


@given(st.lists(st.floats(0, 2**20, width=32), min_size=1, max_size=30), st.floats(0, 1, width=32))
def test_absolute_thresholds_of_maps_in_float32(values, level):
    """A threshold that is one of the values, or lies next to one."""
    values = [*values, level]
    keep, _, _ = keeps([values], Schedule(by="value", order="morf", levels=(float(level),), relative=False))
    assert keep[0, 0].tolist() == [value <= level for value in values]


def test_absolute_thresholds_are_not_those_relative_to_the_maximum():
    maps = [[0.2, 0.4, 0.1], [8.0, 4.0, 1.0]]
    levels = (0.9, 0.3)
    absolute = keeps(maps, Schedule(by="value", order="morf", levels=levels, relative=False))[1]
    assert absolute.tolist() == [[0, 1], [3, 3]]
    assert keeps(maps, Schedule(by="value", order="morf", levels=levels))[1].tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
def test_absolute_thresholds_hold_at_any_scale(scale):
    maps = scale * np.array([[0.0, 1.0, 2.0]])
    _, removed, _ = keeps(maps, Schedule(by="value", order="morf", levels=(1.0, 0.5), relative=False))
    assert removed.tolist() == [[2 * (scale > 1)] * 2]


def test_levels_move_away_from_where_they_start():
    assert check_levels("levels", [0.9, 0.5, 0], decreasing=True) == (0.9, 0.5, 0.0)
    assert check_levels("levels", np.array([0.5, 1.0]), decreasing=False) == (0.5, 1.0)
    assert check_levels("levels", (1, 0), decreasing=True, ends=True) == (1.0, 0.0)
    assert check_levels("levels", (0, 1), decreasing=False, ends=True) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("levels", "how", "message"),
    [
        ((), {"decreasing": True}, "`shares` must name at least one level; got none."),
        ((1.0, 0.5), {"decreasing": True}, "`shares` must decrease within [0, 1); got 1."),
        ((0.0, 0.5), {"decreasing": False}, "`shares` must increase within (0, 1]; got 0."),
        ((0.5, 1.5), {"decreasing": False}, "`shares` must increase within (0, 1]; got 1.5."),
        ((-0.5,), {"decreasing": True, "ends": True}, "`shares` must decrease within [0, 1]; got -0.5."),
        ((math.nan,), {"decreasing": True, "ends": True}, "`shares` must decrease within [0, 1]; got nan."),
        (
            (0.2, 0.5),
            {"decreasing": True},
            "`shares` must decrease within [0, 1); got 0.2 then 0.5. Sort them in descending order.",
        ),
        (
            (0.9, 0.5),
            {"decreasing": False},
            "`shares` must increase within (0, 1]; got 0.9 then 0.5. Sort them in ascending order.",
        ),
    ],
)
def test_levels_that_are_refused(levels, how, message):
    with pytest.raises(ValueError, match=r"^`shares`") as caught:
        check_levels("shares", levels, **how)
    assert str(caught.value) == message


@pytest.mark.parametrize("decreasing", [True, False])
def test_a_level_may_not_occur_twice(decreasing):
    with pytest.raises(ValueError, match=r"got 0\.5 then 0\.5"):
        check_levels("levels", (0.5, 0.5), decreasing=decreasing)
