import json
import os

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.small_runs import OPTIONS, QUICK, samples, script
from tests.tiny import tiny_model
from twinlens.errors import RunError
from twinlens.evaluation import evaluate
from twinlens.metrics.catalogue import DEFAULT_METRICS, METRICS
from twinlens.probing.exchange import draw_controlled
from twinlens.report import write_report
from twinlens.run.directory import RunDirectory, read_run
from twinlens.run.manifest import Manifest
from twinlens.run.run_reader import open_evaluation
from twinlens.run.sample_selection import read_selection


class Counting(nn.Module):
    """The tiny model, which remembers how many inputs it was asked about."""

    def __init__(self):
        super().__init__()
        self.inner = tiny_model()
        self.asked = 0

    def forward(self, x):
        self.asked += len(x)
        return self.inner(x)


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
            "soundness_two_sided": tl.soundness(*arguments, estimator="two_sided", **same),
            "completeness": tl.completeness(*arguments, **same),
            "soundness": tl.soundness(*arguments, **same),
            "road_morf": tl.road(*arguments, order="morf", **same),
            "road_lerf": tl.road(*arguments, order="lerf", **same),
            "deletion": tl.deletion(*arguments, **same),
            "insertion": tl.insertion(*arguments, **same),
        }
        assert tuple(expected) == DEFAULT_METRICS
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
    assert values["random", "deletion"] == evaluation.curve("random", "deletion").area()


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


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_control_is_that_of_the_library(tmp_path, share):
    """Exchanged maps of other shards, probed in shards, give what the plain functions do on the whole data."""
    model, (inputs, labels) = tiny_model(), samples()
    evaluation = evaluate(
        model, (inputs, labels), ["saliency"], control="all", control_share=share, out=tmp_path / "run", seed=3,
        **QUICK,
    )  # fmt: skip
    ids = evaluation.ids()
    exchanged = tl.exchange_maps(evaluation.maps("saliency"), labels, ids=ids, seed=3)
    chosen = draw_controlled(ids, share, seed=3)
    for name in DEFAULT_METRICS:
        metric = METRICS[name].bound(tl.ConstantImputer(0.1), neighbours=True)
        curves = [
            tl.measure_metric(
                metric,
                model,
                torch.from_numpy(inputs)[chosen],
                labels[chosen],
                maps[chosen],
                ids=[ids[k] for k in chosen],
                seed=3,
                batch_size=16,
            )
            for maps in (evaluation.maps("saliency"), exchanged)
        ]
        found = evaluation.results.skill("saliency", name)
        high = evaluation.results.soundness_up_to.get(name)
        expected = tl.skill(*curves, high=high, resamples=100)
        assert found.value == pytest.approx(expected.value, abs=1e-6)
        if name == "soundness":  # judged by accuracy, for all samples at once
            assert (found.low, found.high, found.p) == (None, None, None)
        else:
            ends = (expected.low, expected.high, expected.p)
            assert (found.low, found.high, found.p) == pytest.approx(ends, abs=1e-5)
        assert found.samples == len(chosen) == round(10 * share)
        sign = 1 if curves[0].higher_is_better else -1
        control = evaluation.results.methods["saliency"].metrics[name].control
        assert evaluation.results.area("saliency", name) - sign * found.value == pytest.approx(control.value)


@pytest.mark.slow
def test_shards_change_nothing_about_the_control(tmp_path):
    runs = [
        evaluate(
            tiny_model(), samples(), ["saliency", "random"], out=tmp_path / str(size), **{**QUICK, "shard_size": size}
        )
        for size in (1, 3, 10)
    ]
    for method in ("saliency", "random"):
        for metric in ("soundness_two_sided", "completeness", "insertion"):
            skills = [run.results.skill(method, metric).value for run in runs]
            assert skills == pytest.approx([skills[0]] * 3, abs=1e-6)


def test_what_the_control_costs(tmp_path):
    """Both estimators, completeness and the control: 1.7 times the paper's sweep and completeness; 1.1 without it."""
    data, paper = samples(), 98 + 10
    for metrics, most in (
        (["soundness_two_sided", "completeness", "soundness"], 1.7),
        (["soundness_two_sided", "completeness"], 1.1),
    ):
        model = Counting()
        evaluate(model, data, ["random"], metrics=metrics, out=tmp_path / str(most), **QUICK)
        assert 0.9 * most * paper < model.asked / len(data[1]) <= most * paper


def test_the_control_can_be_added_widened_and_left_out(tmp_path):
    model, data, out = Counting(), samples(), tmp_path / "run"
    asked = {"metrics": ["deletion"], "out": out, **QUICK}
    without = evaluate(model, data, ["random"], control="none", **asked)
    assert without.results.skill("random", "deletion") is None
    before = model.asked
    half = evaluate(model, data, ["random"], **asked)
    assert model.asked - before == 5 * 9
    assert half.results.skill("random", "deletion").samples == 5
    assert half.results.area("random", "deletion") == without.results.area("random", "deletion")
    whole = evaluate(model, data, ["random"], control_share=1.0, **asked)
    assert whole.results.skill("random", "deletion").samples == 10
    again = half.ask(tl.Deletion(performance="probability"))
    assert again.results.skill("random", "deletion").samples == 5
    asked_before = model.asked
    assert evaluate(model, data, ["random"], control="none", **asked).results.skill("random", "deletion") is None
    assert model.asked == asked_before


def test_one_sample_has_nothing_to_be_exchanged_with(tmp_path):
    inputs, labels = samples(1)
    found = evaluate(tiny_model(), (inputs, labels), ["random"], metrics=["deletion"], out=tmp_path / "run", **OPTIONS)
    assert found.results.skill("random", "deletion") is None


def test_probes_are_shared_and_nothing_is_asked_again(tmp_path):
    model, data, out = Counting(), samples(), tmp_path / "run"
    how = {**QUICK, "control": "none"}
    evaluate(model, data, ["random"], metrics=["soundness"], out=out, **how)
    before = model.asked
    evaluate(model, data, ["random"], metrics=["soundness", "road_lerf"], out=out, **how)
    # ROAD's levels are those of soundness, and its first level is the untouched input.
    assert model.asked == before
    first = (out / "results.json").read_bytes()
    evaluate(model, data, ["random"], metrics=["soundness", "road_lerf"], out=out, **how)
    assert model.asked == before
    assert (out / "results.json").read_bytes() == first
    added = evaluate(model, data, ["random", "centre"], metrics=["deletion"], out=out, **how)
    assert added.methods == ["random", "centre"]
    assert added.metrics == ["soundness", "road_lerf", "deletion"]
    assert model.asked - before == 10 * 9 + 10 * (98 + 9)
    before = model.asked
    evaluate(model, data, ["random", "centre"], metrics=["deletion"], out=out, **QUICK)
    assert model.asked - before == 2 * 5 * (9 + 9)  # ROAD and deletion of both, on half of the samples


def test_results_say_what_maps_are_like(tmp_path, monkeypatch):
    """Sparseness and entropy of all shards, with intervals over samples; another question measures no map again."""
    evaluation = evaluate(
        tiny_model(), samples(), ["saliency", "random"], metrics=["completeness"], out=tmp_path, **QUICK
    )
    frame = evaluation.properties()
    assert list(frame.columns) == ["method", "property", "value", "low", "high", "samples"]
    assert set(frame["property"]) == {"sparseness", "entropy"}
    for method in evaluation.methods:
        for name, function in (("sparseness", tl.sparseness), ("entropy", tl.map_entropy)):
            [row] = frame[(frame["method"] == method) & (frame["property"] == name)].itertuples()
            assert row.value == pytest.approx(function(evaluation.maps(method)).mean())
            assert row.low < row.value < row.high
            assert row.samples == 10
            assert evaluation.overview()["properties"][method][name] == row.value
    assert len(evaluation.summary()) == 2  # one row per method and metric, as ever
    stored = json.loads((tmp_path / "results.json").read_text())
    for found in stored["methods"].values():
        del found["properties"]  # as a run has them that was made before there were any
    monkeypatch.setattr("twinlens.run.table_reader._measure_maps", lambda maps: pytest.fail("maps are read again"))
    asked = open_evaluation(tmp_path).ask([tl.Completeness(thresholds=(0.5,))])
    assert asked.properties().equals(frame)
    monkeypatch.undo()
    (tmp_path / "results.json").write_text(json.dumps(stored))
    old = open_evaluation(tmp_path)
    assert old.properties().empty
    assert "sparseness" not in tl.format_table([old], "csv")
    assert old.ask(["completeness"]).properties().equals(frame)


@pytest.mark.slow
def test_another_question_reads_the_same_probes(tmp_path):
    """Neither another epsilon nor another measure calls the model, by `ask` or by `evaluate` in the same place."""
    model, data, out = Counting(), samples(), tmp_path / "run"
    first = evaluate(model, data, ["random", "centre"], out=out, **QUICK)
    asked, parts = model.asked, {p: p.stat().st_mtime_ns for p in out.rglob("*.parquet")}
    strict = first.ask([tl.Soundness(epsilon=0.3), "completeness"])
    assert strict.metrics == ["soundness", "completeness"]
    again = evaluate(model, data, ["random", "centre"], out=out, epsilon=0.3, **QUICK)
    for evaluation in (strict, again, open_evaluation(out)):
        curve = evaluation.curve("random", "soundness")
        expected = tl.soundness_from_probes(first.curve("random", "soundness").table, epsilon=0.3)
        np.testing.assert_array_equal(curve.values, expected.values)
        assert curve.epsilon == 0.3
    assert again.results.methods["random"].metrics["soundness"] == strict.results.methods["random"].metrics["soundness"]
    probability = first.ask({"mine": tl.Soundness(performance="probability"), "road": "road_morf"})
    assert probability.metrics == ["mine", "road"]
    assert open_evaluation(out).results.question.metrics["mine"]["performance"] == "probability"
    assert model.asked == asked
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*.parquet")} == parts
    back = evaluate(model, data, ["random", "centre"], out=out, metrics=list(DEFAULT_METRICS), **QUICK)
    assert back.results.methods["centre"].metrics["soundness"] == first.results.methods["centre"].metrics["soundness"]


@pytest.mark.slow
def test_what_was_not_measured_cannot_be_asked_but_is_computed(tmp_path):
    model, data, out = Counting(), samples(), tmp_path / "run"
    first = evaluate(model, data, ["random"], metrics=["soundness"], out=out, **OPTIONS)
    with pytest.raises(RunError, match=r"has no probes for completeness.*only what is missing is computed"):
        first.ask("completeness")
    with pytest.raises(RunError, match="has no probes for soundness_two_sided"):
        first.ask("soundness_two_sided")
    with pytest.raises(RunError, match="has no probes for soundness: it needs levels or an imputer"):
        first.ask(tl.Soundness(imputer=tl.BlurImputer()))
    before = model.asked
    both = evaluate(model, data, ["random"], metrics=["soundness_two_sided"], control="none", out=out, **OPTIONS)
    assert both.metrics == ["soundness", "soundness_two_sided"]
    opposite = next(sweep for sweep in both.run.manifest.sweeps if sweep.schedule.order == "morf")
    assert model.asked - before == 10 * (len(opposite.schedule.levels) - 1)  # without the untouched inputs
    expected = tl.soundness(
        tiny_model(), *map(torch.from_numpy, data), both.maps("random"), estimator="two_sided",
        ids=both.ids(), batch_size=16,
    )  # fmt: skip
    np.testing.assert_allclose(both.curve("random", "soundness_two_sided").values, expected.values, rtol=1e-9)


def test_metrics_with_options_of_their_own(tmp_path):
    data, out = samples(), tmp_path / "run"
    metrics = [tl.Soundness(epsilon=0.02, levels=(0.9, 0.5, 0.1)), tl.Soundness(levels=(0.9, 0.5, 0.1)), "completeness"]
    evaluation = evaluate(tiny_model(), data, ["random"], metrics=metrics, out=out, epsilon=0.5, **OPTIONS)
    assert evaluation.metrics == ["soundness", "soundness(levels=(0.9, 0.5, 0.1))", "completeness"]
    assert [evaluation.curve("random", name).epsilon for name in evaluation.metrics[:2]] == [0.02, 0.01]
    # Options of the run are for metrics given by name; both soundness metrics share one sweep of three levels.
    [sweep] = [s for s in evaluation.run.manifest.sweeps if s.schedule.order == "lerf"]
    assert sweep.schedule.levels == (0.9, 0.5, 0.1)
    absolute = evaluate(
        tiny_model(), data, ["random"], metrics={"absolute": tl.Completeness(relative=False)}, out=out, **OPTIONS
    )
    expected = tl.completeness(
        tiny_model(), *map(torch.from_numpy, data), absolute.maps("random"), relative=False, ids=absolute.ids(),
        batch_size=16,
    )  # fmt: skip
    np.testing.assert_allclose(absolute.curve("random", "absolute").values, expected.values)


def test_a_measure_of_ones_own(tmp_path):
    def margin(table):
        return table.probability

    evaluation = evaluate(
        tiny_model(), samples(), ["random"], metrics={"mine": tl.Deletion(performance=margin)}, out=tmp_path / "run",
        **OPTIONS,
    )  # fmt: skip
    assert evaluation.curve("random", "mine").measure == "margin"
    stored = open_evaluation(tmp_path / "run")
    assert stored.results == evaluation.results
    with pytest.raises(RunError, match="mine was measured by a function of yours"):
        stored.curve("random", "mine")
    assert stored.ask({"mine": tl.Deletion(performance=margin)}).results == evaluation.results


@pytest.mark.parametrize("imputer", ["constant", "mean", "blur", {"name": "constant", "value": 0.5}])
def test_imputers_by_name(tmp_path, imputer):
    data = samples()
    evaluation = evaluate(
        tiny_model(), data, ["random"], metrics=["road_morf"], imputer=imputer, out=tmp_path / "run", **OPTIONS
    )
    known = {
        "constant": tl.ConstantImputer(0.0),
        "blur": tl.BlurImputer(),
        "mean": tl.MeanImputer(data[0].mean(axis=(0, 2, 3), dtype=np.float64)),
    }
    own = known[imputer] if isinstance(imputer, str) else tl.ConstantImputer(0.5)
    expected = tl.road(
        tiny_model(), *map(torch.from_numpy, data), evaluation.maps("random"), imputer=own, ids=evaluation.ids(),
        batch_size=16,
    )  # fmt: skip
    found = evaluation.curve("random", "road_morf")
    np.testing.assert_allclose(found.table.probability, expected.table.probability, atol=1e-6)
    assert open_evaluation(tmp_path / "run").curve("random", "road_morf").table == found.table


def test_the_mean_as_an_imputer_of_one_metric(tmp_path):
    data = samples()
    metrics = {"by_mean": {"metric": "road_morf", "imputer": "mean"}}
    evaluation = evaluate(tiny_model(), data, ["random"], metrics=metrics, out=tmp_path / "run", **OPTIONS)
    stored = evaluation.results.question.metrics["by_mean"]["imputer"]
    np.testing.assert_allclose(stored["mean"], data[0].mean(axis=(0, 2, 3), dtype=np.float64))


def test_maps_with_signs_and_channels(tmp_path):
    rng = np.random.default_rng(1)
    inputs, labels = samples()
    values = rng.normal(size=(10, 3, 9, 9)).astype(np.float32)
    np.save(tmp_path / "maps.npy", values)

    def signed(model, inputs, targets, *, ids=None, seed=0):
        return torch.from_numpy(values)[[int(name) for name in ids]]

    asked = {"maps": {"stored": str(tmp_path / "maps.npy")}, "metrics": ["road_morf"], **OPTIONS}
    with pytest.raises(ValueError, match=r"Say how to resize it \(`resize`\) or to reduce its channels \(`channels`\)"):
        evaluate(tiny_model(), (inputs, labels), {"own": signed}, out=tmp_path / "run", **asked)
    with pytest.raises(ValueError, match="`sign` 'positive' drops it"):
        evaluate(tiny_model(), (inputs, labels), {"own": signed}, out=tmp_path / "run", channels="sum", **asked)
    reading = {"sign": "absolute", "channels": "sum"}
    evaluation = evaluate(tiny_model(), (inputs, labels), {"own": signed}, out=tmp_path / "run", **reading, **asked)
    for name in ("own", "stored"):
        torch.testing.assert_close(evaluation.maps(name), torch.from_numpy(values).sum(dim=1).abs())
    with pytest.raises(RunError, match=r"methods\.own\.options\.sign is 'absolute' there and 'positive' here"):
        evaluate(
            tiny_model(), (inputs, labels), {"own": signed}, out=tmp_path / "run", sign="positive", channels="sum",
            **asked,
        )  # fmt: skip


def test_a_run_of_another_format_is_refused(tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text(json.dumps({"format": 1, "model": {}}))
    with pytest.raises(
        RunError, match=r"holds a run of format 1, and this twinlens reads 5. Use the version that made it"
    ):
        evaluate(tiny_model(), samples(), ["random"], out=out, **OPTIONS)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, r"seed is 0 there and 1 here"),
        ({"batch_size": 7}, r"execution\.batch_size is 16 there and 7 here"),
        ({"shard_size": 7}, r"execution\.shard_size is 4 there and 7 here"),
        ({"limit": 5}, r"data\.digest.*data\.samples is 10 there and 5 here"),
        ({"methods": {"random": "centre"}}, r"methods\.random\.method is 'random' there and 'centre' here"),
    ],
)
def test_another_run_in_the_same_directory_is_refused(tmp_path, change, message):
    out, data = tmp_path / "run", samples()
    asked = {"methods": ["random"], "metrics": ["road_morf"], "out": out, **OPTIONS}
    evaluate(tiny_model(), data, **asked)
    before = (out / "run.json").read_bytes()
    with pytest.raises(RunError, match=message):
        evaluate(tiny_model(), data, **{**asked, **change})
    assert (out / "run.json").read_bytes() == before


def test_another_model_or_data_in_the_same_directory_is_refused(tmp_path):
    asked = {"methods": ["random"], "metrics": ["road_morf"], "out": tmp_path / "run", **OPTIONS}
    evaluate(tiny_model(), samples(), **asked)
    other = tiny_model()
    with torch.no_grad():
        other[4].bias[0] += 1
    with pytest.raises(RunError, match=r"model\.digest is"):
        evaluate(other, samples(), **asked)
    inputs, labels = samples()
    inputs[3, 0, 0, 0] += 1
    with pytest.raises(RunError, match=r"data\.digest is"):
        evaluate(tiny_model(), (inputs, labels), **asked)


def test_what_was_chosen_is_kept(tmp_path, monkeypatch):
    asked = {"methods": ["random"], "metrics": ["road_morf"], "out": tmp_path / "run"}
    evaluate(tiny_model(), samples(), **asked)
    chosen = json.loads((tmp_path / "run" / "run.json").read_text())["execution"]
    monkeypatch.setattr("twinlens.run.execution_choice.choose_execution", lambda *_, **__: pytest.fail("chosen again"))
    evaluate(tiny_model(), samples(), **{**asked, "methods": ["random", "centre"]})
    assert json.loads((tmp_path / "run" / "run.json").read_text())["execution"] == chosen


@pytest.mark.slow
def test_batch_size_and_workers_change_nothing_that_counts(tmp_path):
    runs = [
        evaluate(tiny_model(), samples(), ["integrated_gradients"], out=tmp_path / str(i), **{**OPTIONS, **change})
        for i, change in enumerate(({"batch_size": 1}, {"batch_size": 33, "workers": 3}, {"shard_size": 10}))
    ]
    for metric in DEFAULT_METRICS:
        tables = [run.curve("integrated_gradients", metric).table for run in runs]
        for table in tables[1:]:
            np.testing.assert_array_equal(table.predicted, tables[0].predicted)
            np.testing.assert_allclose(table.probability, tables[0].probability, atol=1e-4)


def test_a_method_of_ones_own_and_one_with_options(tmp_path):
    def bright(model, inputs, targets, *, ids=None, seed=0, power=1.0):
        return inputs.abs().sum(dim=1) ** power

    methods = {
        "bright": bright,
        "square": {"method": bright, "power": 2.0},
        "ig8": {"method": "integrated_gradients", "steps": 8},
    }
    evaluation = evaluate(tiny_model(), samples(), methods, metrics=["road_morf"], out=tmp_path / "run", **OPTIONS)
    inputs = torch.from_numpy(samples()[0])
    torch.testing.assert_close(evaluation.maps("bright"), inputs.abs().sum(dim=1))
    torch.testing.assert_close(evaluation.maps("square"), inputs.abs().sum(dim=1) ** 2)
    described = json.loads((tmp_path / "run" / "run.json").read_text())["methods"]
    assert (described["ig8"]["method"], described["ig8"]["options"]) == ("integrated_gradients", {"steps": 8})
    assert described["bright"]["source"] == described["square"]["source"]
    # A function that was changed since is another method.
    with pytest.raises(RunError, match=r"methods\.bright\.source"):
        evaluate(
            tiny_model(),
            samples(),
            {"bright": lambda *a, **k: a[1][:, 0]},
            metrics=["road_morf"],
            out=tmp_path / "run",
            **OPTIONS,
        )


def test_iba_does_not_depend_on_shards(tmp_path):
    asked = {"methods": {"iba": {"method": "iba", "steps": 2, "noise": 2, "layer": "1"}}, "metrics": ["road_morf"]}
    maps = [
        evaluate(tiny_model(), samples(), out=tmp_path / str(size), **asked, **{**OPTIONS, "shard_size": size}).maps(
            "iba"
        )
        for size in (3, 10)
    ]
    torch.testing.assert_close(maps[0], maps[1], rtol=1e-3, atol=1e-5)


def test_ensembles_of_the_same_noisy_copies_cost_one(tmp_path):
    """They are explained once, and their maps are those of each alone, also where some are there already."""
    noise = {"samples": 3, "variance": 0.2}
    methods = {
        **{name: {"method": name, "steps": 4, **noise} for name in ("ig_sg", "ig_sq", "ig_var")},
        "other": {"method": "ig_sg", "steps": 5, **noise},
        **{f"shap_{kind}": {"method": "deepshap", "ensemble": kind, **noise} for kind in ("sg", "var")},
    }
    model, data = Counting(), samples()
    together = evaluate(model, data, methods, metrics=[], out=tmp_path / "together", **QUICK)
    copies, baselines = 10 * 3, 3 * 3  # of DeepSHAP, once for the samples of each part
    # How many classes there are, the untouched inputs, and what is explained.
    assert model.asked == 1 + 10 + copies * (4 + 5 + 1) + baselines
    for name, method in methods.items():
        alone = evaluate(model, data, {name: method}, metrics=[], **QUICK)
        assert torch.equal(together.maps(name), alone.maps(name))
    assert methods.keys() < together.seconds().keys()
    (tmp_path / "together" / "maps" / "ig_var" / "00001.safetensors").unlink()
    model.asked = 0
    evaluate(model, data, methods, metrics=[], out=tmp_path / "together", **QUICK)
    assert model.asked == 4 * 3 * 4
    assert torch.equal(open_evaluation(tmp_path / "together").maps("ig_var"), together.maps("ig_var"))


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


def test_tabular_rows(tmp_path):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(20, 6)).astype(np.float32), rng.integers(0, 2, 20)
    evaluation = evaluate(
        nn.Linear(6, 2), (rows, labels), ["integrated_gradients", "random"], out=tmp_path / "run", **OPTIONS
    )
    described = evaluation.run.manifest.question.imputer
    assert described == {"name": "mean", "mean": pytest.approx(rows.mean(axis=0), abs=1e-6)}
    assert evaluation.summary()["value"].notna().all()


def test_samples_for_the_report_can_be_named(tmp_path):
    asked = {"methods": ["random"], "metrics": ["deletion"], **OPTIONS}
    evaluation = evaluate(tiny_model(), samples(), show=["00004"], out=tmp_path / "run", **asked)
    shown = read_selection(evaluation.run)
    assert shown.samples[0].id == "00004"
    torch.testing.assert_close(shown.inputs[0], torch.from_numpy(samples()[0][4]))
    with pytest.raises(ValueError, match=r"`show` must be one of 00000, .*; got 'cat'"):
        evaluate(tiny_model(), samples(), show=["cat"], out=tmp_path / "run", **asked)
    with pytest.raises(ValueError, match="`show` must hold ids of samples of this run, such as '00000'; got 'cat'"):
        evaluate(tiny_model(), samples(40), show=["cat"], out=tmp_path / "other", **asked)
    assert not (tmp_path / "other").exists()


def test_without_a_directory_there_is_a_temporary_one():
    evaluation = evaluate(tiny_model(), samples(4), ["random"], metrics=["deletion"], **OPTIONS)
    assert (evaluation.path / "results.json").exists()
    assert repr(evaluation).startswith("Evaluation(1 methods, 4 samples")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": ["rode_morf"]}, "`metrics` must be one of soundness, .*; got 'rode_morf'. .*'road_morf'"),
        ({"metrics": "completenes"}, "`metrics` must be one of .*; got 'completenes'. Did you mean 'completeness'"),
        ({"engine": "steam"}, "`engine` must be one of local, ray; got 'steam'"),
        ({"methods": ["grad-cam"]}, "`methods` must be one of saliency, .*; got 'grad-cam'. Did you mean 'gradcam'"),
        ({"methods": {"mine": {"method": "occlusion", "size": 3}}}, "`size` is no option of occlusion; its options"),
        ({"epsilon": -1}, "`epsilon` must be >= 0, such as 0.01; got -1"),
        ({"epsilon": "x"}, "`epsilon` must be a number; got 'x'"),
        ({"performance": "acuracy"}, "`performance` must be one of accuracy, .*; got 'acuracy'. .*'accuracy'"),
        ({"skip_bad": "no"}, "`skip_bad` must be true or false; got 'no'"),
        ({"limit": True}, "`limit` must be a whole number; got True"),
        ({"batch_size": 1.5}, "`batch_size` must be a whole number; got 1.5"),
        ({"maps": 3}, "`maps` must be a table; got 3"),
        ({"resamples": 0}, "`resamples` must be at least 1; got 0"),
        ({"levels": (0.2, 0.5)}, "`levels` must decrease within .*; got 0.2 then 0.5. Sort them in descending order"),
        ({"imputer": "liner"}, "`imputer` must be one of linear, .*; got 'liner'. Did you mean 'linear'"),
        (
            {"metrics": {"mine": {"metric": "soundness", "epsilom": 1}}},
            "`metrics.mine` must be one of epsilon, .*'epsilom'",
        ),
        ({"part": "0/4"}, r"`part` must be K/N with 1 <= K <= N, such as 3/16; got '0/4'\."),
        ({"part": "5/4"}, "`part` must be K/N .*; got '5/4'"),
        ({"part": "3"}, "`part` must be K/N .*; got '3'"),
        ({"part": "1/2/3"}, "`part` must be K/N .*; got '1/2/3'"),
        ({"part": "-1/4"}, "`part` must be K/N .*; got '-1/4'"),
        ({"part": "1/0"}, "`part` must be K/N .*; got '1/0'"),
        ({"part": "1/" + "9" * 5000}, "`part` must be K/N .*; got '1/999"),
        ({"part": 3}, "`part` must be text; got 3"),
        (
            {"part": "1/2", "engine": "ray"},
            "`part` belongs to engine 'local', and `engine` is 'ray'. Leave one of them out",
        ),
        ({"part": "1/2", "out": None}, "`part` needs `out`, a directory that all parts of the run share; got none"),
        ({"address": "auto"}, "`address` belongs to engine 'ray', and `engine` is 'local'"),
        ({"epsilom": 0.1}, "`options` must be one of .*; got 'epsilom'. Did you mean 'epsilon'"),
        ({"methods": {"../up": "random"}}, "letters, digits"),
        ({"methods": []}, "`methods` must name at least one"),
        ({"classes": "names.txt"}, "`classes` belongs to data that is opened by its path"),
        ({"model": 7}, "must be a spec such as 'timm:resnet50', an nn.Module, a function .*; got int"),
        ({"model": nn.Conv2d(1, 2, 3)}, r"`model` Conv2d fails on an input of shape \(1, 3, 9, 9\): .*channels"),
        ({"model": nn.Conv2d(3, 2, 3)}, r"must return logits \(samples, classes\)"),
    ],
)
def test_what_cannot_work_is_refused_at_once(tmp_path, change, message):
    asked = {"model": tiny_model(), "data": samples(), "methods": ["random"], "out": tmp_path / "run", **OPTIONS}
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate(**{**asked, **change})
    assert not (tmp_path / "run").exists()


def test_labels_beyond_the_model_are_refused(tmp_path):
    inputs, labels = samples()
    with pytest.raises(ValueError, match=r"label 5 \(sample '00003'\), and the model knows 0 to 2"):
        evaluate(
            tiny_model(), (inputs, np.where(np.arange(10) == 3, 5, labels)), ["random"], out=tmp_path / "run", **OPTIONS
        )


def test_a_directory_in_use_or_of_another_kind_is_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    asked = {"methods": ["random"], "metrics": ["deletion"], **OPTIONS}
    with pytest.raises(RunError, match="is not empty and holds no run"):
        evaluate(tiny_model(), samples(4), out=tmp_path / "full", **asked)
    with pytest.raises(RunError, match=r"must be a directory; .*letter.txt' is a file"):
        evaluate(tiny_model(), samples(4), out=tmp_path / "full" / "letter.txt", **asked)
    run = evaluate(tiny_model(), samples(4), out=tmp_path / "run", **asked).run
    with RunDirectory(run.path, Manifest), pytest.raises(RunError, match="in use by another twinlens"):
        evaluate(tiny_model(), samples(4), out=run.path, **asked)
    (run.path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run.json' is damaged"):
        evaluate(tiny_model(), samples(4), out=run.path, **asked)
    (run.path / "run.json").write_text('{"format": 99}')
    with pytest.raises(RunError, match="a run of format 99, and this twinlens reads 5"):
        read_run(run.path)
    with pytest.raises(RunError, match="holds no run"):
        open_evaluation(tmp_path / "full")


def test_a_full_disk_keeps_what_is_done(tmp_path, monkeypatch):
    asked = {"methods": ["random", "centre"], "metrics": ["deletion", "road_morf"], **OPTIONS}
    evaluate(tiny_model(), samples(), out=tmp_path / "whole", **asked)
    left, sync = [6], os.fsync

    def full(descriptor):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        evaluate(tiny_model(), samples(), out=tmp_path / "run", **asked)
    parts = {path for path in (tmp_path / "run").rglob("*") if path.suffix in (".parquet", ".safetensors")}
    assert parts
    assert not list((tmp_path / "run").rglob("*.unfinished"))
    monkeypatch.undo()
    times = {path: path.stat().st_mtime_ns for path in parts}
    evaluate(tiny_model(), samples(), out=tmp_path / "run", **asked)
    assert {path: path.stat().st_mtime_ns for path in parts} == times
    same = [(tmp_path / name / "results.json").read_bytes() for name in ("whole", "run")]
    assert same[0] == same[1]


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


@pytest.mark.slow
def test_memory_does_not_grow_with_the_data(tmp_path):
    """All inputs of the larger run alone would take 98 MB."""
    printed = script(
        """
        import resource, sys
        import numpy as np
        from tests.tiny import tiny_model
        import twinlens as tl
        from twinlens.data.samples import Samples
        from twinlens.evaluation import evaluate

        def read(position):
            return np.random.default_rng(position).normal(size=(3, 64, 64)).astype(np.float32)

        def peak(n):
            samples = Samples(
                name="made up", ids=tuple(map(str, range(n))), labels=np.arange(n) % 3, classes=None,
                positions=np.arange(n), reader=read, fingerprint=lambda i: str(i).encode(),
            )
            evaluate(
                tiny_model(), samples, ["centre"], metrics=["completeness"], imputer=tl.ConstantImputer(0.0),
                out=f"{sys.argv[1]}/{n}", batch_size=16, memory_format="contiguous", shard_size=50,
            )
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        print(peak(200), peak(2000))
        """,
        tmp_path,
    )
    small, large = map(int, printed.split())
    assert large < 1.1 * small
