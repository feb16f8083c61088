import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.reproduction.watching import Watch, check_figures
from tests.tiny import image_folder, model_file
from twinlens.data.samples import from_arrays
from twinlens.reproduction import ExperimentOptions, benchmark, ensemble_gains, method_comparison
from twinlens.reproduction.claims import count_verdicts, group_statements, judge
from twinlens.reproduction.method_comparison import (
    STARTED,
    Judged,
    areas_of,
    judge_all,
    open_both,
    some_of_each_class,
    with_start,
)
from twinlens.support.estimate import Estimate

DEFAULT = {"model": "mnist-cnn", "data": "mnist", "limit": 5}


@pytest.mark.slow
def test_ensembles(tiny, monkeypatch):
    few = {
        name: {**method, "samples": 2} for name, method in ensemble_gains.METHODS.items() if name != ensemble_gains.BASE
    }
    monkeypatch.setattr(
        ensemble_gains, "METHODS", {ensemble_gains.BASE: ensemble_gains.METHODS[ensemble_gains.BASE], **few}
    )
    monkeypatch.setattr(ensemble_gains, "_TOGETHER", 4)
    outcome = ensemble_gains.run(replace(tiny, noise="both"), Watch())
    assert set(outcome.figures) == {"ensembles", "ensemble-maps"}
    check_figures(outcome)
    readings = outcome.numbers["readings"]
    assert list(readings) == ["0.3 as a standard deviation", "0.3 as a variance"]
    paper = [claim for claim in outcome.claims if not claim.ours]
    assert list(dict.fromkeys(claim.source.partition(":")[0] for claim in paper)) == [
        "Section 5.3, Fig. 8a", "Section 5.3, Fig. 8b", "Appendix B", "Section 5.3, Fig. 8c and 8d, Fig. 15",
    ]  # fmt: skip
    assert len(group_statements(outcome.claims, ours=False)) == 5
    assert len(group_statements(outcome.claims, ours=True)) == 3
    for claim in (claim for claim in paper if claim.source == "Section 5.3, Fig. 8b"):
        areas = {name: own["completeness"]["area"]["value"] for name, own in readings[claim.reading]["methods"].items()}
        assert f"IG-SQ {areas['ig_sq']:z.3f}" in claim.measured
        gain = min(
            areas["ig_sg"] - areas[ensemble_gains.BASE],
            *(areas[ensemble_gains.BASE] - areas[n] for n in ("ig_sq", "ig_var")),
        )
        assert claim.estimate.value == pytest.approx(gain)
    # Six images are too few for soundness.
    for claim in paper:
        if claim.source != "Section 5.3, Fig. 8b":
            assert claim.verdict == "open"
            assert claim.reason == "one of 6 samples is worth 0.167, more than ε = 0.01"
    # The readings share what has no noise, and differ in the rest.
    one, two = (
        {name: own["completeness"]["values"] for name, own in each["methods"].items()} for each in readings.values()
    )
    assert one[ensemble_gains.BASE] == two[ensemble_gains.BASE]
    assert len(list((tiny.out / "attributions" / "000" / "maps").iterdir())) == 14
    assert len(list((tiny.out / "attributions").iterdir())) == 2


def test_areas_have_the_sign_of_the_metric(tiny):
    run = tl.evaluate(
        tiny.model, tiny.data, [ensemble_gains.BASE, "random"], metrics=["road_morf", "road_lerf"], out=tiny.out
    )
    for metric, sign in (("road_morf", 1), ("road_lerf", -1)):
        areas = areas_of(run, metric)
        assert {name: area.value for name, area in areas.items()} == {
            name: pytest.approx(sign * run.results.area(name, metric)) for name in run.methods
        }
        [gain] = ensemble_gains.gains(areas, ensemble_gains.BASE, ["random"])
        assert gain.value == pytest.approx(areas["random"].value - areas[ensemble_gains.BASE].value)


@pytest.mark.slow
def test_benchmark(tiny, monkeypatch):
    monkeypatch.setattr(benchmark, "METHODS", ("gradcam", "iba", "extremal_perturbation", "random"))
    monkeypatch.setattr(tl.METHODS["extremal_perturbation"].__wrapped__, "__kwdefaults__", {
        **tl.METHODS["extremal_perturbation"].__wrapped__.__kwdefaults__, "steps": 3,
    })  # fmt: skip
    outcome = benchmark.run(tiny, Watch())
    sources = ["Section 5.3, Fig. 9", "Section 5.3, Fig. 9b", "Section 5.3, Fig. 9a", "Appendix B"]
    assert [claim.source for claim in outcome.claims] == [*sources, *sources, *["Fig. 9"] * 4]
    assert [claim.ours for claim in outcome.claims] == [False] * 4 + [True] * 8
    check_figures(outcome)
    assert outcome.claims[2].reason == "one of 6 samples is worth 0.167, more than ε = 0.01"


@pytest.mark.slow
def test_what_is_left_out_of_the_benchmark_is_not_claimed_about(tiny, monkeypatch):
    monkeypatch.setattr(
        benchmark, "METHODS", ("gradcam", "iba", "integrated_gradients", "extremal_perturbation", "random")
    )
    outcome = benchmark.run(replace(tiny, leave_out=("extremal_perturbation",)), Watch())
    assert list(outcome.numbers["readings"][""]["methods"]) == ["gradcam", "iba", "integrated_gradients", "random"]
    assert [claim.ours for claim in outcome.claims] == [False] * 2 + [True] * 6
    assert not any("xtremal" in claim.text + claim.measured for claim in outcome.claims)
    with pytest.raises(ValueError, match="`leave_out` cannot name 'iba'"):
        benchmark.run(replace(tiny, leave_out=("iba",)), Watch())
    with pytest.raises(ValueError, match=r"`leave_out` must be one of gradcam, iba, .* got 'rise'"):
        benchmark.run(replace(tiny, leave_out=("rise",)), Watch())
    with pytest.raises(ValueError, match="`leave_out` is not used by this experiment"):
        ensemble_gains.run(replace(tiny, leave_out=("deepshap",)), Watch())


@pytest.mark.slow
def test_a_network_is_compiled_on_request_alone(tiny, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda module, dynamic: compiled.append(module) or module)
    monkeypatch.setattr(benchmark, "METHODS", ("gradcam", "iba", "integrated_gradients", "random"))
    plain = benchmark.run(tiny, Watch())
    assert not compiled
    again = benchmark.run(replace(tiny, out=tiny.out / "compiled", compile=True), Watch())
    assert compiled
    for one, two in zip(outcome_curves(again), outcome_curves(plain), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def outcome_curves(outcome):
    """The values of every curve of an experiment with one reading."""
    methods = outcome.numbers["readings"][""]["methods"]
    return [np.array(curve["values"], dtype=float) for own in methods.values() for curve in own.values()]


def estimates(**areas):
    """Areas over 400 samples, which all methods have a spread of 0.1 in common."""
    spread, ids = np.random.default_rng(0).normal(0, 0.1, 400), [str(k) for k in range(400)]
    own = np.random.default_rng(1).normal(0, 0.01, (len(areas), 400))
    return {
        name: Estimate.of_mean(area + spread + noise, ids)
        for (name, area), noise in zip(areas.items(), own, strict=True)
    }


def test_claims_of_the_benchmark_follow_the_areas():
    def verdicts(sound, complete, cannot=""):
        areas = {"soundness": estimates(**sound), "completeness": estimates(**complete)}
        judged = Judged(areas=areas, cannot=dict.fromkeys(areas, cannot), reading="")
        return [claim.verdict for claim in benchmark._claims(judged)]

    sound = {"gradcam": 0.97, "iba": 0.93, "extremal_perturbation": 0.87, "ig_sg": 0.86, "random": 0.68}
    complete = {"gradcam": 0.40, "iba": 0.39, "extremal_perturbation": 0.48, "ig_sg": 0.06, "random": 0.05}
    assert verdicts(sound, complete) == ["holds"] * 6
    no = "does not hold"
    assert verdicts(sound | {"extremal_perturbation": 0.99}, complete) == [no, "holds", no, no, "holds", "holds"]
    assert verdicts(sound, complete | {"gradcam": 0.48})[1] == "open"
    assert verdicts(sound, complete, cannot="digits") == ["open"] * 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paper": True}, "`data` is missing: the paper's settings need a folder of ImageNet images"),
        ({"weights": "w.pt"}, "`weights` needs your own model. Pass --model, too"),
        ({"classes": "c.txt"}, "`classes` needs your own data. Pass --data, too"),
    ],
)
def test_refusals(tmp_path, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        open_both(ExperimentOptions(out=tmp_path, **options), **DEFAULT)


def test_own_data_is_taken_whole_but_for_a_limit(tiny):
    assert len(open_both(tiny, **DEFAULT)[1]) == 6
    assert len(open_both(replace(tiny, limit=4), **DEFAULT)[1]) == 4
    assert not tiny.embedded


def test_the_paper_takes_five_images_of_each_class(tmp_path):
    data = image_folder(tmp_path / "many", per_class=7)
    options = ExperimentOptions(out=tmp_path, paper=True, data=data, model=model_file(tmp_path))
    assert np.bincount(open_both(options, **DEFAULT)[1].labels).tolist() == [5, 5, 5]


def test_which_samples_of_a_class_depends_on_the_seed_alone():
    samples = from_arrays(np.eye(40), np.arange(40) % 2)
    chosen = some_of_each_class(samples, 3, seed=0)
    shuffled = samples.take(np.random.default_rng(0).permutation(40))
    assert set(some_of_each_class(shuffled, 3, seed=0).ids) == set(chosen.ids)
    assert set(some_of_each_class(samples, 3, seed=1).ids) != set(chosen.ids)


def test_areas_of_soundness_start_at_the_highest_accuracy_of_the_first_level(tiny):
    run = tl.evaluate(
        tiny.model, tiny.data, [ensemble_gains.BASE, "random"], metrics=["soundness"], out=tiny.out, epsilon=0.2
    )
    run.results.soundness_up_to["soundness"] = 0.5
    curves = [run.curve(name, "soundness") for name in run.methods]
    low = max(curve.performance[0] for curve in curves)
    assert low > 0
    for name, curve in zip(run.methods, curves, strict=True):
        assert areas_of(run, "soundness")[name].value == pytest.approx(curve.area(low, 0.5))


def test_claims_are_judged_again_where_the_start_of_soundness_matters(tiny, monkeypatch):
    metrics = with_start(["soundness", "completeness"], None)
    run = tl.evaluate(tiny.model, tiny.data, [ensemble_gains.BASE, "random"], metrics=metrics, out=tiny.out)
    areas = {metric: estimates(gradcam=0.5, random=0.4) for metric in run.metrics}
    monkeypatch.setattr(method_comparison, "areas_of", lambda _, metric: areas[metric])

    def claims(judged):
        for metric in ("soundness", "completeness"):
            margin = judged[metric]["gradcam"] - judged[metric]["random"]
            yield judge(margin, text=metric, source="", measured=f"{margin.value:.3f}")

    assert [claim.reading for claim in judge_all({"": run}, claims, cannot="")] == ["", ""]
    areas[STARTED] = estimates(gradcam=0.4, random=0.5)
    judged = judge_all({"a": run}, claims, cannot="")
    assert [(claim.text, claim.reading, claim.verdict) for claim in judged] == [
        ("soundness", "a, judged from the first level", "holds"),
        ("soundness", "a, judged above an accuracy of 0.04", "does not hold"),
        ("completeness", "a", "holds"),
    ]
    assert count_verdicts(judged, ours=False) == "1 of 2 hold, 1 depends on the reading"
