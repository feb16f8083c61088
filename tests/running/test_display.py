"""What notebooks show of evaluations, curves and comparisons; nothing of the report is needed for it."""

import html

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.report.runs import METHODS, shared_run
from twinlens.statistics.comparison import compare


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return shared_run(tmp_path_factory.getbasetemp())


def test_notebooks_show_results(run):
    shown = run._repr_html_()
    assert "tiny on 10 samples of" in shown
    for method in METHODS:
        assert f"{run.results.area(method, 'deletion'):z.3f}" in shown


def test_notebooks_show_curves(run):
    for metric in run.metrics:
        curve = run.curve("random", metric)
        drawn = curve._repr_html_()
        assert drawn.count("<circle") == np.isfinite(curve.values).sum()
        assert html.escape(repr(curve)) in drawn


def test_notebooks_show_comparisons(run):
    comparison = compare(
        {m: {k: run.curve(m, k) for k in ("soundness", "completeness")} for m in METHODS}, resamples=20
    )
    assert html.escape(comparison.verdicts[0]) in comparison._repr_html_()
    axes = comparison.plot()
    assert {label.get_text() for label in axes.get_yticklabels()} == set(METHODS)


def test_results_are_plotted_as_the_plane(run):
    axes = Figure().add_subplot()
    assert run.plot(ax=axes) is axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("soundness (area)", "completeness (area)")
    points = {line.get_label(): [float(values[0]) for values in line.get_data()] for line in axes.get_lines()}
    assert points == {name: [run.results.area(name, metric) for metric in run.results.plane] for name in METHODS}
