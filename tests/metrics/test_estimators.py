import dataclasses
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import twinlens as tl
from twinlens.metrics.curves import loss_area
from twinlens.metrics.estimators import extrapolation_weights, of_pairs, opposite_schedule, step_effects
from twinlens.metrics.soundness_curve import soundness_area

ZERO = tl.ConstantImputer(0.0)


def pairwise_game(seed, features):
    """A score with interactions of pairs and no others; the log-odds of class 0 are the score."""
    rng = np.random.default_rng(seed)
    alone, together = (
        torch.from_numpy(rng.normal(size=features)),
        torch.from_numpy(rng.normal(size=(features, features))),
    )

    def score(x):
        return x @ alone + torch.einsum("nf,fg,ng->n", x, together, x)

    return score, lambda x: torch.stack([score(x), torch.zeros(len(x), dtype=x.dtype)], dim=1)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([(0.75, 0.5, 0.25, 0.0), (0.6, 0.4, 0.0)]))
def test_effects_are_shapley_values_of_steps_where_pairs_interact(seed, levels):
    """By all orders of the steps; the first and the last one are seen from one side only."""
    score, model = pairwise_game(seed, 8)
    rng = np.random.default_rng(seed)
    inputs = torch.from_numpy(rng.normal(size=(3, 8)) * 0.3)
    maps = torch.from_numpy(rng.random((3, 8)))
    curve = tl.soundness(model, inputs, [0] * 3, maps, levels=levels, imputer=ZERO, estimator="two_sided")
    every = np.concatenate([curve.table.logit, curve.opposite.logit], axis=1)
    effects = step_effects(curve.table, curve.opposite) * np.ptp(every, axis=1, keepdims=True)
    kept = 8 - curve.table.removed[0]
    for i in range(3):
        order = np.argsort(-maps[i].numpy())
        steps = [order[a:b] for a, b in zip([0, *kept[:-1]], kept, strict=True)]
        for k in range(1, len(steps) - 1):
            gains = []
            for others in permutations(range(len(steps))):
                before = [f for step in others[: others.index(k)] for f in steps[step]]
                keep = torch.zeros(2, 8, dtype=torch.float64)
                keep[:, before] = 1
                keep[1, steps[k]] = 1
                gains.append(torch.diff(score(inputs[i] * keep)).item())
            assert effects[i, k] == pytest.approx(np.mean(gains), abs=1e-9)


def test_partners_that_say_nothing_alone_are_found():
    """Class 0 needs both of two features; the paper's estimator sees only the one that comes second."""
    x = torch.ones(4, 10, dtype=torch.float64)

    def model(x):
        both = 4 * x[:, 0] * x[:, 5]
        return torch.stack([both, torch.ones_like(both)], dim=1)

    maps = torch.tensor([10.0, 9, 8, 7, 6, 5, 1, 1, 1, 1]).expand(4, -1)  # the partners at ranks 1 and 6
    levels = tuple(k / 10 for k in range(9, -1, -1))
    options = {"imputer": ZERO, "levels": levels}
    two = tl.soundness(model, x, [0] * 4, maps, estimator="two_sided", **options)
    one = tl.soundness(model, x, [0] * 4, maps, performance="logit", **options)
    false = two.judged_false[0]
    assert (~false).nonzero()[0].tolist() == [0, 5]
    assert (~one.judged_false[0]).nonzero()[0].tolist() == [5]
    assert two.values[-1] == pytest.approx(15 / 49)


def test_the_opposite_sweep_removes_what_the_steps_add():
    for features, rounding in ((200, "round"), (30, "floor"), (7, "round"), (1, "round")):
        schedule = tl.probing.Schedule(
            by="area", order="lerf", levels=tl.metrics.PROTOCOLS["paper"].levels, rounding=rounding
        )
        opposite = opposite_schedule(schedule, features)
        assert len(opposite.levels) <= len(schedule.levels)
        assert opposite.levels[0] == 0
        x = torch.rand(2, features, dtype=torch.float64)

        def model(x):
            return torch.stack([x.sum(1), 0 * x[:, 0]], dim=1)

        added = tl.probe(model, x, [0, 0], x, schedule=schedule, imputer=ZERO)
        removed = tl.probe(model, x, [0, 0], x, schedule=opposite, imputer=ZERO)
        kept = set((features - added.removed[0, :-1]).tolist())
        assert set(removed.removed[0].tolist()) == kept | {0}
        assert np.isfinite(step_effects(added, removed)).all()


def calls(**options):
    rows = []

    def model(x):
        rows.append(len(x))
        return torch.stack([x.sum(1), 0 * x[:, 0]], dim=1)

    x = torch.rand(5, 200, dtype=torch.float64)
    curve = tl.soundness(model, x, [0] * 5, x, imputer=ZERO, **options)
    return sum(rows) / 5, curve


def test_two_thirds_of_the_papers_calls_by_default():
    once, paper = calls()
    both, curve = calls(estimator="two_sided")
    assert (once, both) == (98, 64)
    assert np.allclose(curve.levels, [*np.arange(98, 69, -2) / 100, *np.arange(66, 0, -4) / 100])
    assert set(curve.levels) < set(paper.levels)  # so that a run that has probed one has probed half of the other
    assert (curve.estimator, curve.measure) == ("two_sided", "accuracy")
    twice, _ = calls(estimator="two_sided", levels=paper.levels)
    assert twice == 2 * 98
    assert calls(estimator="two_sided", protocol="soco")[0] == 62
    few = dataclasses.replace(tl.metrics.PROTOCOLS["paper"], levels=(0.9, 0.5, 0.1))
    assert calls(estimator="two_sided", protocol=few)[0] == 6


def test_weights_are_those_of_a_line_over_the_root_of_the_step():
    assert extrapolation_weights(1) == (1, 0)
    assert extrapolation_weights(4) == pytest.approx((1 + (2 - 1) / (8**0.5 - 2), -(2 - 1) / (8**0.5 - 2)))
    for features in (1.0, 3.5, 31.0):
        single, joined = extrapolation_weights(features)
        line = np.polynomial.Polynomial([0.3, 0.1])
        assert single * line(features**0.5) + joined * line((2 * features) ** 0.5) == pytest.approx(line(1.0))


def test_a_step_is_part_of_two_pairs():
    judged = np.array([[True, True, False], [False, True, False]])
    assert np.array_equal(of_pairs(judged), [[1, 1, 0.5, 0], [0, 0.5, 0.5, 0]])
    assert np.array_equal(of_pairs(judged[:, :1]), [[1, 1], [0, 0]])


def in_steps_of_two(weights, **options):
    """A linear model of eight features, which a map of 8, 7, … 1 adds two at a time."""

    def model(x):
        score = x @ torch.tensor(weights, dtype=torch.float64)
        return torch.stack([score, torch.zeros_like(score)], dim=1)

    x, maps = torch.ones(2, 8, dtype=torch.float64), torch.arange(8.0, 0.0, -1.0).expand(2, -1)
    options = {"levels": (0.75, 0.5, 0.25, 0.0)} | options
    return tl.soundness(model, x, [0] * 2, maps, imputer=ZERO, estimator="two_sided", **options)


W = 1 + (2**0.5 - 1) / (2 - 2**0.5)  # of steps of two features; 1 - W of pairs of them


def test_extrapolation_by_hand():
    """Steps 2 and 3 are false, and so is the pair of both; other pairs are not. They add 11 and 7 to the 15 before."""
    weights = [4.0, 0, 0, 0, 0, 0, 2, 2]
    plain, found = (in_steps_of_two(weights, extrapolate=each) for each in (False, True))
    for curve, factor in ((plain, 1), (found, W + (1 - W) / 2)):
        false = factor * np.array([0, 11 / 26, 18 / 33, 18 / 36])
        np.testing.assert_allclose(curve.per_sample, [1 - false] * 2)
        np.testing.assert_allclose(curve.values, 1 - false)
        assert curve.judged_false[0].tolist() == [False, True, True, False]
    assert in_steps_of_two(weights).extrapolate
    steps = found.in_steps()
    assert np.array_equal(steps.values, plain.values)
    assert np.array_equal(steps.per_sample, plain.per_sample)
    assert np.array_equal(steps.replicate(np.ones((1, 2)))[1][0], plain.values)
    only = in_steps_of_two(weights, levels=(0.5,))  # there is no pair
    assert np.array_equal(only.values, in_steps_of_two(weights, levels=(0.5,), extrapolate=False).values)


def test_the_threshold_grows_with_the_root_of_the_step():
    """A step of 25% has to move √12.5 times what one of 2% has to; the second one moves 0.03 of the range."""
    weights = [4.7, 0, 0.3, 0, 5, 0, 0, 0]  # log-odds go 4.7, 5, 10, 10, and 10, 5.3, 5, 0
    for epsilon, false in ((0.8 * 0.03 / 12.5**0.5, False), (1.2 * 0.03 / 12.5**0.5, True)):
        curve = in_steps_of_two(weights, epsilon=epsilon)
        assert curve.judged_false[0].tolist() == [False, false, False, True]


def test_steps_need_not_be_even():
    """The step in the middle is twice as large as the others: its threshold is that of 50%, the weights are of 8/3."""
    uneven = {"levels": (0.75, 0.25, 0.0)}
    curve, root = in_steps_of_two([4.0, 0, 0, 0, 0, 0, 2, 2], **uneven), (8 / 3) ** 0.5
    weight = 1 + (root - 1) / (root * (2**0.5 - 1))
    np.testing.assert_allclose(curve.per_sample[0], 1 - weight * np.array([0, 18 / 33, 18 / 36]))
    for factor, false in ((0.9, False), (1.1, True)):
        curve = in_steps_of_two([4.7, 0, 0.3, 0, 0, 0, 5, 0], epsilon=factor * 0.3 / 5.3 / 25**0.5, **uneven)
        assert curve.judged_false[0].tolist() == [False, false, False]


def test_a_mean_stays_within_its_bounds_and_a_sample_need_not():
    """The first step alone is false, all of it: 1 - W is no share, and 0 the nearest that is."""
    curve = in_steps_of_two([0.0, 0, 4, 0, 0, 2, 2, 2])
    np.testing.assert_allclose(curve.per_sample[:, 0], 1 - W)
    assert curve.values[0] == 0
    assert curve.replicate(np.ones((1, 2)))[1][0, 0] == 0
    np.testing.assert_allclose(curve.values[-1], 1 - W * 15 / 36)
    np.testing.assert_allclose(curve.false_share, W * 15 / 36)
    alternating = in_steps_of_two([0.0, 0, 4, 0, 0, 0, 0, 4])
    np.testing.assert_allclose(alternating.per_sample[:, -1], 1 - W * 22 / 36)  # below zero
    assert (alternating.false_share == 1).all()


def random_case(features, samples=30, seed=0):
    rng = np.random.default_rng(seed)
    weights = torch.from_numpy(rng.normal(size=features) * (rng.random(features) < 0.4))
    x, maps = torch.from_numpy(rng.normal(size=(samples, features))), torch.from_numpy(rng.random((samples, features)))
    return lambda x: torch.stack([x @ weights, 0 * x[:, 0]], dim=1), x, (x @ weights < 0).long(), maps


def test_single_features_need_no_extrapolation():
    options = {"imputer": ZERO, "estimator": "two_sided"}
    for levels in (tuple(k / 20 for k in range(19, -1, -1)), tuple(k / 50 for k in range(49, -1, -1))):
        plain, found = (tl.soundness(*random_case(20), levels=levels, extrapolate=e, **options) for e in (False, True))
        assert np.array_equal(plain.per_sample, found.per_sample)  # with 50 levels some steps are empty
    plain, found = (tl.soundness(*random_case(60), levels=levels, extrapolate=e, **options) for e in (False, True))
    assert not np.allclose(plain.values, found.values)
    paper = [tl.soundness(*random_case(60), imputer=ZERO, extrapolate=e).values for e in (False, True)]
    assert np.array_equal(*paper)


def test_the_area_is_the_mean_over_the_levels_of_the_sweep():
    levels = (0.8, 0.7, 0.6, 0.5, 0.1)
    curve = tl.soundness(*random_case(60), levels=levels, imputer=ZERO, estimator="two_sided")
    between = (curve.values[1:] + curve.values[:-1]) / 2
    assert curve.area() == pytest.approx(between @ -np.diff(levels) / 0.7)
    assert np.array_equal(curve.values, np.clip(curve.values, 0.01, 0.99))  # none had to be kept within [0, 1]
    assert curve.area() == pytest.approx(curve.area_per_sample().mean())
    assert curve.areas(curve.performance[None], curve.values[None])[0] == curve.area()
    assert not curve.by_predictive_level
    top = float(curve.performance.max()) / 2
    by_level = soundness_area(curve.performance, curve.values, high=top)
    assert curve.area(high=top) == by_level != curve.area()
    assert curve.areas(curve.performance[None], curve.values[None], np.array([top]))[0] == by_level
    assert curve.area(low=0.1) == soundness_area(curve.performance, curve.values, low=0.1)
    paper = tl.soundness(*random_case(60), levels=levels, imputer=ZERO)
    assert paper.by_predictive_level
    assert paper.area() == soundness_area(paper.performance, paper.values)
    assert curve.area() == loss_area(curve.levels, curve.values)


def test_a_map_of_zeros_has_no_area():
    model, x, labels, maps = random_case(60)
    maps[3] = 0
    curve = tl.soundness(model, x, labels, maps, imputer=ZERO, estimator="two_sided")
    each = curve.area_per_sample()
    assert np.flatnonzero(np.isnan(each)).tolist() == [3]
    assert curve.area() == pytest.approx(np.nanmean(each))


def test_scale_of_maps_and_of_log_odds_change_nothing():
    rng = np.random.default_rng(0)
    weights, x = torch.from_numpy(rng.normal(size=40)), torch.from_numpy(rng.normal(size=(20, 40)))
    maps = torch.from_numpy(rng.random((20, 40)))

    def model(scale):
        return lambda x: torch.stack([scale * (x @ weights), torch.zeros(len(x), dtype=x.dtype)], dim=1)

    options = {"imputer": ZERO, "estimator": "two_sided"}
    one = tl.soundness(model(0.5), x, [0] * 20, maps, **options)
    assert 0 < one.values[-1] < 1
    for other in (tl.soundness(model(0.01), x, [0] * 20, maps, **options),
                  tl.soundness(model(0.5), x, [0] * 20, 7 * maps, **options)):  # fmt: skip
        assert np.array_equal(one.judged_false, other.judged_false)
        assert np.allclose(one.values, other.values)


def test_a_model_that_never_moves_makes_everything_false():
    x = torch.rand(3, 20, dtype=torch.float64)
    curve = tl.soundness(lambda x: torch.zeros(len(x), 2), x, [0, 1, 0], x, imputer=ZERO, estimator="two_sided")
    assert curve.judged_false.all()
    assert (curve.values == 0).all()


def test_both_protocols():
    rng = np.random.default_rng(1)
    weights, x = torch.from_numpy(rng.normal(size=(60, 3))), torch.from_numpy(rng.normal(size=(50, 60)))
    labels, maps = (x @ weights).argmax(1), torch.from_numpy(rng.random((50, 60)))
    arguments = (lambda x: x @ weights, x, labels, maps)
    options = {"imputer": ZERO, "estimator": "two_sided"}
    paper, soco = (tl.soundness(*arguments, protocol=p, **options) for p in ("paper", "soco"))
    assert soco.opposite.settings.schedule.rounding == "round"
    assert paper.values[5] != soco.values[5]
    assert not soco.judged_false[:, soco.performance <= 0.04].any()
    late = tl.soundness(
        *arguments, protocol=dataclasses.replace(tl.metrics.PROTOCOLS["soco"], start_level=0.6), **options
    )
    before = late.performance <= 0.6
    assert before.any()
    assert np.allclose(late.per_sample[:, : int(np.argmin(before))], 1, atol=1e-5)


def test_wrong_second_tables_are_refused():
    x = torch.rand(4, 20, dtype=torch.float64)

    def model(x):
        return torch.stack([x.sum(1), 0 * x[:, 0]], dim=1)

    curve = tl.soundness(model, x, [0] * 4, x, imputer=ZERO, levels=(0.5, 0.2), estimator="two_sided")
    table, opposite = curve.table, curve.opposite
    ask = {"estimator": "two_sided"}
    with pytest.raises(ValueError, match="`opposite` is required for estimator='two_sided'"):
        tl.soundness_from_probes(table, **ask)
    with pytest.raises(ValueError, match="`estimator` must be one of paper, two_sided; got 'better'"):
        tl.soundness_from_probes(table, estimator="better")
    with pytest.raises(ValueError, match="`estimator` must be one of"):
        tl.soundness(model, x, [0] * 4, x, imputer=ZERO, estimator="better")
    reseeded = dataclasses.replace(opposite, settings=dataclasses.replace(opposite.settings, seed=9))
    for wrong in (table, opposite.take([0, 1, 2, 0]), reseeded):
        with pytest.raises(ValueError, match="`opposite` must hold the same samples"):
            tl.soundness_from_probes(table, opposite=wrong, **ask)
    schedule = dataclasses.replace(opposite.settings.schedule, order="lerf")
    wrong = dataclasses.replace(opposite, settings=dataclasses.replace(opposite.settings, schedule=schedule))
    with pytest.raises(ValueError, match="by area, most relevant first"):
        tl.soundness_from_probes(table, opposite=wrong, **ask)


def test_two_sides_of_a_predicted_value():
    x = torch.tensor([[4.0, 3.0, 2.0, 1.0]] * 3) + torch.arange(3.0)[:, None]
    weights = torch.tensor([1.0, 1.0, 0.0, 0.0])
    maps = torch.tensor([[4.0, 3.0, 2.0, 1.0]]).expand(3, -1)  # of which 0.3 lies on what is not read
    curve = tl.soundness(
        lambda x: x @ weights, x, (x @ weights).double(), maps, imputer=ZERO, performance="r2", estimator="two_sided",
        levels=(0.75, 0.5, 0.25, 0.0),
    )  # fmt: skip
    assert curve.values == pytest.approx([1.0, 1.0, 7 / 9, 0.7])
