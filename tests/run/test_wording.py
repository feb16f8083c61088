"""Every sentence that a run prints about which method to use."""

import dataclasses

import pytest

from tests.report.runs import changed, shared_run, with_curve
from twinlens.data.samples import Skipped
from twinlens.run.results import StoppingResults
from twinlens.run.wording import describe_stopping, find_headlines, find_warnings
from twinlens.statistics.advice import Advice
from twinlens.statistics.verdicts import Comparison, Pair, Rank
from twinlens.support.estimate import Estimate

SKILLS = {"a": (0.21, 0.05), "b": (0.03, 0.06), "c": (0.001, 0.01), "random": (0.0, 0.01)}
VALUES = {"a": 0.8, "b": 0.85, "c": 0.7, "random": 0.5}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Four methods, one of them a baseline, with known values and skills on 300 samples."""
    evaluation = shared_run(tmp_path_factory.getbasetemp())
    [first, *_] = evaluation.results.methods.values()
    data = dataclasses.replace(evaluation.results.data, samples=300)
    methods = {name: dataclasses.replace(first, baseline=name == "random") for name in VALUES}
    evaluation = changed(evaluation, methods=methods, data=data)
    for name, value in VALUES.items():
        skill, reach = SKILLS[name]
        for metric in ("soundness_rank", "completeness_share"):
            estimate = Estimate(value=skill, low=skill - reach, high=skill + reach, samples=150)
            evaluation = with_curve(evaluation, name, metric, area=Estimate(value=value, samples=300), skill=estimate)
    return evaluation


def said(run, outcome, methods, *, metric="soundness_rank", **entries):
    """The sentence of one side."""
    advice = Advice(outcome=outcome, methods=methods, **entries)
    return find_headlines(changed(run, advice={metric: advice}).results)[0]


def test_a_clear_choice(run):
    assert said(run, "clear", ("a",)) == (
        "Where nothing may be falsely blamed, use a: soundness 0.800, skill +0.210, clearly better than the "
        "baseline random and all other methods with skill."
    )
    assert said(run, "clear", ("a",), metric="completeness_share").startswith(
        "Where nothing may be missed, use a: comp"
    )
    names = {name: run.results.methods[name] for name in ("a", "random")}
    assert said(changed(run, methods=names), "clear", ("a",)).endswith("clearly better than the baseline random.")
    both = changed(run, methods={**names, "centre": run.results.methods["random"]})
    assert said(both, "clear", ("a",)).endswith("clearly better than the baselines random and centre.")
    unknown = with_curve(run, "a", "soundness_rank", skill=None)
    assert said(unknown, "clear", ("a",)).startswith(
        "Where nothing may be falsely blamed, use a: soundness 0.800, skill not measured, clearly"
    )


def test_a_clear_choice_need_not_beat_methods_without_skill(run):
    lacking = Estimate(value=0.0, low=-0.01, high=0.01, samples=150)
    higher = with_curve(run, "b", "soundness_rank", skill=lacking)  # of value 0.85, above that of a
    assert said(higher, "clear", ("a",)).endswith(
        "clearly better than the baseline random and all other methods with skill."
    )


def test_several_methods(run):
    start, better = "Where nothing may be falsely blamed, use ", "clearly better than the baseline random"
    assert said(run, "several", ("a", "c"), samples=1200) == (
        f"{start}a or c: soundness 0.800 and 0.700, {better}, but not clearly apart with 300 samples; about 1,200 "
        "would decide."
    )
    assert said(run, "several", ("a", "c")) == (
        f"{start}a or c: soundness 0.800 and 0.700, {better}, and apart by less than 0.02."
    )
    assert said(run, "several", ("a",), against="b", samples=400) == (
        f"{start}a: soundness 0.800, {better}; b is not clearly worse, but its skill is not decided."
    )


def test_nobody_can_be_recommended(run):
    start = "Where nothing may be falsely blamed, no method can be recommended"
    assert said(run, "baseline", ("c",), against="random") == (
        f"{start}: c, the best method, has soundness 0.700 and is apart from the baseline random (0.500) by less than "
        "0.02. Try others: `twinlens methods` lists them."
    )
    ahead = with_curve(run, "random", "soundness_rank", area=Estimate(value=0.75, samples=300))
    assert said(ahead, "baseline", ("c",), against="random") == (
        f"{start}: c, the best method, has soundness 0.700 and is behind the baseline random (0.750). "
        "Try others: `twinlens methods` lists them."
    )
    assert said(run, "baseline", ("c",), against="random", samples=900) == (
        f"{start} yet: with 300 samples, c (soundness 0.700) is not clearly better than the baseline random (0.500); "
        "about 900 would decide."
    )
    assert said(run, "no skill", ("c", "b")) == (
        f"{start}: in soundness, maps of c and b are better than maps from other inputs by less than 0.02, if at all. "
        "Try others: `twinlens methods` lists them."
    )
    assert said(run, "undecided", ("b",), samples=1200) == (
        f"{start} yet: b has soundness 0.850, but with 300 samples it is not decided whether its maps are better than "
        "maps from other inputs (skill +0.030 [-0.030, 0.090]); about 1,200 would decide."
    )
    assert ": b has soundness 0.850, more than a (0.800), but" in said(run, "undecided", ("b", "a"))
    assert said(run, "no interval", ("a",)) == (
        f"{start}: soundness has no interval here. Its best value is 0.850 (b). Add --metrics headline."
    )
    alone = changed(run, methods={name: run.results.methods[name] for name in ("c", "random")})
    assert "other inputs; about 900 would decide." in said(
        with_curve(run, "b", "soundness_rank", skill=None), "undecided", ("b",), samples=900
    )
    alone = with_curve(alone, "random", "soundness_rank", area=Estimate(value=0.9, samples=300))
    assert "(random, a baseline)" in said(alone, "no interval", ("c",))


def test_few_samples_give_one_sentence(run):
    data = dataclasses.replace(run.results.data, samples=1)
    sides = dict.fromkeys(
        ("soundness_rank", "completeness_share"), Advice(outcome="few samples", methods=("a",), samples=10)
    )
    assert find_headlines(changed(run, data=data, advice=sides).results) == [
        "1 sample: too few to recommend a method. At least 10 are needed."
    ]
    few = Estimate(value=0.2, samples=6)
    for name in VALUES:
        run = with_curve(run, name, "soundness_rank", skill=few)
    assert said(run, "few samples", ("a",), samples=12) == (
        "6 samples of 300 with exchanged maps: too few to recommend a method. At least 12 are needed; raise "
        "`control_share`."
    )


def test_a_recommendation_says_which_baselines_are_missing(run):
    def last(run, outcome="clear"):
        advice = {"soundness_rank": Advice(outcome=outcome, methods=("a",))}
        return find_headlines(changed(run, advice=advice).results)[-1]

    why = "where a baseline does as well, a map says little about the model."
    assert last(run) == f"The only baseline is random. Add centre and sobel: {why}"
    methods = run.results.methods
    assert "baseline" not in last(run, "no interval")  # nothing is recommended
    assert "Add" not in last(changed(run, methods={**methods, "centre": methods["random"]}))
    rows = dataclasses.replace(run.results.data, shape=(30,))  # positions of a table have no neighbours
    assert "Add" not in last(changed(run, data=rows))


def test_without_baselines_the_sentence_says_which_to_add(run):
    alone = changed(run, methods={name: run.results.methods[name] for name in "ab"})
    start = (
        "Where nothing may be falsely blamed, no method can be recommended yet, because no baseline was measured: add"
    )
    top = "The best value so far is that of b: soundness 0.850, skill +0.030."
    assert said(alone, "no baseline", ("b", "a")) == f"{start} random, centre and sobel. {top}"
    rows = dataclasses.replace(run.results.data, shape=(30,))
    assert said(changed(alone, data=rows), "no baseline", ("b", "a")) == f"{start} random. {top}"
    assert (
        find_headlines(
            changed(alone, advice={"soundness_rank": Advice(outcome="no baseline", methods=("b", "a"))}).results
        )[1:]
        == []
    )


def test_a_recommendation_names_the_imputer_under_which_it_holds(run):
    def sentences(run, outcome="clear"):
        return find_headlines(changed(run, advice={"soundness_rank": Advice(outcome=outcome, methods=("a",))}).results)

    said = (
        "All of this was measured with the imputer linear. Another one can reverse a recommendation: `twinlens check "
        "imputers` compares them."
    )
    assert said in sentences(run)
    assert said in sentences(run, "several")
    assert not any("imputer" in sentence for sentence in sentences(run, "no interval"))  # nothing is recommended
    tokens = dataclasses.replace(run.results.data, tokens=True)  # nothing is imputed
    assert not any("imputer" in sentence for sentence in sentences(changed(run, data=tokens)))


def test_warnings_about_the_run_itself(run):
    one, two = Skipped(id="x", reason="x.png is cut off."), Skipped(id="y", reason="y.png is empty.")
    for skipped, said in (
        ((one,), "1 sample could not be read and was"),
        ((one, two), "2 samples could not be read and were"),
    ):
        data = dataclasses.replace(run.results.data, skipped=skipped)
        assert f"{said} skipped. The first: x.png is cut off." in find_warnings(changed(run, data=data).results)
    nothing = "No method is complete yet: start the run again with the same command to resume it."
    assert nothing in find_warnings(changed(run, methods={}, advice={}).results)
    only = "Baseline methods only: add methods that explain the model."
    baselines = dict.fromkeys(("random", "centre"), run.results.methods["random"])
    assert only in find_warnings(changed(run, methods=baselines).results)
    assert only not in find_warnings(run.results)


def test_why_a_run_stopped():
    def said(until, *, met, widest, samples=128):
        return describe_stopping(
            StoppingResults(
                until=until,
                met=met,
                widest=widest,
                samples=samples,
                of=1200,
                look=2,
                looks=4,
                confidence=0.98,
                spent=0.03,
            )
        )

    assert said("0.05", met=True, widest=0.04) == (
        "Stopped after 128 of 1,200 samples: every interval within ±0.05, 2 of 4 looks."
    )
    assert said("decided:0.1", met=True, widest=0.0) == (
        "Stopped after 128 of 1,200 samples: every comparison decided or within ±0.1, 2 of 4 looks."
    )
    assert said("0.05", met=False, widest=0.07, samples=1200) == (
        "All 1,200 samples were measured, not enough for ±0.05: the widest interval is ±0.070, 2 looks."
    )
    assert said("decided:0.1", met=False, widest=0.15) == (
        "128 of 1,200 samples were measured, not enough for ±0.1: differences up to 0.150 are undecided, 2 looks."
    )
    assert said("0.05", met=False, widest=None).endswith("not enough for ±0.05: there is no interval, 2 looks.")


def test_a_method_can_be_more_complete():
    better = Estimate(value=0.2, low=0.1, high=0.3, samples=50, p=0.001)
    ranks = [
        Rank(metric="completeness_share", method=name, rank=place, best_rank=place, worst_rank=place, area=area)
        for place, (name, area) in enumerate(
            {"a": Estimate(value=0.7, samples=50), "b": Estimate(value=0.5, samples=50)}.items(), 1
        )
    ]
    pair = Pair(
        metric="completeness_share", first="a", second="b", difference=better, p_alone=0.001, wins=1.0, sample_wins=1.0
    )
    [verdict] = Comparison(confidence=0.95, pairs=(pair,), ranking=tuple(ranks), pareto={}).verdicts
    assert verdict == "a is more complete than b by 0.200 [0.100, 0.300]."


def test_skills_that_are_none_or_not_decided(run):
    advice = {"soundness_rank": Advice(outcome="clear", methods=("a",))}
    assert find_headlines(changed(run, advice=advice).results)[1:3] == [
        "In soundness, maps of c are better than maps from other inputs by less than 0.02, if at all.",
        "In soundness, it is not decided with 300 samples whether maps of b are better than maps from other inputs; "
        "about 1,200 would decide.",
    ]
