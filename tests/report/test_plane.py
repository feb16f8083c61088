"""The soundness–completeness plane: its points, and that figures, notebooks and the page draw these."""

import dataclasses

import pytest
from matplotlib.figure import Figure

import twinlens as tl
from tests.report.runs import METHODS, SKILLS, changed, direction, on_the_plane, with_areas, without_control
from twinlens.report.plane import draw_points, label_points, plane_of
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


def drawn(axes):
    """The points, the colours and the names of an evaluation's plot."""
    points = {bars.get_label(): tuple(float(values[0]) for values in bars[0].get_data()) for bars in axes.containers}
    colours = {bars.get_label(): bars[0].get_color() for bars in axes.containers}
    return points, colours, {text.get_text(): text for text in axes.texts if text.get_text()}


def test_evaluations_plot_it_with_names(judged):
    axes = Figure().add_subplot()
    assert judged.plot(ax=axes) is axes
    points, colours, names = drawn(axes)
    assert points == {point.method: point.at for point in plane_of(judged.results).points}
    assert colours == {name: style.colour for name, style in method_styles([judged]).items()}
    assert set(METHODS) <= set(names)
    assert axes.get_legend() is None
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("soundness, 20 steps", "completeness, 20 steps")
    assert arrows(axes) == len(METHODS)
    assert arrows(without_control(judged).plot(ax=Figure().add_subplot())) == 0


def arrows(axes):
    styles = [text.arrow_patch.get_arrowstyle() for text in axes.texts if text.arrow_patch]
    return sum(type(style).__name__ != "Curve" for style in styles)  # a plain line leads to a name


def chance_lines(axes):
    lines = [line for line in axes.get_lines() if line.get_label() == "_chance"]
    return [[list(values) for values in line.get_data()] for line in lines]


def test_lines_cross_at_chance_within_the_limits(paired):
    assert plane_of(paired.results).chance == (0.5, 0.5)
    far = on_the_plane(paired, {"a": (0.8, 0.9), "b": (0.82, 0.93)})
    axes = far.plot(ax=Figure().add_subplot())
    assert chance_lines(axes) == [[[0.5, 0.5], [0, 1]], [[0, 1], [0.5, 0.5]]]
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert 0.45 < left < 0.5  # no room is wasted
    assert 0.82 < right < 0.87
    assert 0.45 < bottom < 0.5
    assert 0.93 < top < 0.98
    _, _, names = drawn(axes)
    assert names["chance"].xy == (0.5, 0.5)


def test_metrics_without_a_chance_level_have_no_lines(paired):
    assert tl.METRICS["completeness"].about.chance is None
    asked = paired.results.settings.metrics
    mixed = {name: asked[name] for name in ("soundness_rank", "completeness")}
    half = changed(paired, settings=dataclasses.replace(paired.results.settings, metrics=mixed))
    assert plane_of(half.results).chance == (0.5, None)
    axes = half.plot(ax=Figure().add_subplot())
    assert chance_lines(axes) == [[[0.5, 0.5], [0, 1]]]
    axes = Figure().add_subplot()
    plane = dataclasses.replace(plane_of(paired.results), chance=(None, None))
    styles = method_styles([paired])
    draw_points(axes, plane, styles)
    label_points(axes, plane, styles)
    assert set(drawn(axes)[2]) == set(METHODS)
    assert chance_lines(axes) == []
    assert "chance" not in drawn(axes)[2]


def test_names_cover_neither_points_nor_each_other_and_the_rest_is_in_the_legend(paired):
    crowd = {f"method number {k}": (0.6 + 0.001 * k, 0.6) for k in range(12)} | {"alone": (0.9, 0.9)}
    evaluation = on_the_plane(paired, crowd)
    axes = evaluation.plot(ax=Figure().add_subplot())
    _, _, names = drawn(axes)
    boxes = [text.get_window_extent() for text in names.values()]
    assert all(box.count_overlaps(boxes) == 1 for box in boxes)  # itself
    points = axes.transData.transform([*crowd.values()])
    assert not any(box.contains(*point) for box in boxes for point in points)
    assert "alone" in names
    missing = {text.get_text() for text in axes.get_legend().get_texts()}
    assert len(missing) > 0
    assert {*names, *missing} - {"chance"} == {*crowd}
    assert not {*names} & missing
