import dataclasses
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import twinlens as tl
from twinlens.metrics.estimators import opposite_schedule, step_effects

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
        schedule = tl.Schedule(by="area", order="lerf", levels=tl.PROTOCOLS["paper"].levels, rounding=rounding)
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


def test_twice_the_calls_and_no_more():
    rows = []

    def model(x):
        rows.append(len(x))
        return torch.stack([x.sum(1), 0 * x[:, 0]], dim=1)

    x = torch.rand(5, 200, dtype=torch.float64)
    tl.soundness(model, x, [0] * 5, x, imputer=ZERO)
    once = sum(rows)
    rows.clear()
    curve = tl.soundness(model, x, [0] * 5, x, imputer=ZERO, estimator="two_sided")
    assert once < sum(rows) <= 2 * once
    assert curve.estimator == "two_sided"
    assert curve.measure == "accuracy"


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


def test_early_stop_and_both_protocols():
    rng = np.random.default_rng(1)
    weights, x = torch.from_numpy(rng.normal(size=(60, 3))), torch.from_numpy(rng.normal(size=(50, 60)))
    labels, maps = (x @ weights).argmax(1), torch.from_numpy(rng.random((50, 60)))
    arguments = (lambda x: x @ weights, x, labels, maps)
    options = {"imputer": ZERO, "estimator": "two_sided"}
    early = tl.soundness(*arguments, stop_at=0.5, **options)
    assert early.performance.max() >= 0.5
    assert len(early.opposite.levels) <= len(early.levels) < 98
    paper, soco = (tl.soundness(*arguments, protocol=p, **options) for p in ("paper", "soco"))
    assert soco.opposite.settings.schedule.rounding == "round"
    assert paper.values[5] != soco.values[5]
    assert not soco.judged_false[:, soco.performance <= 0.04].any()


def test_wrong_second_tables_are_refused():
    x = torch.rand(4, 20, dtype=torch.float64)

    def model(x):
        return torch.stack([x.sum(1), 0 * x[:, 0]], dim=1)

    curve = tl.soundness(model, x, [0] * 4, x, imputer=ZERO, levels=(0.5, 0.2), estimator="two_sided")
    table, opposite = curve.table, curve.opposite
    ask = {"estimator": "two_sided"}
    with pytest.raises(ValueError, match="`opposite` must be given for estimator='two_sided'"):
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
    with pytest.raises(ValueError, match="a regression model has none; use 'paper'"):
        tl.soundness(lambda x: x.sum(1), x, x.sum(1), x, imputer=ZERO, performance="r2", estimator="two_sided")
