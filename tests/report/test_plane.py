"""The soundness–completeness plane: its points, and that figures, notebooks and the page draw these."""

import dataclasses

import pytest
from matplotlib.figure import Figure

from tests.report.runs import METHODS, SKILLS, changed, direction, with_areas, without_control
from twinlens.report.plane import plane_of
from twinlens.report.styles import method_styles


def test_points_are_those_of_the_results(judged):
    plane = plane_of(changed(judged, front={"sobel": 0.5}).results)
    assert plane.metrics == judged.results.plane
    assert plane.titles == ("soundness", "completeness")
    assert [point.method for point in plane.points] == judged.results.best_first()
    for point in plane.points:
        areas = tuple(judged.results.area(point.method, metric) for metric in plane.metrics)
        skills = SKILLS[point.method]
        assert point.at == areas
        assert point.exchanged == pytest.approx([area - skills[m][0] for area, m in zip(areas, skills, strict=True)])
        assert [side.direction for side in point.sides] == [direction(*skill) for skill in skills.values()]
        assert point.front == (point.method == "sobel")
        assert point.baseline == (point.method != "saliency")


def test_methods_without_both_areas_are_left_out(run):
    plane = plane_of(with_areas(run, {"a": (0.5, 0.4), "b": (None, 0.9), "c": (0.5,)}).results)
    assert [(point.method, point.at, point.exchanged) for point in plane.points] == [("a", (0.5, 0.4), None)]
    settings = run.results.settings
    one_side = dataclasses.replace(settings, metrics={"completeness": settings.metrics["completeness"]})
    assert plane_of(changed(run, settings=one_side).results) is None


def test_evaluations_plot_it_with_a_legend(judged):
    axes = Figure().add_subplot()
    assert judged.plot(ax=axes) is axes
    points = {bars.get_label(): tuple(float(values[0]) for values in bars[0].get_data()) for bars in axes.containers}
    assert points == {point.method: point.at for point in plane_of(judged.results).points}
    colours = {bars.get_label(): bars[0].get_color() for bars in axes.containers}
    assert colours == {name: style.colour for name, style in method_styles([judged]).items()}
    assert len(axes.texts) == len(METHODS)
    assert {text.get_text() for text in axes.get_legend().get_texts()} == set(METHODS)
    assert not without_control(judged).plot(ax=Figure().add_subplot()).texts
