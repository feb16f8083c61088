import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.reproduction.claims import Claim, area_of, average, judge, list_values, too_few
from twinlens.support.estimate import Estimate

IDS = [str(k) for k in range(100)]
ABOUT = {"text": "t", "source": "s", "measured": "m"}


def normal(mean, spread=1.0, seed=0, ids=IDS):
    """An estimate of exactly this mean."""
    values = np.random.default_rng(seed).normal(size=len(ids))
    return Estimate.of_mean(mean + spread * (values - values.mean()), ids)


def verdict(*margins, **options):
    return judge(*margins, **ABOUT, **options).verdict


def test_a_claim_holds_above_zero_fails_below_and_is_open_between():
    assert verdict(normal(0.5)) == "holds"
    assert verdict(normal(-0.5)) == "does not hold"
    assert verdict(normal(0.1)) == verdict(normal(-0.1)) == "open"


def test_the_interval_is_that_of_the_mean():
    claim = judge(normal(0.5), **ABOUT)
    half = 1.96 * np.random.default_rng(0).normal(size=100).std(ddof=1) / 10
    assert claim.estimate.value == pytest.approx(0.5)
    assert claim.estimate.interval == (pytest.approx(0.5 - half, abs=0.03), pytest.approx(0.5 + half, abs=0.03))
    assert (claim.over, claim.ours, claim.reason) == ("100 samples", False, "")


def test_differences_are_paired():
    assert verdict(normal(0.55) - normal(0.5)) == "holds"  # the same samples vary alike
    assert verdict(normal(0.55) - normal(0.5, seed=1)) == "open"
    assert (normal(0.3) * 2 - 0.1).value == pytest.approx(0.5)
    assert (1 - normal(0.3)).value == pytest.approx(0.7)
    assert average([normal(0.2), normal(0.4) / 2]).value == pytest.approx(0.2)
    assert normal(0.2).interval[0] < 0.2 < normal(0.2).interval[1]


@pytest.mark.parametrize(
    ("margins", "expected", "decisive"),
    [
        ([0.5, 0.6], "holds", 0.5),
        ([0.5, 0.0], "open", 0.0),
        ([0.5, -0.6], "does not hold", -0.6),
        ([0.0, -0.6, 0.5], "does not hold", -0.6),
        ([(0.5, -0.6), 0.7], "holds", 0.5),
        ([(0.0, -0.6), 0.7], "open", 0.0),
        ([(-0.5, -0.6), 0.7], "does not hold", -0.5),
        ([float("nan"), 0.7], "open", None),
    ],
)
def test_margins_are_true_at_once_and_alternatives_in_turn(margins, expected, decisive):
    estimates = [tuple(map(normal, m)) if isinstance(m, tuple) else normal(m) for m in margins]
    claim = judge(*estimates, **ABOUT)
    assert claim.verdict == expected
    assert claim.estimate.value == (None if decisive is None else pytest.approx(decisive, abs=1e-9))


def test_many_margins_need_more_than_one():
    """Intervals are simultaneous: one of twenty is not below zero by chance."""
    alone = [normal(-0.22, seed=k) for k in range(20)]
    assert verdict(alone[0]) == "does not hold"
    assert verdict(*alone) == "open"


def test_what_cannot_decide_is_open_regardless_of_the_interval():
    claim = judge(normal(0.5), **ABOUT, cannot="too small")
    assert (claim.verdict, claim.reason, claim.estimate.value) == ("open", "too small", pytest.approx(0.5))
    assert judge(normal(0.0), **ABOUT).reason == "the interval contains 0"
    assert judge(normal(float("nan")), **ABOUT).reason == "there is no number to judge by"


@pytest.mark.parametrize(("samples", "expected"), [(200, "open"), (1000, "holds")])
def test_what_few_samples_cannot_show_is_not_claimed(samples, expected):
    """None of 200 samples is wrong, and up to 3.7 in 200 others may be: that more than 99% are right is open."""
    right = Estimate.of_mean(np.ones(samples), [str(k) for k in range(samples)])
    assert verdict(right - 0.99) == expected
    assert verdict((right - 0.99) * 2) == expected
    assert verdict(right / 2 - 0.495) == expected


def test_undefined_samples_are_left_out():
    values = np.where(np.arange(100) < 50, 0.25, np.nan)
    estimate = Estimate.of_mean(values, IDS)
    assert (estimate.value, estimate.samples) == (0.25, 50)
    assert Estimate.of_mean(np.full(100, np.nan), IDS).value is None


@pytest.mark.parametrize(
    ("samples", "reason"), [(99, "one of 99 samples is worth 0.010, more than ε = 0.01"), (100, "")]
)
def test_soundness_is_not_judged_where_one_sample_is_worth_more_than_epsilon(samples, reason):
    inputs = torch.rand(samples, 20)

    def model(x):
        return torch.stack([x.sum(dim=1), 5 + 0 * x[:, 0]], dim=1)

    options = {"imputer": tl.ConstantImputer(0.0), "levels": (0.8, 0.5, 0.2)}
    arguments = (model, inputs, [0] * samples, inputs)
    assert too_few(tl.soundness(*arguments, **options)) == reason
    assert too_few(tl.soundness(*arguments, **options, performance="probability")) == ""
    curve = tl.completeness(*arguments, imputer=tl.ConstantImputer(0.0))
    assert too_few(curve) == ""
    assert area_of(curve).value == curve.area()


def test_claims_show_their_margin_and_what_was_resampled():
    claim = judge(normal(0.5), **ABOUT, unit="trials")
    assert claim.over == "100 trials"
    assert claim.margin.startswith("+0.500 [+0.")
    assert (Claim(**ABOUT, verdict="open").margin, Claim(**ABOUT, verdict="open").over) == ("", "")
    assert list_values({"a": normal(0.5), "b": Estimate(value=None, samples=3)}, "+z.2f") == "a +0.50, b –"
