"""The trade-off: which curves it holds, and what figures and evaluations draw of it."""

import dataclasses

import pytest
from matplotlib.figure import Figure

import twinlens as tl
from tests.report.runs import METHODS, changed, image_samples, make_run, with_curve
from twinlens.outcome import open_evaluation
from twinlens.report.plane import tradeoff_of
from twinlens.report.styles import method_styles


def drawn(axes):
    """The lines of each method."""
    return {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}


def labels(axes):
    return {text.get_text(): text for text in axes.texts}


def test_both_curves_of_each_method_are_those_of_the_results(paired):
    tradeoff = tradeoff_of(paired.results)
    assert paired.results.plane == ("soundness_rank", "completeness_share")
    assert list(tradeoff.curves) == paired.results.best_first()
    for method, curves in tradeoff.curves.items():
        assert curves == tuple(paired.results.methods[method].metrics[metric] for metric in paired.results.plane)
    levels = curves[0].levels
    assert [levels[k] for k in tradeoff.marks] == pytest.approx([0.1, 0.25, 0.5, 1.0])


def test_there_is_none_over_different_axes_or_without_a_side(paired, tmp_path):
    paper = make_run(
        tmp_path / "run", samples=image_samples(4), methods=["random"], metrics=["soundness", "completeness"]
    )
    assert paper.results.plane
    sound = paper.results.methods["random"].metrics["soundness"]
    alike = with_curve(paper, "random", "completeness", levels=sound.levels, values=sound.levels)
    alike = with_curve(alike, "random", "soundness", values=sound.levels)
    assert tradeoff_of(alike.results) is None
    settings = paired.results.settings
    one = dataclasses.replace(settings, metrics={"soundness_rank": settings.metrics["soundness_rank"]})
    assert tradeoff_of(changed(paired, settings=one).results) is None
    with pytest.raises(ValueError, match="request soundness_rank and completeness_share"):
        paper.plot_tradeoff()


def test_methods_without_both_curves_are_left_out(paired):
    curve = paired.results.methods["sobel"].metrics["soundness_rank"]
    holed = with_curve(paired, "sobel", "soundness_rank", values=(None, *curve.values[1:]))
    assert set(tradeoff_of(holed.results).curves) == set(METHODS) - {"sobel"}
    other = with_curve(paired, "sobel", "soundness_rank", levels=tuple(0.5 * level for level in curve.levels))
    assert set(tradeoff_of(other.results).curves) == set(METHODS) - {"sobel"}


def test_maps_of_a_single_feature_have_none(paired):
    short = paired
    for method in METHODS:
        for metric in paired.results.plane:
            curve = paired.results.methods[method].metrics[metric]
            short = with_curve(short, method, metric, levels=curve.levels[-1:], values=curve.values[-1:])
    assert tradeoff_of(short.results) is None
    assert tradeoff_of(changed(paired, methods={}).results) is None


def test_marks_are_measured_levels_where_there_are_few(tmp_path):
    metrics = [tl.Soundness(estimator="rank", steps=4), tl.Completeness(estimator="share", steps=4)]
    evaluation = make_run(tmp_path / "run", samples=image_samples(4), methods=["random"], metrics=metrics)
    tradeoff = tradeoff_of(evaluation.results)
    [(sound, _)] = tradeoff.curves.values()
    assert [sound.levels[k] for k in tradeoff.marks] == pytest.approx([0.25, 0.5, 1.0])


def test_evaluations_plot_soundness_over_completeness_with_names_and_chance(paired):
    axes = Figure().add_subplot()
    assert open_evaluation(paired.path).plot_tradeoff(ax=axes) is axes
    results, styles = paired.results, method_styles([paired])
    lines = drawn(axes)
    assert set(lines) == set(METHODS)
    for method, line in lines.items():
        sound, complete = (results.methods[method].metrics[metric] for metric in results.plane)
        assert [list(values) for values in line.get_data()] == [list(complete.values), list(sound.values)]
        assert line.get_color() == styles[method].colour
        assert [sound.levels[k] for k in line.get_markevery()] == pytest.approx([0.1, 0.25, 0.5])
    ends = [line.get_data() for line in axes.get_lines() if line.get_label() == "_whole"]
    wholes = [[*values] for _, values in ends]
    assert sorted(wholes) == sorted([results.area(method, "soundness_rank")] for method in METHODS)
    [chance] = [line for line in axes.get_lines() if line.get_label() == "_chance"]
    assert list(chance.get_ydata()) == [0.5, 0.5]
    assert axes.get_ylim()[0] < 0.5 < axes.get_ylim()[1]
    assert set(labels(axes)) == {*METHODS, "chance", "10%", "25%", "50%"}
    assert len(axes.collections) == len(METHODS)  # bands
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("completeness, 20 steps", "soundness of what is included")


def test_names_at_the_ends_keep_apart_and_in_order(paired):
    same = paired
    for method in METHODS:
        curve = paired.results.methods["random"].metrics["soundness_rank"]
        same = with_curve(same, method, "soundness_rank", values=curve.values)
    axes = Figure().add_subplot()
    same.plot_tradeoff(ax=axes)
    boxes = [labels(axes)[name].get_window_extent() for name in (*METHODS, "chance")]
    for k, box in enumerate(boxes):
        assert box.count_overlaps(boxes) == 1, k  # itself
        assert box.x0 >= axes.bbox.x1


@pytest.mark.parametrize("name", ["$x$", r"$\frac{$", "_own", "<b>"])
def test_names_are_text_whatever_they_hold(paired, name):
    methods = {name: paired.results.methods["saliency"], **paired.results.methods}
    odd = changed(paired, methods=methods)
    figure = Figure()
    odd.plot(ax=figure.add_subplot(1, 2, 1))
    odd.plot_tradeoff(ax=figure.add_subplot(1, 2, 2))
    figure.draw_without_rendering()
    assert all(name in labels(axes) for axes in figure.axes[1:])
