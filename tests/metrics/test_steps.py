"""Steps of a ranking: schedules that match, effects from two sides, and soundness and completeness with chance at ½."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twinlens as tl
from twinlens.metrics.steps import STEPS, Steps, _hidden, step_schedules
from twinlens.probing.probe import probe

INPUTS = torch.randn(12, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = [1] * 12


def linear(x):
    """Two classes whose log-odds are the sum of the features."""
    total = x.sum(dim=1)
    return torch.stack([torch.zeros_like(total), total], dim=1)


def read(model, inputs, maps, steps=STEPS):
    tables = [
        probe(model, inputs, LABELS[: len(inputs)], maps, schedule=schedule, imputer=tl.ConstantImputer(0.0))
        for schedule in step_schedules(inputs[0].numel(), steps)
    ]
    return Steps.of(*tables)


def slow_soundness(steps):
    """Return what `soundness` ends with, one pair of steps at a time."""
    result = []
    for effects, attribution, sizes in zip(steps.effects, steps.attribution, steps.sizes, strict=True):
        value = 0.0
        for k, own in enumerate(effects / sizes):
            others = [
                (other, size) for i, (other, size) in enumerate(zip(effects / sizes, sizes, strict=True)) if i != k
            ]
            beaten = sum(size * (1.0 if own > other else 0.5 if own == other else 0.0) for other, size in others)
            value += attribution[k] * beaten / sum(size for _, size in others)
        result.append(value)
    return np.array(result)


@given(features=st.integers(1, 3000), steps=st.integers(1, 40))
def test_both_sweeps_cut_the_features_at_the_same_positions(features, steps):
    joining, leaving = step_schedules(features, steps)
    kept = [features - round(features * level) for level in joining.levels]
    removed = [round(features * level) for level in leaving.levels]
    assert kept[:-1] == removed[1:]
    assert (removed[0], kept[-1]) == (0, features)
    assert len(kept) == min(features, steps)
    sizes = np.diff([0, *kept])
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("features", [30, 50, 784, 1024, 50176])
def test_the_levels_of_road_are_among_them(features):
    road = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}
    joining, leaving = step_schedules(features)
    assert road <= set(joining.levels)
    assert road <= set(leaving.levels)


def test_effects_of_a_linear_model_are_the_sums_of_its_features():
    maps = torch.rand(12, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    steps = read(linear, INPUTS, maps)
    order = torch.argsort(-maps, dim=1)
    sums = INPUTS.gather(1, order).reshape(12, 20, 2).sum(dim=2)
    assert steps.effects == pytest.approx(sums.numpy(), abs=1e-9)
    shares = maps.gather(1, order).reshape(12, 20, 2).sum(dim=2) / maps.sum(dim=1, keepdim=True)
    assert steps.attribution == pytest.approx(shares.numpy())


def test_effects_of_pairs_are_shapley_values():
    """Of two features that matter only together, one in the first step and one in the last, each gets half."""

    def product(x):
        both = 3 * x[:, 0] * x[:, 39]
        return torch.stack([torch.zeros_like(both), both], dim=1)

    maps = torch.linspace(1.0, 0.1, 40, dtype=torch.float64).repeat(12, 1)
    steps = read(product, torch.ones(12, 40, dtype=torch.float64), maps, steps=4)
    # The first and the last step are seen from one side, from which the whole product shows.
    assert steps.effects[0] == pytest.approx([3, 0, 0, 3])
    swapped = maps.clone()
    swapped[:, [0, 15]], swapped[:, [39, 25]] = maps[:, [15, 0]], maps[:, [25, 39]]
    assert read(product, torch.ones(12, 40, dtype=torch.float64), swapped, steps=4).effects[0] == pytest.approx(
        [0, 1.5, 1.5, 0]
    )


def test_soundness_equals_the_slow_reference():
    maps = torch.rand(12, 40, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for count in (3, 20, 33):
        steps = read(linear, INPUTS, maps, steps=count)
        assert steps.soundness()[:, -1] == pytest.approx(slow_soundness(steps))


def test_a_uniform_map_has_exactly_chance():
    steps = read(linear, INPUTS, torch.ones(12, 40))
    assert steps.soundness()[:, -1] == pytest.approx(np.full(12, 0.5))


def test_reversing_the_effects_mirrors_soundness():
    maps = torch.rand(12, 40, generator=torch.Generator().manual_seed(3))
    one, other = read(linear, INPUTS, maps), read(lambda x: linear(-x), INPUTS, maps)
    assert one.soundness()[:, -1] + other.soundness()[:, -1] == pytest.approx(np.ones(12))


def test_the_best_map_reaches_one():
    maps = torch.zeros(12, 40)
    maps.scatter_(1, INPUTS.topk(2, dim=1).indices, 1.0)
    steps = read(linear, INPUTS, maps)
    assert steps.soundness()[:, -1] == pytest.approx(np.ones(12))


def test_completeness_of_single_features_is_the_share_of_the_positive_effects():
    steps = read(linear, INPUTS, INPUTS.clamp(min=0), steps=40)
    share = steps.completeness()
    assert share[:, -1] == pytest.approx(np.ones(12))
    positive = np.sort(np.maximum(steps.effects, 0), axis=1)[:, ::-1]
    # The map ranks by value, and so no other order of the same steps includes more.
    assert share[:, 9] == pytest.approx(positive[:, :10].sum(axis=1) / positive.sum(axis=1))


def test_information_adds_what_cancels_between_neighbours():
    values = torch.tensor([[6.0, 2.0, -3.0, -1.0, 1.0, 1.0, 2.0, 0.0]], dtype=torch.float64)
    steps = read(linear, values, torch.arange(8.0, 0.0, -1.0)[None], steps=4)
    assert steps.effects[0] == pytest.approx([8, -4, 2, 2])
    # The first pair hides 4, the second 2, the third nothing; each step takes half of the mean of its pairs, times √2.
    root = np.sqrt(2)
    assert steps.information[0] == pytest.approx([8 + root, 1.5 * root, 2 + root / 2, 2])
    alone = read(linear, values, torch.arange(8.0, 0.0, -1.0)[None], steps=8)
    assert alone.information[0] == pytest.approx(np.maximum(alone.effects[0], 0))


def test_what_cancels_counts_as_far_as_both_sides_see_it():
    sides, sizes = np.array([[[3.0, -2.0, 1.0]], [[3.0, -1.0, -4.0]]]), np.full((1, 3), 2.0)
    assert _hidden(sides, sizes)[0] == pytest.approx([np.sqrt(2) / 4, np.sqrt(2) / 4, 0])
    assert not _hidden(sides, sizes / 2).any()


def test_chance_is_one_half_for_random_maps():
    maps = torch.rand(400, 40, generator=torch.Generator().manual_seed(4), dtype=torch.float64) ** 4
    inputs = torch.randn(400, 40, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    tables = [
        probe(linear, inputs, [1] * 400, maps, schedule=schedule, imputer=tl.ConstantImputer(0.0))
        for schedule in step_schedules(40)
    ]
    steps = Steps.of(*tables)
    error = steps.soundness()[:, -1].std() / 20
    assert abs(steps.soundness()[:, -1].mean() - 0.5) < 3 * error
    area = np.concatenate([np.zeros((400, 1)), steps.completeness()], axis=1)
    area = (area[:, 1:] + area[:, :-1]).mean(axis=1) / 2
    assert abs(area.mean() - 0.5) < 3 * area.std() / 20


def test_a_map_without_attribution_has_no_soundness():
    maps = torch.zeros(12, 40)
    maps[1:] = 1.0
    steps = read(linear, INPUTS, maps)
    assert np.isnan(steps.soundness()[0]).all()
    assert np.isfinite(steps.soundness()[1:]).all()


def test_other_tables_are_refused():
    maps = torch.rand(12, 40)
    joining, leaving = (
        probe(linear, INPUTS, LABELS, maps, schedule=schedule, imputer=tl.ConstantImputer(0.0))
        for schedule in step_schedules(40)
    )
    with pytest.raises(ValueError, match="`opposite`"):
        Steps.of(joining, joining)
    with pytest.raises(ValueError, match="`opposite`"):
        Steps.of(joining, leaving.take(range(3)))
