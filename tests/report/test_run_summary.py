import dataclasses
import math
import re

import numpy as np
import torch

import twinlens as tl
from tests.report.runs import METHODS, changed, content_of, image_samples, make_run, with_areas, with_curve
from twinlens.report import write_report
from twinlens.report.explorer import describe_samples
from twinlens.report.run_summary import describe_run
from twinlens.run.results import StoppingResults
from twinlens.run.wording import find_warnings, group_warnings
from twinlens.statistics.bootstrap import bootstrap
from twinlens.statistics.comparison import _pareto
from twinlens.statistics.diagnostics import Finding
from twinlens.statistics.power import visible_difference
from twinlens.statistics.verdicts import Rank
from twinlens.support.estimate import Estimate


def front_of(shown):
    """The methods of a page's table that are on the front."""
    return {row["method"]: row["front"] for row in shown["table"]["rows"] if row["front"] is not None}


def cells_of(shown, key):
    """The cells of a column of a page's table, by method."""
    place = [column["key"] for column in shown["table"]["columns"]].index(key)
    return {row["method"]: row["cells"][place] for row in shown["table"]["rows"]}


def test_statistics_are_shown_where_they_are_there(run):
    values = run.results.methods["random"].metrics["soundness"].values
    area = Estimate(value=2.0, low=1.5, high=2.5, samples=10)
    more = with_curve(run, "random", "soundness", area=area, low=values, high=values)
    rank = Rank(metric="soundness", method="random", area=area, rank=1, best_rank=1, worst_rank=2)
    more = changed(more, pairs_digest=None, warnings=("No.",), ranking=(rank,), front={"sobel": 0.75})
    shown = describe_run(more, "r")
    assert front_of(shown) == {"sobel": 0.75}
    assert (shown["verdicts"], shown["comparisons"]) == ([], 3)
    assert {"line": "No.", "texts": ["No."]} in shown["warnings"]
    soundness = next(m for m in shown["methods"] if m["name"] == "random")["metrics"]["soundness"]
    assert soundness["low"] == list(values)
    cell = cells_of(shown, "soundness")["random"]
    assert (cell["estimate"]["value"], cell["estimate"]["low"], cell["estimate"]["high"]) == (2.0, 1.5, 2.5)
    assert cell["details"].startswith("2.0, rank 1 to 2")


def test_skill_decides_the_order_and_the_arrows(judged):
    shown = describe_run(judged, "r")
    assert shown["methods"][0]["name"] == "saliency"
    said = {point["method"]: [side["direction"] for side in point["sides"]] for point in shown["plane"]["points"]}
    assert said == {
        "saliency": ["better", "better"],
        "sobel": ["better", "undecided"],
        "random": ["undecided", "worse"],
    }


def test_baselines_come_last_and_are_never_on_the_front_nor_best(run):
    shown = describe_run(run, "r")
    rows = shown["table"]["rows"]
    assert [row["baseline"] for row in rows] == [False, True, True]
    assert not {"random", "sobel"} & front_of(shown).keys()
    assert not any(cell["bold"] for row in rows if row["baseline"] for cell in row["cells"])


POINTS = {"a": (0.9, 0.1), "b": (0.5, 0.5), "c": (0.5, 0.4), "d": (None, 0.9), "e": (0.5, 0.5), "f": (0.1, 0.9)}


def test_the_front_has_equal_points_and_none_that_is_not_defined(run):
    areas = {
        metric: {
            name: dataclasses.replace(
                bootstrap(run.curve("random", metric), resamples=2).compared_area(),
                estimate=Estimate(value=point[side], samples=10),
                replicates=np.array([point[side] or math.nan]),
            )
            for name, point in POINTS.items()
        }
        for side, metric in enumerate(("soundness", "completeness"))
    }
    assert _pareto(areas) == dict.fromkeys(["a", "b", "e", "f"], 1.0)
    assert _pareto({"soundness": areas["soundness"]}) == {}


def test_the_page_compares_the_best_methods_in_words(run):
    shown = describe_run(run, "r")
    assert (len(shown["verdicts"]), shown["comparisons"]) == (3, 3)
    assert shown["verdicts"] == list(run.comparison().verdicts)


def test_methods_come_best_first_and_the_front_is_that_of_the_results(run):
    shown = describe_run(
        changed(with_areas(run, POINTS), advice={}, front={"a": 1.0, "b": 0.5, "e": 0.5, "f": 1.0}), "r"
    )
    assert shown["methods"][0]["name"] == "b"
    assert [m["name"] for m in shown["methods"]].index("c") > [m["name"] for m in shown["methods"]].index("e")
    assert set(front_of(shown)) == {"a", "b", "e", "f"}
    alone = describe_run(changed(with_areas(run, {"a": (0.5,), "b": (0.4,)}), advice={}, front={}), "r")
    assert front_of(alone) == {}


def test_metrics_with_names_of_ones_own_are_shown_by_what_they_are(tmp_path):
    metrics = {
        "strict": tl.Soundness(epsilon=0.05, levels=(0.9, 0.5, 0.1)),
        "steps": tl.Soundness(estimator="rank", steps=4, imputer=tl.ConstantImputer(0.5)),
        "lost": tl.Completeness(performance="probability"),
        "least": tl.Road(order="lerf"),
    }
    evaluation = make_run(tmp_path / "run", samples=image_samples(4), metrics=metrics)
    [shown] = content_of(write_report([evaluation], tmp_path / "r.html"))["runs"]
    assert shown["plane"]["metrics"] == ["steps", "lost"]
    drawn = {metric["key"]: metric for metric in shown["metrics"]}
    assert [metric["title"] for metric in drawn.values()] == list(metrics)
    assert [metric["heading"] for metric in drawn.values()] == ["strict ↑", "steps ↑", "lost ↑", "least ↓"]
    assert [metric["stairs"] for metric in drawn.values()] == [True, False, False, False]
    assert [metric["decreasing"] for metric in drawn.values()] == [False, False, True, False]
    assert (drawn["lost"]["x"], drawn["lost"]["y"]) == ("attribution threshold", "loss of probability")
    assert drawn["steps"]["x"] == "share of features kept"
    assert [metric["settings"] for metric in drawn.values()] == [
        *("ε = 0.05, 3 levels", "4 steps", "9 thresholds", "9 levels")
    ]
    assert [metric["folded"] for metric in drawn.values()] == [True, False, False, True]
    facts = dict(shown["facts"])
    assert facts["Protocol"] == (
        "strict: paper, by accuracy, ε = 0.05; steps: 4 steps, by log-odds; lost: paper, by probability"
    )
    assert facts["Imputation"].startswith("linear (noise 0.01, ")
    assert facts["Imputation"].endswith("); steps: constant (value 0.5)")
    assert facts["Identity"].endswith(", seed 0")
    assert shown["explorer"]["metric"] == "strict"
    assert shown["explorer"]["judged"]


def told(evaluation, warnings, **diagnostics):
    """The groups of a run's warnings; `diagnostics` are findings by method, whose messages are warnings too."""
    methods = {
        name: dataclasses.replace(evaluation.results.methods["saliency"], diagnostics=tuple(diagnostics.get(name, ())))
        for name in ("a", "b", "a: b", "c", "d")
    }
    found = [f"{name}: {d.message}" for name, m in methods.items() for d in m.diagnostics]
    return group_warnings(changed(evaluation, methods=methods, warnings=(*warnings, *found)).results)


def test_warnings_that_differ_in_numbers_alone_are_grouped(run):
    warnings = ["a: 3 of 40 are zero.", "Other: 1.", "b: 5 of 40 are zero.", "b: else.", "Other: 2."]
    groups = told(run, warnings)
    assert [group.texts for group in groups] == [
        *((warnings[0], warnings[2]), ("Other: 1.",), ("b: else.",), ("Other: 2.",))
    ]
    [odd] = told(run, ["a: 3 are odd. Mind.", "b: 4 are odd. Mind."])
    assert odd.line == "a: 3 are odd (and 1 similar)"
    assert odd.summary == "a: 3 are odd. Mind. (1 similar, see results.json)"
    [named] = told(run, ["a: b: 3 are odd. Mind."])
    assert named.line == "a: b: 3 are odd"  # the method is called "a: b"


def ties(share):
    return [
        Finding(kind="tied values", value=share, message=f"{share:.0%} are tied. Use others."),
        Finding(kind="resolved levels", value=0.1, message="Few levels are resolved. Use others."),
    ]


def test_diagnostics_of_one_kind_are_one_line_with_the_methods(run):
    [group] = told(run, [], a=ties(0.9), b=ties(0.8))
    assert group.line == "Tied values: a, b"
    assert group.texts == ("a: 90% are tied. Use others.", "b: 80% are tied. Use others.")  # and not twice
    assert group.summary == "Tied values: a, b. 90% are tied. Use others. (1 similar, see results.json)"
    [alone] = told(run, [], a=ties(0.9)[1:])
    assert alone.line == "Tied values: a"
    assert alone.texts == ("a: Few levels are resolved. Use others.",)
    same = [Finding(kind="one sample", value=0.1, message="One of 10 is worth 0.1.")]
    few, tied = told(run, [], **dict.fromkeys(("a", "b", "a: b", "c"), same), d=ties(0.9))
    assert (few.line, tied.line) == ("Few samples for ε: 4 of 5 methods", "Tied values: d")
    assert few.texts == ("a, b, a: b, c: One of 10 is worth 0.1.",)
    [everywhere] = told(run, [], **dict.fromkeys(("a", "b", "a: b", "c", "d"), same))
    assert everywhere.line == "Few samples for ε: all 5 methods"


def test_incomplete_methods_are_one_line(run):
    notes = [
        "x is incomplete: maps are missing. It failed.",
        "y is incomplete: deletion is missing. Evaluate it again.",
    ]
    [group] = group_warnings(changed(run, warnings=()).results, notes)
    assert group.line == "Incomplete: x, y"
    assert group.texts == ("x: maps are missing. It failed.", "y: deletion is missing. Evaluate it again.")
    many = [f"{name} is incomplete: maps are missing." for name in "abcd"]
    [group] = group_warnings(changed(run, warnings=()).results, many)
    assert (group.line, group.texts) == ("Incomplete: 4 methods", ("a, b, c, d: maps are missing.",))


def test_a_run_of_one_sample_and_one_method_says_so(tmp_path):
    evaluation = make_run(tmp_path / "run", samples=image_samples(1), methods=["saliency"])
    [shown] = content_of(write_report([evaluation], tmp_path / "r.html"))["runs"]
    said = [group["line"] for group in shown["warnings"]]
    assert "One sample only" in said
    assert "One method only" in said
    alone, single = evaluation.results.warnings[:2]
    assert alone == "One sample only: the results do not generalise to other samples."
    assert single == "One method only: there is nothing to compare it with. Add at least the baseline `random`."
    assert not any("maps from other inputs" in sentence for sentence in shown["headlines"])  # there are none
    assert [sample["reason"] for sample in shown["explorer"]["samples"]] == ["High false attribution"]


def test_maps_alone_say_so(tmp_path):
    evaluation = make_run(tmp_path / "run", methods=["saliency"], metrics=[])
    [shown] = content_of(write_report([evaluation], tmp_path / "r.html"))["runs"]
    assert "No metrics were requested" in [group["line"] for group in shown["warnings"]]
    assert shown["explorer"] == {
        "note": "No metric was measured: there is nothing to show about samples.",
        "samples": [],
    }


def test_one_side_alone_is_told_without_the_other(tmp_path):
    shown = describe_run(make_run(tmp_path / "run", metrics=["completeness"]), "r")
    assert (shown["plane"], shown["missing"]) == (None, ["soundness"])
    assert shown["headlines"]
    assert all("completeness" in sentence and "soundness" not in sentence for sentence in shown["headlines"])


def test_degenerate_maps_and_levels_that_are_not_reached_are_told(tmp_path):
    def nothing(model, inputs, targets, *, ids=None, seed=0):
        return torch.zeros(len(inputs), *inputs.shape[2:])

    methods = {"nothing": nothing, "random": "random"}
    evaluation = make_run(tmp_path / "run", methods=methods, metrics=["soundness", "completeness"])
    shown = describe_run(evaluation, "r")
    said = {group["line"]: group["texts"] for group in shown["warnings"]}
    assert said["Degenerate maps: nothing"][0].startswith("nothing: Of 12 maps, 12 all zero")
    undefined = "nothing: soundness (paper) is undefined at all levels, because no kept feature has attribution."
    assert said[undefined] == [undefined]
    beyond = find_warnings(changed(evaluation, soundness_up_to={"soundness": 2.0}).results)
    assert [text for text in beyond if "not reach" in text] == [
        "nothing and random do not reach accuracy 2.000, nine tenths of that on the original inputs, and have no "
        "soundness (paper)."
    ]
    samples = describe_samples(evaluation, budget=10**6)["samples"]
    assert {sample["methods"]["nothing"]["kind"] for sample in samples} == {"zero"}
    assert {sample["methods"]["nothing"]["falseShare"] for sample in samples} == {None}


def test_methods_and_baselines_are_distinguished(run):
    shown = {row["method"]: row["baseline"] for row in describe_run(run, "r")["table"]["rows"]}
    assert shown == {"saliency": False, "sobel": True, "random": True}
    assert set(shown) == set(METHODS)


def test_metrics_by_steps_are_shown_without_epsilon(tmp_path):
    names = ["soundness_rank", "completeness_share", "calibration", "soundness"]
    evaluation = make_run(tmp_path / "run", metrics=names)
    [shown] = content_of(write_report([evaluation], tmp_path / "r.html"))["runs"]
    assert shown["plane"]["metrics"] == names[:2]
    assert evaluation.results.front
    assert "soundness, completeness, calibration: 20 steps, by log-odds" in dict(shown["facts"])["Protocol"]
    assert [metric["y"] for metric in shown["metrics"]][:2] == [
        "soundness of what is included",
        "share of predictive information",
    ]


def test_columns_of_the_headline_are_marked_with_what_they_depend_on(run):
    columns = {column["key"]: column for column in describe_run(run, "r")["table"]["columns"]}
    sides = ("soundness_rank", "completeness_share")
    assert [key for key, column in columns.items() if column["headline"]] == [
        key for side in sides for key in (side, f"{side}_skill")
    ]
    assert {key: column["settings"] for key, column in columns.items() if column["settings"]} == {
        **dict.fromkeys((*sides, "calibration"), "20 steps"),
        "soundness": "ε = 0.01, 12 levels",
        "completeness": "9 thresholds",
        **dict.fromkeys(("road_morf", "road_lerf", "road_gain"), "9 levels"),
        **{
            key: f"{len(run.results.methods['random'].metrics[key].levels)} levels" for key in ("deletion", "insertion")
        },
    }


def test_the_headline_pair_and_calibration_are_drawn_first(run, tmp_path):
    shown = [metric["key"] for metric in describe_run(run, "r")["metrics"] if not metric["folded"]]
    assert shown == ["soundness_rank", "completeness_share", "calibration"]
    other = make_run(tmp_path / "run", samples=image_samples(4), metrics=["deletion", "insertion"])
    assert not any(metric["folded"] for metric in describe_run(other, "r")["metrics"])


def test_methods_are_shown_with_their_options(tmp_path):
    def mine(model, inputs, targets, *, ids=None, seed=0, power=1):
        return inputs.abs().sum(1) ** power

    methods = {
        "wide": {"method": "occlusion", "window": 4, "batch_size": 8},
        "integrated_gradients": {"method": "integrated_gradients", "steps": 32},
        "mine": {"method": mine, "power": 2},
    }
    maps = {"stored": torch.rand(4, 10, 10, generator=torch.manual_seed(0))}
    run = make_run(tmp_path / "run", samples=image_samples(4), methods=methods, maps=maps, metrics=["deletion"])
    about = {method["name"]: method["about"] for method in describe_run(run, "r")["methods"]}
    assert about["wide"]["changed"] == [["window", "4"]]
    assert about["wide"]["usual"] == []  # its other options depend on the inputs
    assert about["wide"]["description"].startswith("Occlusion (Zeiler & Fergus 2014)")
    assert about["integrated_gradients"]["changed"] == []
    assert about["integrated_gradients"]["usual"] == [["steps", "32"], ["baseline", "0.0"]]
    assert re.fullmatch(r"dropped, [0-9.]+% of all attribution", about["integrated_gradients"]["negative"])
    assert (about["mine"]["changed"], about["mine"]["usual"]) == ([["power", "2"]], [])
    assert re.fullmatch(r"Your function .*mine, digest [0-9a-f]{8}\.", about["mine"]["description"])
    assert re.fullmatch(r"Your maps, digest [0-9a-f]{8}\.", about["stored"]["description"])
    assert all(each["seconds"] is None or each["seconds"] >= 0 for each in about.values())


def test_the_page_says_how_a_run_stopped_and_what_its_features_are(run):
    stopping = StoppingResults(
        until="0.05", met=True, widest=0.04, samples=12, of=40, look=2, looks=4, confidence=0.98, spent=0.031
    )
    data = dataclasses.replace(run.results.data, feature_kind="channels")
    shown = describe_run(changed(run, stopping=stopping, data=data), "r")
    sentence = "Stopped after 12 of 40 samples: every interval within ±0.05, 2 of 4 looks."
    assert sentence in shown["remarks"]
    facts = dict(shown["facts"])
    assert facts["Until"] == (
        f"{sentence} Intervals hold simultaneously for all looks: each has a confidence of 98.0%, and 3.1% of the 5% "
        "are spent."
    )
    assert facts["Features"] == "channels of positions"


def test_the_page_says_how_small_a_difference_the_samples_show(run, tmp_path):
    shown = describe_run(run, "r")["remarks"]
    sizes = {
        metric: visible_difference(pair.difference for pair in run.comparison().pairs if pair.metric == metric)
        for metric in run.results.sides
    }
    text = shown[-1]
    numbers = [float(number) for number in re.findall(r"0\.\d+", text)]
    assert text.startswith("12 samples are enough to see differences of about ")
    assert text.endswith(" in completeness.")
    for number, size in zip(numbers, sizes.values(), strict=True):
        assert size <= number <= 1.1 * size
    alone = make_run(tmp_path / "run", samples=image_samples(4), methods=["saliency"], metrics=["soundness_rank"])
    assert describe_run(alone, "r")["remarks"] == []  # no other method
    paper = make_run(tmp_path / "paper", samples=image_samples(4), metrics=["soundness"])
    assert describe_run(paper, "r")["remarks"] == []  # no interval
