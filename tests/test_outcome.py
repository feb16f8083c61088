import json

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.small_runs import CHECKED, COMPARED, OPTIONS, QUICK, CountingModel, contents, samples
from tests.tiny import tiny_model
from twinlens.errors import RunError
from twinlens.evaluation import evaluate
from twinlens.outcome import open_evaluation


def test_results_say_what_maps_are_like(tmp_path, monkeypatch):
    """Sparseness and entropy of all shards, with intervals over samples; another question measures no map again."""
    evaluation = evaluate(
        tiny_model(), samples(), ["saliency", "random"], metrics=["completeness"], out=tmp_path, **QUICK
    )
    frame = evaluation.properties()
    assert list(frame.columns) == ["method", "property", "value", "low", "high", "samples"]
    assert set(frame["property"]) == {"sparseness", "entropy", "negative"}
    for method in evaluation.methods:
        for name, function in (("sparseness", tl.statistics.sparseness), ("entropy", tl.statistics.map_entropy)):
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
    """Neither another epsilon nor another measure calls the model, by `ask` or by `evaluate` in the same place.

    `ask` leaves the run as it was; `evaluate` changes its settings.
    """
    model, data, out = CountingModel(), samples(), tmp_path / "run"
    first = evaluate(model, data, ["random", "centre"], out=out, **QUICK)
    asked, parts = model.inputs, {p: p.stat().st_mtime_ns for p in out.rglob("*.parquet")}
    before = contents(out)
    strict = first.ask([tl.Soundness(epsilon=0.3, steps=20), "completeness"])
    assert strict.metrics == ["soundness", "completeness"]
    assert contents(out) == before
    again = evaluate(model, data, ["random", "centre"], out=out, epsilon=0.3, **QUICK)
    for evaluation in (strict, again, open_evaluation(out)):
        curve = evaluation.curve("random", "soundness")
        expected = tl.soundness_from_probes(first.curve("random", "soundness").table, epsilon=0.3)
        np.testing.assert_array_equal(curve.values, expected.values)
        assert curve.epsilon == 0.3
    assert again.results.methods["random"].metrics["soundness"] == strict.results.methods["random"].metrics["soundness"]
    probability = first.ask({"mine": tl.Soundness(performance="probability", steps=20), "road": "road_morf"})
    assert probability.metrics == ["mine", "road"]
    assert probability.results.settings.metrics["mine"]["performance"] == "probability"
    assert open_evaluation(out).results == again.results
    assert model.inputs == asked + CHECKED + COMPARED  # `evaluate` compares some answers with the stored ones
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*.parquet")} == parts
    back = evaluate(model, data, ["random", "centre"], out=out, metrics=["default"], **QUICK)
    assert back.results.methods["centre"].metrics["soundness"] == first.results.methods["centre"].metrics["soundness"]


@pytest.mark.slow
def test_what_was_not_measured_cannot_be_asked_but_is_computed(tmp_path):
    model, data, out = CountingModel(), samples(), tmp_path / "run"
    first = evaluate(model, data, ["random"], metrics=["soundness"], out=out, **OPTIONS)
    with pytest.raises(RunError, match=r"has no probes for completeness.*only what is missing is computed"):
        first.ask("completeness")
    with pytest.raises(RunError, match="has no probes for soundness_rank"):
        first.ask("soundness_rank")
    with pytest.raises(RunError, match="has no probes for soundness: it needs levels or an imputer"):
        first.ask(tl.Soundness(imputer=tl.BlurImputer()))
    before = model.inputs
    both = evaluate(model, data, ["random"], metrics=["soundness_rank"], control="none", out=out, **OPTIONS)
    assert both.metrics == ["soundness", "soundness_rank"]
    added = [level for sweep in both.run.manifest.sweeps[1:] for level in sweep.schedule.levels if level]
    assert model.inputs - before == CHECKED + COMPARED + 10 * len(added)
    expected = tl.soundness(
        tiny_model(), *map(torch.from_numpy, data), both.maps("random"), estimator="rank",
        ids=both.ids(), batch_size=16,
    )  # fmt: skip
    np.testing.assert_allclose(both.curve("random", "soundness_rank").values, expected.values, rtol=1e-9)


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
    with pytest.raises(RunError, match="mine is a custom metric, or has a custom performance"):
        stored.curve("random", "mine")
    assert stored.ask({"mine": tl.Deletion(performance=margin)}).results == evaluation.results
