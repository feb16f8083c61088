"""What the page says around its numbers: each sentence of its scripts, on a page that shows it."""

import dataclasses

import pytest
import torch

import twinlens as tl
from tests.report.browser import needs_browser
from tests.report.kinds import QUICK, signal_run, table_run, text_run, volume_run
from tests.report.runs import changed, image_samples, make_run
from twinlens.report import write_report

pytest.importorskip("selenium", reason="selenium is not installed: pip install '.[dev]'")

pytestmark = needs_browser

WORDS = """
const labels = [...document.querySelectorAll('[aria-label], [title], [alt]')]
  .flatMap(e => [e.getAttribute('aria-label'), e.getAttribute('title'), e.getAttribute('alt')]);
const told = charts.map(chart => chart.getOption().aria?.[0]?.label?.description ?? '');
return [document.getElementById('page').textContent, ...labels, ...told].filter(Boolean).join('\\n');
"""
"""Everything on the page but its scripts, folded or not, with the labels for screen readers."""


@pytest.fixture
def words(browser, tmp_path):
    """Writes and opens a page, and returns its words."""

    def of(runs, **options):
        browser.open(write_report(runs, tmp_path / "words.html", **options))
        assert browser.complaints() == []
        return browser.run(WORDS)

    return of


def lacking(said, *sentences):
    """The sentences that a page does not have."""
    return [sentence for sentence in sentences if sentence not in said]


def dropped(method, metric):
    """The results of a method without one of its metrics."""
    return dataclasses.replace(
        method, metrics={name: curve for name, curve in method.metrics.items() if name != metric}
    )


def test_a_page_of_one_run(words, judged):
    front = changed(judged, front={"saliency": 0.75, "random": 0.5})
    assert not lacking(
        words([front]),
        "Soundness: is what a map marks really predictive? Completeness: is everything predictive marked?",
        "Methods shown in all charts",
        "Link to this section",
        "At a glance",
        "Up and to the right is better. Each arrow starts at the values of the same maps exchanged",
        "The dashed line is the Pareto front: no method beats those on it on both sides.",
        "On the Pareto front in 75% of the resamples",
        "Ignores the model",
        "neither clearly better nor clearly worse than maps from other inputs; ▼ worse than maps from other inputs; "
        "decided by its interval.",
        "Small: 95% intervals.",
        "Grey: baselines, which ignore the model.",
        "Methods and their options",
        "Maps and probes took ",
        "What these numbers mean, and their scales",
        "All 3 comparisons in words",
        "How it was measured",
        "Hover over a chart to see its values. Bands are 95% bootstrap intervals over samples (60 resamples).",
        "Bands are intervals of soundness.",
        "Those that tell most about this evaluation: what each method marks, what of it was judged false, and what the "
        "model sees and says as features are removed.",
        "Probability of its class as features are removed",
        "Probability of the class of the chosen sample as features are removed.",
        "attribution that stands attribution judged false; the stronger the colour, the more of it.",
        " for its class, with nothing removed.",
        " of its attribution judged false in the end.",
        "Link to this method and sample",
        "What of saliency was judged false",
        "Written by twinlens ",
        "results.json in the run directory has every number. Charts by Apache ECharts.",
    )


def test_options_that_differ_and_queries_that_are_too_many(words, tmp_path, monkeypatch):
    monkeypatch.setattr("twinlens.report.page._QUERIES", 0)
    methods = {"occlusion": {"method": "occlusion", "window": 5, "stride": 2}, "random": "random"}
    run = make_run(tmp_path / "run", methods=methods, metrics="headline")
    run.ask({"soundness_rank": tl.Soundness(estimator="rank", steps=10)}, name="coarse")
    assert not lacking(
        words([tl.open_evaluation(run.path)]),
        "Options that differ from their defaults",
        "Below a name: options that differ from their defaults.",
        "The comparison in words",
        "The run's own results",
        "Not on this page: coarse",
    )


def test_runs_with_gaps(words, tmp_path):
    def constant(model, inputs, targets):
        return torch.ones(len(inputs), *inputs.shape[2:])

    one_side = make_run(tmp_path / "one", methods={"constant": constant, "random": "random"}, metrics=["completeness"],
                        samples=image_samples(4))  # fmt: skip
    assert not lacking(
        words([one_side]),
        "The plane needs soundness and completeness; this run did not measure soundness.",
        "There are no intervals, and therefore no bands.",
        "This map is constant: it ranks no feature above another.",
    )
    run = make_run(tmp_path / "run", metrics="headline")
    results = run.results.methods
    some = {"saliency": results["saliency"], "random": dropped(results["random"], "soundness_rank")}
    assert "1 without both numbers is not shown." in words([changed(run, methods=some, advice={})])
    neither = {name: dropped(results[name], "soundness_rank") for name in results}
    assert "No method has both a soundness and a completeness: the plane is empty." in words(
        [changed(run, methods=neither, advice={})]
    )


def test_several_runs(words, run, tmp_path):
    other = make_run(tmp_path / "other", metrics="headline")
    both = [run, other]
    assert not lacking(
        words(both, comparison=tl.compare(both, resamples=50)),
        "How far can these maps be trusted?",
        "2 runs side by side. Soundness: is what",
        "Between the runs",
        "How much larger a number is in the first run than in the second, with 95% intervals that hold simultaneously "
        "for all methods. Bold: significant.",
    )


def test_samples_of_every_kind(words, tmp_path):
    for k, (run, *sentences) in enumerate(
        [
            (text_run, "Struck out: removed. Small and grey: special tokens."),
            (table_run, "Struck out: removed, with what replaces it.", "100% of the largest attribution"),
            (signal_run, "Thin: the signal. Thick: what the model sees. Grey stretches were removed."),
            (volume_run, "Slice along the first axis: ", "map over it"),
        ]
    ):
        assert not lacking(words([run(tmp_path / str(k))]), *sentences)
    assert "4 more channels are not shown." in words([signal_run(tmp_path / "channels", channels=20)])
    assert "200 of 250 columns, those with most attribution." in words([table_run(tmp_path / "wide", columns=250)])
    values = torch.randn(20, 5, generator=torch.manual_seed(0))
    regression = tl.evaluate(lambda x: x.sum(1), (values, values.sum(1)), ["occlusion", "random"],
                             out=tmp_path / "regression", **{**QUICK, "performance": "r2"})  # fmt: skip
    said = words([regression])
    assert "The model says " in said
    assert " with nothing removed." in said
    assert "Predicted value of the chosen sample as features are removed." in said
