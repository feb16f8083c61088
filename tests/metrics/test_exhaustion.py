import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import twinlens as tl
from twinlens.metrics.exhaustion import Exhaustion, Reached, exhausted_samples

SILENT = tl.ConstantImputer(0.0)


def model(x):
    return torch.stack([x.sum(dim=1), 0 * x[:, 0]], dim=1)


def sweep(maps, levels):
    maps = np.asarray(maps, dtype=float)
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=levels)
    return tl.probe(model, torch.ones(maps.shape), [0] * len(maps), maps, schedule=schedule, imputer=SILENT)


@pytest.fixture
def curve():
    """Seven maps of ten features in steps of two: 3, 4, 10, 0, 10 (equal), 9 and 1 features have attribution."""
    ramp, attributed = np.arange(10.0, 0.0, -1.0), np.array([3, 4, 10, 0, 10, 9, 1])
    maps = ramp * (np.arange(10) < attributed[:, None])
    maps[4] = 0.3
    table = sweep(maps, (0.8, 0.6, 0.4, 0.2, 0.0))
    hits = np.arange(7)[:, None] < np.array([1, 3, 2, 5, 7])
    return tl.soundness_from_probes(dataclasses.replace(table, target_rank=1 - hits.astype(np.int64)))


def test_attribution_that_runs_out(curve):
    # It ends inside the second step, with it, never, before the first, never, inside the last and inside the first.
    assert curve.exhausted.tolist() == [1 / 7, 2 / 7, 4 / 7, 4 / 7, 4 / 7]
    assert curve.runs_out == Exhaustion(level=0.4, performance=3 / 7)


def test_half_of_the_samples_is_not_more_than_half():
    assert tl.soundness_from_probes(sweep([[1, 0, 0], [3, 2, 1]], (0.6, 0.3, 0.0))).runs_out is None
    ended = tl.soundness_from_probes(sweep([[0, 0, 0], [0, 0, 0], [3, 2, 1]], (0.6, 0.3, 0.0)))
    assert ended.runs_out == Exhaustion(level=0.6, performance=None)


def test_a_predictive_level_beyond_attribution_is_flagged(curve):
    assert curve.reached(3 / 7) == Reached(value=float(curve.values[1]), level=0.6, exhausted=2 / 7)
    assert curve.at(3 / 7) == curve.values[1]
    assert curve.reached(0.5) == Reached(value=float(curve.values[3]), level=0.2, exhausted=4 / 7)
    with pytest.warns(
        UserWarning, match=r"level 0\.5 is reached only after more than half of the maps have run"
    ) as found:
        assert curve.at(0.5) == curve.values[3]
    assert [each.filename for each in found] == [__file__]
    assert curve.reached(2.0) is None
    assert curve.at(2.0) is None


def test_many_questions_give_one_warning(curve):
    with pytest.warns(UserWarning, match="run out of attribution") as found:
        assert tl.bootstrap(curve, resamples=50).at(0.5).value == curve.reached(0.5).value
    assert len(found) == 1


def test_levels_that_add_no_feature_exhaust_nobody():
    # Of three features 2, 2, 0 and 0 are removed.
    table = sweep([[1, 2, 3], [0, 0, 3], [0, 2, 3]], (0.9, 0.5, 0.1, 0.05))
    assert table.removed[0].tolist() == [2, 2, 0, 0]
    assert exhausted_samples(table).tolist() == [[False] * 4, [False, False, True, True], [False] * 4]


def test_attribution_that_moves_no_sum_is_none():
    assert exhausted_samples(sweep([[1, 1e-20, 0], [1, 1e-12, 0]], (0.6, 0.3, 0.0))).tolist() == [
        [False, True, True],
        [False, False, True],
    ]


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    features=st.integers(2, 40),
    levels=st.lists(st.integers(0, 99), min_size=1, max_size=12, unique=True),
)
def test_against_a_slow_count(seed, features, levels):
    rng = np.random.default_rng(seed)
    attributed = rng.integers(0, features + 1, size=(5, 1))
    maps = rng.permuted((rng.random((5, features)) + 0.01) * (np.arange(features) < attributed), axis=1)
    assume(maps.any())  # or there is a warning
    table = sweep(maps, tuple(sorted((level / 100 for level in levels), reverse=True)))
    kept = [0, *(features - table.removed[0])]
    for found, count in zip(exhausted_samples(table), attributed[:, 0], strict=True):
        # The features of a level that are not in an earlier one, which had all attribution.
        assert found.tolist() == [
            any(kept[j] >= count and kept[k] > kept[j] for j in range(k)) for k in range(1, len(kept))
        ]
