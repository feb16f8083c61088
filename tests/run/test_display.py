"""What notebooks show of evaluations, curves and comparisons; nothing of the report is needed for it."""

import html

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.report.runs import METHODS, SKILLS, shared_run, with_curve, with_skills, without_control
from twinlens.run.results import ControlResults
from twinlens.statistics.comparison import compare_curves


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
    comparison = compare_curves(
        {m: {k: run.curve(m, k) for k in ("soundness", "completeness")} for m in METHODS}, resamples=20
    )
    assert html.escape(comparison.verdicts[0]) in comparison._repr_html_()
    axes = comparison.plot()
    assert {label.get_text() for label in axes.get_yticklabels()} == set(METHODS)


def test_notebooks_show_skill_beside_both_sides_and_mark_controls(run):
    shown = with_skills(run)._repr_html_()
    assert shown.count("skill ↑") == 2
    for sign, text in (("▲", "+0.210"), ("▲", "+0.120"), ("≈", "-0.030"), ("≈", "+0.000"), ("▼", "-0.050")):
        assert f"{sign} {text}<" in shown
    assert "-0.000" not in shown.replace("-0.0000", "")
    assert "sobel (control)" in shown
    assert "<li>random knows nothing of the input" in shown
    assert "skill" not in without_control(run)._repr_html_().partition("<table>")[2]


def test_a_skill_without_an_interval_has_no_sign(run):
    control = ControlResults(value=0.1, skill=0.25, low=None, high=None, p=None, samples=5)
    bare = with_curve(with_skills(run), "saliency", "completeness", control=control)
    assert ">+0.250</span></td>" in bare._repr_html_()
    assert bare.results.knows("saliency", "completeness") is None


def test_results_are_plotted_as_the_plane_with_an_arrow_from_exchanged_maps(run):
    judged = with_skills(run)
    axes = Figure().add_subplot()
    assert judged.plot(ax=axes) is axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("soundness 2-sided (area)", "completeness (area)")
    lines = [line for line in axes.get_lines() if line.get_label() in METHODS]
    points = {line.get_label(): [float(values[0]) for values in line.get_data()] for line in lines}
    assert points == {name: [run.results.area(name, metric) for metric in run.results.plane] for name in METHODS}
    arrows = {tuple(text.xy): text.xyann for text in axes.texts}
    for name, own in points.items():
        skills = [SKILLS[name][metric][0] for metric in run.results.plane]
        assert arrows[tuple(own)] == pytest.approx([area - skill for area, skill in zip(own, skills, strict=True)])
    fills = {line.get_label(): (line.get_fillstyle(), line.get_markerfacecolor() == "white") for line in lines}
    assert fills == {"saliency": ("full", False), "sobel": ("bottom", False), "random": ("full", True)}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(METHODS)


def test_the_plane_has_no_arrows_without_a_control(run):
    axes = without_control(run).plot(ax=Figure().add_subplot())
    assert not axes.texts
    assert {line.get_fillstyle() for line in axes.get_lines()} == {"full"}
    assert [line.get_label() for line in axes.get_lines()] == list(METHODS)
