import numpy as np
import pandas as pd
import pytest
import torch

import twinlens as tl
from tests.small_runs import OPTIONS, QUICK, samples
from tests.tiny import tiny_model
from twinlens.errors import RunError
from twinlens.evaluation import evaluate
from twinlens.metrics.catalogue import GROUPS
from twinlens.outcome import open_evaluation
from twinlens.report import write_report


@pytest.mark.slow
def test_results_are_those_of_the_library(tmp_path):
    """The flow in shards, with shared sweeps, gives the curves of the plain functions on the whole data."""
    model, (inputs, labels) = tiny_model(), samples()
    evaluation = evaluate(model, (inputs, labels), ["saliency", "random"], out=tmp_path / "run", seed=3, **OPTIONS)
    ids = [f"{i:05d}" for i in range(10)]
    for method in ("saliency", "random"):
        maps = tl.attribute(model, inputs, labels, method, ids=ids, seed=3)
        torch.testing.assert_close(evaluation.maps(method), maps)
        same = {"ids": ids, "seed": 3, "batch_size": 16}
        arguments = (model, torch.from_numpy(inputs), labels, maps)
        expected = {
            "soundness_rank": tl.soundness(*arguments, estimator="rank", **same),
            "completeness_share": tl.completeness(*arguments, estimator="share", **same),
            "calibration": tl.metrics.measure_metric(tl.Calibration(), *arguments, **same),
            "soundness": tl.soundness(*arguments, steps=20, **same),
            "completeness": tl.completeness(*arguments, **same),
            "road_morf": tl.road(*arguments, order="morf", **same),
            "road_lerf": tl.road(*arguments, order="lerf", **same),
            "road_gain": tl.metrics.measure_metric(tl.RoadGain(), *arguments, **same),
        }
        assert list(expected) == list(GROUPS["default"])
        for metric, curve in expected.items():
            found = evaluation.curve(method, metric)
            np.testing.assert_array_equal(found.levels, curve.levels)
            np.testing.assert_array_equal(found.performance, curve.performance)
            np.testing.assert_allclose(found.values, curve.values, rtol=1e-12)
            stored = evaluation.results.methods[method].metrics[metric]
            assert stored.performance == tuple(curve.performance.tolist())
    assert "saliency" in evaluation._repr_html_()
    frame = evaluation.summary()
    assert list(frame.columns) == [
        "method", "metric", "value", "low", "high", "control", "skill", "skill_low", "skill_high", "p"
    ]  # fmt: skip
    assert frame.attrs["warnings"] == list(evaluation.results.warnings) != []
    assert list(frame["method"].unique()) == ["saliency", "random"]
    values = frame.set_index(["method", "metric"])["value"]
    assert values["random", "road_morf"] == evaluation.curve("random", "road_morf").area()


def test_areas_of_the_papers_soundness_go_up_to_a_level_of_model_and_data(tmp_path):
    evaluation = evaluate(
        tiny_model(), samples(), ["saliency", "random"], metrics=["soundness"], out=tmp_path / "run", **QUICK
    )
    high = 0.9 * evaluation.results.accuracy
    assert evaluation.results.soundness_up_to == {"soundness": high}
    for method in evaluation.methods:
        curve = evaluation.curve(method, "soundness")
        assert evaluation.results.area(method, "soundness") == curve.area(high=high)


def test_no_number_changes_when_a_method_joins(tmp_path):
    """Nor does anything else that is about a method alone."""
    alone = evaluate(tiny_model(), samples(), ["saliency"], out=tmp_path / "run", **QUICK)
    joined = evaluate(tiny_model(), samples(), ["saliency", "random", "centre"], out=tmp_path / "run", **QUICK)
    assert joined.methods == ["saliency", "random", "centre"]
    assert joined.results.methods["saliency"] == alone.results.methods["saliency"]
    before, after = (each.summary().set_index(["method", "metric"]).loc["saliency"] for each in (alone, joined))
    pd.testing.assert_frame_equal(before, after)


@pytest.mark.slow
def test_adding_gives_what_asking_at_once_gives(tmp_path):
    data = samples()
    evaluate(tiny_model(), data, ["random"], metrics=["road_lerf"], out=tmp_path / "steps", **OPTIONS)
    steps = evaluate(tiny_model(), data, ["centre"], metrics=["soundness"], out=tmp_path / "steps", **OPTIONS)
    stored = steps.results.methods
    assert list(stored["centre"].metrics) == ["road_lerf", "soundness"]
    assert list(stored["random"].metrics) == ["road_lerf"]  # until it is asked for again
    with pytest.raises(ValueError, match="`metric` must be one of road_lerf; got 'soundness'"):
        steps.curve("random", "soundness")
    steps = evaluate(tiny_model(), data, ["random"], metrics=["soundness"], out=tmp_path / "steps", **OPTIONS)
    once = evaluate(
        tiny_model(), data, ["random", "centre"], metrics=["road_lerf", "soundness"], out=tmp_path / "once", **OPTIONS
    )
    for method in ("random", "centre"):
        for metric in ("road_lerf", "soundness"):
            one, other = steps.curve(method, metric), once.curve(method, metric)
            np.testing.assert_array_equal(one.performance, other.performance)
            np.testing.assert_allclose(one.table.logit, other.table.logit, atol=1e-6)


def test_equal_runs_give_equal_bytes(tmp_path):
    for name in ("one", "two"):
        evaluate(tiny_model(), samples(), ["saliency"], out=tmp_path / name, **QUICK)
    one, two = ((tmp_path / name / "results.json").read_bytes() for name in ("one", "two"))
    assert one == two
    assert b"second" not in one


def test_a_method_that_fails_leaves_the_others(tmp_path):
    def late(model, inputs, targets, *, ids=None, seed=0):
        if "00007" in ids:
            raise RuntimeError("out of ideas")
        return inputs[:, 0].abs()

    asked = {"metrics": ["road_morf"], "out": tmp_path / "run", **OPTIONS}
    fails = "late fails and is left out: `method` raised RuntimeError: out of ideas"
    with pytest.warns(UserWarning, match=fails):
        partly = evaluate(tiny_model(), samples(), {"late": late, "random": "random"}, **asked)
    assert partly.methods == ["random"]
    assert "1 methods, 1 failed" in repr(partly)
    assert isinstance(partly.failures["late"].__cause__, RuntimeError)
    with (
        pytest.warns(UserWarning, match=fails),
        pytest.raises(RunError, match=r"is incomplete\. late: `method` raised RuntimeError: out of ideas\."),
    ):
        evaluate(tiny_model(), samples(), {"late": late, "random": "random"}, strict=True, **asked)
    assert open_evaluation(tmp_path / "run").methods == ["random"]
    assert (tmp_path / "run" / "maps" / "late" / "00000.safetensors").exists()


def test_maps_alone(tmp_path):
    maps = evaluate(tiny_model(), samples(), ["random"], metrics=[], out=tmp_path / "run", **OPTIONS)
    assert maps.maps("random").shape == (10, 9, 9)
    assert len(maps.summary()) == 0
    whole = evaluate(tiny_model(), samples(), ["random"], metrics=["deletion"], out=tmp_path / "run", **OPTIONS)
    assert list(whole.summary()["metric"]) == ["deletion"]


def test_without_a_directory_there_is_a_temporary_one():
    evaluation = evaluate(tiny_model(), samples(4), ["random"], metrics=["deletion"], **OPTIONS)
    assert (evaluation.path / "results.json").exists()
    assert repr(evaluation).startswith("Evaluation(1 methods, 4 samples")


def test_a_run_on_another_file_system(tmp_path):
    """A run that fsspec keeps elsewhere has the bytes of one on this machine, goes on, and can be shown."""
    asked = {"metrics": ["soundness", "deletion"], "imputer": tl.ConstantImputer(0.0), **OPTIONS}
    for out in (tmp_path / "run", "memory://runs/one"):
        evaluate(tiny_model(), samples(), ["random"], out=out, **asked)
        evaluate(tiny_model(), samples(), ["random", "centre"], out=out, **asked)
    there, here = open_evaluation("memory://runs/one"), open_evaluation(tmp_path / "run")
    parts = [
        path
        for path in here.path.rglob("*")
        if path.is_file() and path.name not in (".lock", "timings.json", "report.html")
    ]
    for part in parts:
        assert (there.path / str(part.relative_to(here.path))).read_bytes() == part.read_bytes()
    torch.testing.assert_close(there.maps("centre"), here.maps("centre"))
    assert there.curve("centre", "soundness").table == here.curve("centre", "soundness").table
    assert "centre" in (there.path / "report.html").read_text()
    assert str(write_report([there], there.path / "report.html")) == "memory://runs/one/report.html"
    assert "centre" in (there.path / "report.html").read_text()
    with pytest.raises(RunError, match=r"holds no run: run\.json is missing"):
        open_evaluation("memory://runs/two")
