import dataclasses
import json

import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.metrics.catalogue import METRICS, describe_metric, find_metrics, rebuild_metric
from twinlens.metrics.sweeps import merge_sweeps
from twinlens.run.manifest import Settings
from twinlens.support.fields import fields_of

LATE = dataclasses.replace(tl.metrics.PROTOCOLS["paper"], name="late", start_level=0.3)
IMPUTERS = [
    None,
    tl.LinearImputer(noise=0.5),
    tl.ConstantImputer(2.0),
    tl.MeanImputer(),
    tl.MeanImputer(0.5),
    tl.MeanImputer([0.5, 1.5, 2.5]),
    tl.MeanImputer(np.arange(12.0).reshape(3, 2, 2)),
    tl.BlurImputer(sigma=2.0),
]
CHANGES = {
    "soundness": {"epsilon": 0.02, "levels": (0.9, 0.5), "performance": "logit", "start_level": 0.04},
    "completeness": {"thresholds": (0.8, 0.4), "relative": False, "performance": "top5"},
    "road_morf": {"levels": (0.2, 0.4)},
    "road_gain": {"levels": (0.2, 0.4)},
    "road_lerf": {"levels": (0.2, 0.4), "performance": "probability"},
    "deletion": {"levels": (0.5,)},
    "insertion": {"levels": (0.5,)},
    "soundness_rank": {"steps": 10},
    "completeness_share": {"steps": 10},
    "calibration": {"steps": 10},
    "soundness_rank_against": {"steps": 10},
    "completeness_share_against": {"steps": 10},
    "calibration_against": {"steps": 10},
}


def worst_probability(table):
    return table.probability.min(axis=0)


def worse_probability(table):
    return table.probability.mean(axis=0)


def test_names_are_those_of_the_contract():
    assert list(METRICS) == [
        "soundness_rank",
        "completeness_share",
        "calibration",
        "soundness",
        "completeness",
        "road_morf",
        "road_lerf",
        "road_gain",
        "deletion",
        "insertion",
        "soundness_rank_against",
        "completeness_share_against",
        "calibration_against",
    ]
    assert all(metric.name == name for name, metric in METRICS.items())
    better = {name for name, metric in METRICS.items() if metric.about.higher_is_better}
    assert set(METRICS) - better == {"road_lerf", "insertion", "calibration", "calibration_against"}


def test_groups_stand_for_their_metrics():
    assert list(find_metrics("headline")) == ["soundness_rank", "completeness_share"]
    assert find_metrics("paper") == {"soundness": tl.Soundness(), "completeness": tl.Completeness()}
    assert find_metrics("all") == {name: metric for name, metric in METRICS.items() if "against" not in name}
    assert find_metrics("default")["soundness"] == tl.Soundness(steps=20)
    assert find_metrics("default", {"levels": (0.9, 0.5)})["soundness"] == tl.Soundness(steps=20, levels=(0.9, 0.5))
    assert list(find_metrics(["headline", "deletion", "headline"])) == [*find_metrics("headline"), "deletion"]
    assert find_metrics(["default", "soundness"])["soundness"] == tl.Soundness()
    with pytest.raises(ValueError, match=r"one of soundness_rank, .*, default, headline.*Did you mean 'headline'\?"):
        find_metrics("headlin")


@pytest.mark.parametrize(("group", "most"), [("default", 75), ("headline", 60)])
@pytest.mark.parametrize("features", [20, 30, 50, 784, 3 * 1024, 224 * 224])
def test_calls_of_the_model_for_each_sample_and_method_with_its_control(group, most, features):
    metrics = {name: metric.bound(tl.LinearImputer(), neighbours=True) for name, metric in find_metrics(group).items()}
    options = tl.Options(metrics=group)
    settings = Settings.of(metrics, tl.LinearImputer(), options, samples=100)
    calls = 0.0
    for sweep in merge_sweeps(settings.sweeps(metrics, features)):
        # The answer for the original input is shared by all methods.
        original = {("area", 0.0), ("value", 1.0)} & {(sweep.schedule.by, level) for level in sweep.schedule.levels}
        calls += (len(sweep.schedule.levels) - len(original)) * (sweep.exchanged or 1.0)
    assert most * 0.7 < calls <= most


def test_one_name_or_one_value_stands_for_a_list_of_one():
    assert find_metrics("completeness") == {"completeness": tl.Completeness()}
    assert find_metrics(tl.Road(order="lerf")) == {"road_lerf": tl.Road(order="lerf")}
    assert find_metrics(()) == {}


def test_names_and_values_in_a_list():
    found = find_metrics(["completeness", tl.Soundness(epsilon=0.02), "road_morf"])
    assert found == {
        "completeness": tl.Completeness(),
        "soundness": tl.Soundness(epsilon=0.02),
        "road_morf": tl.Road(order="morf"),
    }
    assert list(find_metrics(["soundness", tl.Soundness()])) == ["soundness"]  # the same twice is once


def test_metrics_of_one_name_are_told_apart_by_what_is_not_usual():
    own = [tl.ConstantImputer(1.0), tl.ConstantImputer(2.0)]
    found = find_metrics(["soundness", tl.Soundness(epsilon=0.02, performance="logit"), tl.Soundness(levels=(0.5,))])
    assert list(found) == [
        "soundness",
        "soundness(performance='logit', epsilon=0.02)",
        "soundness(levels=(0.5,))",
    ]
    found = find_metrics(["deletion", *(tl.Deletion(imputer=imputer) for imputer in own)])
    assert [metric.imputer for metric in found.values()] == [None, *own]
    assert list(found)[2] == "deletion(imputer=ConstantImputer(value=2.0))"
    found = find_metrics(["soundness", tl.Soundness(performance=worst_probability)])
    assert list(found) == ["soundness", "soundness(performance=…)"]


def test_metrics_that_differ_in_a_function_need_names_of_their_own():
    metrics = [tl.Soundness(performance=each) for each in ("accuracy", worst_probability, worse_probability)]
    with pytest.raises(ValueError, match=r"`metrics` has two called soundness\(performance=…"):
        find_metrics(metrics)
    named = find_metrics({f"my {k}": metric for k, metric in enumerate(metrics)})
    assert list(named.values()) == metrics


def test_tables_name_metrics_as_one_likes():
    found = find_metrics(
        {
            "mine": {"metric": "soundness", "epsilon": 0.05, "imputer": {"name": "constant", "value": 1}},
            "soundness_rank": {"steps": 10},  # the name of the metric itself
            "as it is": "road_lerf",
            "ready": tl.Deletion(levels=(0.5,)),
        }
    )
    assert found == {
        "mine": tl.Soundness(epsilon=0.05, imputer=tl.ConstantImputer(1.0)),
        "soundness_rank": tl.Soundness(estimator="rank", steps=10),
        "as it is": tl.Road(order="lerf"),
        "ready": tl.Deletion(levels=(0.5,)),
    }


def test_options_of_the_run_go_to_metrics_given_by_name():
    shared = {"epsilon": 0.05, "performance": "logit", "levels": (0.9, 0.5), "protocol": "soco"}
    found = find_metrics(["soundness", "completeness", "insertion", tl.Road()], shared)
    assert found["soundness"] == tl.Soundness(epsilon=0.05, performance="logit", levels=(0.9, 0.5), protocol="soco")
    assert found["completeness"] == tl.Completeness(performance="logit", protocol="soco")
    assert found["insertion"] == tl.Insertion(performance="logit", protocol="soco")  # whose levels are others
    assert found["road_morf"] == tl.Road()  # a value has all that it needs
    table = {"mine": {"metric": "soundness", "epsilon": 0.2}}
    assert find_metrics(table, shared)["mine"] == dataclasses.replace(found["soundness"], epsilon=0.2)
    assert METRICS["soundness"] == tl.Soundness()


@pytest.mark.parametrize(
    ("requests", "kind", "message"),
    [
        (
            "soundnes",
            ValueError,
            r"^`metrics` must be one of soundness_rank, .*; got 'soundnes'\. Did you mean 'soundness'\?$",
        ),
        (["accuracy"], ValueError, r"^`metrics` must be one of .*; got 'accuracy'\.$"),
        ([3], ValueError, r"^`metrics` must be one of .*; got 3\.$"),
        ({"mine": 3}, ValueError, r"^`metrics` must be one of .*; got 3\.$"),
        ({"mine": {"epsilon": 0.1}}, ValueError, r"^`metrics` must be one of .*; got 'mine'\.$"),
        (
            {"mine": {"metric": "soundness", "epsillon": 0.1}},
            ValueError,
            r"^`metrics\.mine` must be one of performance, .*; got 'epsillon'\. Did you mean 'epsilon'\?$",
        ),
        ({"deletion": {"epsilon": 0.1}}, ValueError, r"^`metrics\.deletion` must be one of .*; got 'epsilon'\.$"),
        ({"soundness": {"epsilon": "x"}}, TypeError, r"^`epsilon` must be a number; got 'x'\.$"),
        ({"soundness": {"epsilon": -1}}, ValueError, r"^`epsilon` must be >= 0"),
        ({"soundness": {"start_level": "x"}}, TypeError, r"^`start_level` must be a number; got 'x'\.$"),
        ({"soundness": {"start_level": float("nan")}}, TypeError, r"^`start_level` must be a number; got nan\.$"),
        ({"soundness_rank": {"start_level": 0.1}}, ValueError, r"^`start_level` belongs to estimator 'paper'"),
        ({"soundness": {"estimator": "ranks"}}, ValueError, r"^`estimator` must be .*Did you mean 'rank'\?$"),
        ({"soundness": {"levels": [0.5, 0.9]}}, ValueError, r"^`levels` must decrease within \[0, 1\)"),
        ({"road_morf": {"levels": [0.9, 0.5]}}, ValueError, r"^`levels` must increase within \(0, 1\]"),
        ({"completeness": {"relative": "no"}}, TypeError, r"^`relative` must be true or false; got 'no'\.$"),
        ({"completeness": {"thresholds": 3}}, TypeError, r"^`thresholds` must be a list of numbers; got 3\.$"),
        ({"deletion": {"imputer": "zero"}}, ValueError, r"^`imputer` must be one of linear, constant, mean, blur"),
        (
            {"deletion": {"performance": "acuracy"}},
            ValueError,
            r"^`performance` must be one of accuracy, .* a function of .*Did you mean 'accuracy'\?$",
        ),
        ({"deletion": {"protocol": "papr"}}, ValueError, r"^`protocol` must be .*Did you mean 'paper'\?$"),
    ],
)
def test_mistakes_are_refused_by_name(requests, kind, message):
    with pytest.raises(kind, match=message):
        find_metrics(requests)


@pytest.mark.parametrize("imputer", IMPUTERS, ids=repr)
@pytest.mark.parametrize("name", METRICS)
def test_descriptions_survive_json_and_become_metrics_again(name, imputer):
    assert set(CHANGES) == set(METRICS)
    for protocol in ("soco", LATE):
        metric = dataclasses.replace(METRICS[name], imputer=imputer, protocol=protocol, **CHANGES[name])
        stored = json.loads(json.dumps(describe_metric(metric)))
        assert stored["metric"] == name
        assert set(stored) == {"metric"} | {field.name for field in fields_of(type(metric))}
        again = rebuild_metric(stored)
        assert type(again) is type(metric)
        if not isinstance(imputer, tl.MeanImputer):  # whose numbers are an array
            assert again == metric
        assert repr(again) == repr(metric)
        assert again.sweeps(100)[0].schedule == metric.sweeps(100)[0].schedule
        assert describe_metric(again) == stored


def test_a_function_as_performance_cannot_come_back():
    for metric in METRICS.values():
        own = dataclasses.replace(metric, performance=worst_probability)
        assert rebuild_metric(json.loads(json.dumps(describe_metric(own)))) is None


def test_imputers_that_a_description_does_not_hold_are_named_and_impute_nothing():
    def own_imputer(inputs, keep, streams):
        return inputs

    for imputer in (own_imputer, tl.MeanImputer(np.arange(5000.0))):  # more numbers than a description stores
        stored = json.loads(json.dumps(describe_metric(tl.Deletion(imputer=imputer))))
        again = rebuild_metric(stored)
        assert describe_metric(again) == stored
        with pytest.raises(tl.RunError, match=r"`imputer` of this run is a custom one .*Pass it again"):
            again.imputer(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), [0])


def test_functions_are_told_apart_by_their_source():
    described = describe_metric(tl.Soundness(performance=worst_probability))["performance"]
    assert described["function"] == "worst_probability"
    assert described == describe_metric(tl.Completeness(performance=worst_probability))["performance"]
    assert described["source"] != describe_metric(tl.Soundness(performance=worse_probability))["performance"]["source"]


def test_metrics_take_the_imputer_of_the_run_where_they_have_none():
    main = tl.ConstantImputer(3.0)
    for name in ("soundness", "soundness_rank", "completeness", "road_morf", "road_lerf"):
        assert METRICS[name].bound(main, neighbours=True).imputer == main
    for name, own in (("deletion", tl.ConstantImputer(0.0)), ("insertion", tl.BlurImputer())):
        assert METRICS[name].bound(main, neighbours=True).imputer == own
        assert METRICS[name].bound(main, neighbours=False).imputer == main
    for metric in METRICS.values():
        own = dataclasses.replace(metric, imputer=tl.LinearImputer(noise=0.5))
        assert own.bound(main, neighbours=False) == own
