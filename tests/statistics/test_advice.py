"""The rules of advice, by hand: each outcome, and the sentences that misled before."""

import itertools

import pytest

from twinlens.statistics.advice import Advice, advise, judge_skill
from twinlens.statistics.margin import MARGIN, samples_needed
from twinlens.statistics.verdicts import Contrast
from twinlens.support.estimate import Estimate


def estimate(value, reach=0.01, samples=100):
    return Estimate(value=value, low=value - reach, high=value + reach, samples=samples)


def choice(values, skills=None, *, reach=0.03, samples=100, baselines=("random",), higher_is_better=True):
    """Advice on methods with these values, whose differences all have the same reach."""
    contrasts = [
        Contrast(
            metric="m",
            first=first,
            second=second,
            difference=estimate(values[first] - values[second], reach, samples),
            p_alone=None,
        )
        for first, second in itertools.combinations(values, 2)
    ]
    areas = {name: estimate(value, samples=samples) for name, value in values.items()}
    known = {name: skill if isinstance(skill, Estimate) else estimate(skill) for name, skill in (skills or {}).items()}
    return advise(areas, known, contrasts, baselines=baselines, higher_is_better=higher_is_better)


def test_a_method_that_is_clear_of_everything_is_recommended():
    skills = {"a": 0.3, "b": 0.2, "random": 0.0}
    assert choice({"a": 0.8, "b": 0.6, "random": 0.5}, skills) == Advice(outcome="clear", methods=("a",))
    falling = {"a": 0.2, "b": 0.4, "random": 0.5}
    assert choice(falling, skills, higher_is_better=False) == Advice(outcome="clear", methods=("a",))
    assert choice({"a": 0.8, "random": 0.5}, skills).outcome == "clear"
    assert choice({"a": 0.8, "b": 0.6, "random": 0.5}).outcome == "clear"  # without a control, by value


def test_a_method_that_misses_more_than_random_maps_is_never_recommended():
    """Completeness of 0.05 with skill was recommended over 0.54 without clear skill; random had 0.276."""
    values = {"gradcam": 0.541, "integrated_gradients": 0.05, "random": 0.276}
    advice = choice(values, {"gradcam": estimate(0.05, 0.06), "integrated_gradients": 0.05})
    assert (advice.outcome, advice.methods) == ("undecided", ("gradcam",))
    assert choice({"a": 0.05, "random": 0.276}, {"a": 0.04}) == Advice(
        outcome="baseline", methods=("a",), against="random"
    )


def test_a_higher_value_of_undecided_skill_prevents_a_recommendation():
    skills = {"a": estimate(0.09, 0.19), "b": 0.1}
    advice = choice({"a": 0.8, "b": 0.6, "random": 0.5}, skills)
    assert (advice.outcome, advice.methods) == ("undecided", ("a", "b"))
    assert advice.samples == samples_needed(skills["a"]) == 450
    # Once it is known to lack skill, the other one is clear.
    assert choice({"a": 0.8, "b": 0.6, "random": 0.5}, {"a": 0.0, "b": 0.1}) == Advice(outcome="clear", methods=("b",))


def test_methods_that_are_not_clearly_apart_are_recommended_together():
    skills = {"a": 0.3, "b": 0.2, "c": estimate(0.01, 0.03)}
    advice = choice({"a": 0.8, "b": 0.79, "random": 0.5}, skills)
    assert advice == Advice(outcome="several", methods=("a", "b"), samples=900)
    assert choice({"a": 0.8, "b": 0.795, "random": 0.5}, skills, reach=0.012).samples is None  # within the margin
    advice = choice({"a": 0.8, "c": 0.79, "random": 0.5}, skills)
    assert (advice.outcome, advice.methods, advice.against) == ("several", ("a",), "c")


def test_methods_that_differ_by_less_than_the_margin_are_recommended_together():
    """On 100 prompts, 0.923 was recommended over the exact map's 0.920, which is clearly less and does not matter."""
    values, skills = {"a": 0.923, "b": 0.920, "c": 0.85, "random": 0.5}, {"a": 0.3, "b": 0.2, "c": 0.2}
    together = Advice(outcome="several", methods=("a", "b"))
    assert choice(values, skills, reach=0.002) == together
    assert choice(values, skills | {"a": estimate(0.01, 0.05)}, reach=0.002) == Advice(
        outcome="several", methods=("b",), against="a"
    )  # a may have no skill, and is better by nothing that matters
    assert choice(values, skills | {"b": estimate(0.01, 0.05)}, reach=0.002) == Advice(outcome="clear", methods=("a",))
    assert choice(values, skills | {"b": 0.0}, reach=0.002) == Advice(outcome="clear", methods=("a",))
    assert choice(values | {"b": 0.89}, skills, reach=0.002) == Advice(outcome="clear", methods=("a",))


def test_without_skill_or_with_a_better_baseline_nobody_is_recommended():
    values = {"a": 0.8, "b": 0.7, "random": 0.5}
    assert choice(values, {"a": 0.001, "b": -0.2}) == Advice(outcome="no skill", methods=("a", "b"))
    values |= {"sobel": 0.9}
    advice = choice(values, {"a": 0.3, "b": 0.3}, baselines=("random", "sobel"))
    assert advice == Advice(outcome="baseline", methods=("a",), against="sobel")
    near = choice({"a": 0.52, "random": 0.5}, {"a": 0.3})
    assert (near.outcome, near.against, near.samples) == ("baseline", "random", 230)


def test_few_samples_and_missing_intervals_decide_nothing():
    values, few = {"a": 0.9, "random": 0.5}, {"outcome": "few samples", "methods": ("a",)}
    assert choice(values, samples=9) == Advice(**few, samples=10)
    # Maps are exchanged in pairs: it takes six of them for a skill.
    assert choice(values, {"a": 0.4}, samples=9) == Advice(**few, samples=12)
    for controlled in (3, 11):
        assert choice(values, {"a": Estimate(value=0.4, samples=controlled)}, samples=300) == Advice(**few, samples=12)
    assert choice(values, {"a": estimate(0.4, samples=12)}, samples=300).outcome == "clear"
    areas = {name: Estimate(value=value, samples=100) for name, value in {"a": 0.9, "random": 0.5}.items()}
    assert advise(areas, {}, [], baselines=["random"]) == Advice(outcome="no interval", methods=("a",))
    assert choice({"random": 0.5}) is None
    assert advise({"a": Estimate(value=None, samples=100)}, {}, [], baselines=[]) is None


@pytest.mark.parametrize(
    ("skill", "judged"),
    [
        (estimate(0.3), True),
        (estimate(0.011, 0.01), True),  # beyond the margin at one end
        (estimate(0.0, 0.02), False),
        (estimate(0.01, 0.005), False),  # clear, and less than what matters
        (estimate(-0.1), False),
        (estimate(0.05, 0.1), None),
        (Estimate(value=0.3, samples=9), None),
        (None, None),
    ],
)
def test_a_skill_is_lacking_only_within_the_margin_or_below_zero(skill, judged):
    assert judge_skill(skill) is judged


def test_a_skill_within_the_margin_recommends_nobody():
    """With thousands of samples, skill of +0.01 is clear and does not matter."""
    assert choice({"a": 0.8, "random": 0.5}, {"a": estimate(0.01, 0.005)}).outcome == "no skill"
    advice = choice({"a": 0.8, "b": 0.7, "random": 0.5}, {"a": estimate(0.01, 0.005), "b": 0.2})
    assert advice == Advice(outcome="clear", methods=("b",))


def test_without_a_baseline_nothing_is_recommended():
    assert choice({"a": 0.8, "b": 0.6}, {"a": 0.3, "b": 0.2}, baselines=()) == Advice(
        outcome="no baseline", methods=("a", "b")
    )
    assert choice({"a": 0.8}, {"a": 0.3}, baselines=()).outcome == "no baseline"
    assert choice({"a": 0.8, "b": 0.6}, samples=9, baselines=()).outcome == "few samples"


def test_the_named_baseline_is_one_that_is_not_beaten():
    """The lower baseline may have the wider interval."""
    values = {"a": 0.8, "sobel": 0.7, "centre": 0.6}
    contrasts = [
        Contrast(metric="m", first="a", second="sobel", difference=estimate(0.1, 0.05), p_alone=None),
        Contrast(metric="m", first="a", second="centre", difference=estimate(0.2, 0.3), p_alone=None),
    ]
    areas = {name: estimate(value) for name, value in values.items()}
    advice = advise(areas, {}, contrasts, baselines=("sobel", "centre"))
    assert (advice.outcome, advice.against, advice.samples) == ("baseline", "centre", 230)


def test_samples_that_would_decide():
    assert samples_needed(estimate(0.1, 0.05)) is None  # decided
    assert samples_needed(estimate(0.09, 0.19, samples=24)) == 110
    assert samples_needed(estimate(0.0, 0.1, samples=40)) == 1000  # within the margin
    assert samples_needed(estimate(MARGIN / 2, 0.1, samples=40)) == 4000  # the worst case: half of the margin
    assert samples_needed(Estimate(value=0.1, samples=40)) is None
