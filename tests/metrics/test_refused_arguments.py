"""Arguments of metric functions that cannot be used are refused by name."""

import sys

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.tiny import tiny_model

INPUTS, LABELS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
MAPS = INPUTS[:, 0].abs()


def ending(*_, **__):
    sys.exit(7)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        *(({which: value}, which) for which in ("inputs", "maps", "labels") for value in (
            torch.rand(4, 3, 8, 8).to_sparse(),
            torch.rand(4, 3, 8, 8, device="meta"),
            torch.rand(4, 3, 8, 8).to(torch.float8_e4m3fn),
            [[1], [1, 2]],
            None,
            "text",
            np.array([object()]),
        )),
        *(({"seed": value}, "seed") for value in (float("inf"), float("nan"), None, "x", 1.5, True)),
        *(({"batch_size": value}, "batch_size") for value in (0, 1.5, "x", float("nan"))),
        *(({"device": value}, "device") for value in ("bogus", "cuda:99", "meta")),
        *(({"imputer": value}, "imputer") for value in (
            lambda *_: None, lambda *_: 3, lambda x, *_: x[:, :1], lambda x, *_: x.to_sparse(), ending)),
        *(({"model": value}, "model") for value in (
            3, ending, lambda x: None, lambda x: torch.rand(len(x), 3).to_sparse(),
            lambda x: torch.rand(len(x), 3, device="meta"), lambda x: torch.full((len(x), 3), torch.inf))),
        ({"ids": 3}, "ids"),
        ({"levels": 3}, "levels"),
    ],
)  # fmt: skip
def test_arguments(changed, name):
    given = {"model": tiny_model(), "inputs": INPUTS, "labels": LABELS, "maps": MAPS, "levels": (0.5, 0.2)} | changed
    plain = [given.pop(each) for each in ("model", "inputs", "labels", "maps")]
    with pytest.raises((ValueError, TypeError), match=f"`{name}`"):
        tl.soundness(*plain, **given)


@pytest.mark.parametrize("performance", ["accuracy", "probability", "balanced_accuracy", "top2"])
def test_no_share_gains_more_than_one(performance):
    how = {"epsilon": 5, "performance": performance}
    table = tl.soundness(tiny_model(), INPUTS, LABELS, MAPS, levels=(0.5, 0.2)).table
    for call in (
        lambda: tl.soundness(tiny_model(), INPUTS, LABELS, MAPS, **how),
        lambda: tl.Soundness(**how),
        lambda: tl.soundness_from_probes(table, **how),
        lambda: tl.evaluate(tiny_model(), (INPUTS, LABELS), ["random"], metrics=["soundness"], **how),
    ):
        with pytest.raises(
            ValueError,
            match=rf"`epsilon` must lie within \[0, 1\].*a gain in {performance}; got 5.*points pass 0\.05\.$",
        ):
            call()
    with pytest.raises(ValueError, match=r"`epsilon` must lie within \[0, 1\].*got 200\.0\.$"):
        tl.Soundness(epsilon=200.0, performance=performance)
    assert tl.Soundness(epsilon=1, performance=performance).epsilon == 1


@pytest.mark.parametrize("performance", ["logit", "score", "r2", "neg_mse", lambda table: 50 * table.probability])
def test_other_measures_may_gain_more_than_one(performance):
    assert tl.Soundness(epsilon=5, performance=performance).epsilon == 5
    if performance == "logit" or callable(performance):
        how = {"levels": (0.5, 0.2), "epsilon": 5, "performance": performance}
        assert tl.soundness(tiny_model(), INPUTS, LABELS, MAPS, **how).epsilon == 5


@pytest.mark.parametrize("metric", [tl.soundness, tl.completeness, tl.road, tl.deletion, tl.insertion])
def test_maps_of_zeros_are_warned_of(metric):
    with pytest.warns(UserWarning, match="`maps` are zero everywhere for all 4 samples"):
        metric(tiny_model(), INPUTS, LABELS, torch.zeros_like(MAPS))


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda table: "abc", "must return numbers; it returned str"),
        (lambda table: object(), "must return numbers; it returned object"),
        (lambda table: np.full(table.kept_mass.shape, np.nan), "must be a number at every level; at 1 it is none"),
        (lambda table: np.array([1.0, np.inf] * 5), "must be a number at every level; at 0.9 it is none"),
    ],
)
def test_a_performance_that_is_none(function, error):
    with pytest.raises((ValueError, TypeError), match=f"`performance` {error}"):
        tl.completeness(tiny_model(), INPUTS, LABELS, MAPS, performance=function, imputer=tl.ConstantImputer(0.0))


@pytest.mark.parametrize("confidence", ["a", None, 0, 1.5, True, float("nan")])
def test_a_confidence_that_is_none(confidence):
    curve = tl.completeness(tiny_model(), INPUTS, LABELS, MAPS, imputer=tl.ConstantImputer(0.0))
    with pytest.raises(ValueError, match="`confidence` must lie within"):
        curve.interval(confidence, resamples=5)
