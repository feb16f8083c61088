import dataclasses
import itertools

import pytest
from matplotlib.figure import Figure
from PIL import Image

import twinlens as tl
from tests.report.runs import (
    LEVELS,
    METHODS,
    SKILLS,
    changed,
    image_samples,
    make_run,
    with_curve,
    without_control,
)
from twinlens.report import figures, write_figures
from twinlens.report.figures import draw_metric, draw_plane
from twinlens.report.styles import method_styles
from twinlens.run.directory import Run
from twinlens.support.estimate import Estimate


@pytest.mark.slow
def test_figures_of_every_chart(tmp_path):
    evaluation = make_run(tmp_path / "run", metrics=["soundness", "completeness"], methods=["random"])
    ends = {
        "area": Estimate(value=0.5, low=0.0, high=1.0, samples=10),
        "low": (0.0,) * len(LEVELS),
        "high": (1.0,) * len(LEVELS),
    }
    files = write_figures([with_curve(evaluation, "random", "soundness", **ends)], tmp_path / "figures")
    parts = itertools.product(
        ("plane", "soundness", "completeness"), ("one-column", "two-columns"), ("pdf", "svg", "png")
    )
    names = {f"{chart}-{width}.{kind}" for chart, width, kind in parts}
    assert {path.name for path in files} == names == {path.name for path in (tmp_path / "figures").iterdir()}
    with Image.open(tmp_path / "figures" / "plane-one-column.png") as narrow:
        assert narrow.width == pytest.approx(3.3 * 300, abs=1)
    assert (tmp_path / "figures" / "plane-two-columns.pdf").read_bytes().startswith(b"%PDF")
    assert ">random<" not in (tmp_path / "figures" / "plane-two-columns.svg").read_text()  # letters are outlines


def test_figures_of_several_runs_carry_their_names_and_equal_results_give_equal_bytes(run, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "WIDTHS", {"one-column": (3.3, 2.4)})
    asked = run.results.settings
    settings = dataclasses.replace(asked, metrics={"deletion": asked.metrics["deletion"]})
    one = changed(run, methods={"random": run.results.methods["random"]}, settings=settings)
    other = dataclasses.replace(one, run=Run(tmp_path / "a b", run.run.manifest))
    files = write_figures([one, other], tmp_path)
    assert [path.name for path in files[:3]] == [f"run-deletion-one-column.{kind}" for kind in ("pdf", "svg", "png")]
    assert [path.name for path in files[3:]] == [f"a-b-deletion-one-column.{kind}" for kind in ("pdf", "svg", "png")]
    assert [path.read_bytes() for path in files[:3]] == [path.read_bytes() for path in files[3:]]


@pytest.mark.slow
def test_figures_of_metrics_with_names_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "WIDTHS", {"one-column": (3.3, 2.4)})
    metrics = {"plane": tl.Soundness(levels=(0.9, 0.5, 0.1)), "a/b": tl.Completeness(), "a:b": tl.Deletion()}
    evaluation = make_run(tmp_path / "run", samples=image_samples(4), metrics=metrics)
    files = write_figures([evaluation], tmp_path / "figures")
    assert [path.name for path in files if path.suffix == ".png"] == [
        f"{chart}-one-column.png" for chart in ("plane", "plane-2", "a-b", "a-b-2")
    ]
    axes = Figure().add_subplot()
    draw_plane(axes, evaluation, method_styles([evaluation]))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("plane, ε = 0.01, 3 levels", "a/b, 9 thresholds")


def test_the_plane_and_the_curves_are_those_of_the_results(run):
    results, styles = run.results, method_styles([run])
    axes = Figure().add_subplot()
    draw_plane(axes, run, styles)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("soundness, 20 steps", "completeness, 20 steps")
    points = {bars.get_label(): [float(values[0]) for values in bars[0].get_data()] for bars in axes.containers}
    assert points == {name: [results.area(name, metric) for metric in results.plane] for name in METHODS}
    axes = Figure().add_subplot()
    draw_metric(axes, run, "completeness", styles)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("attribution threshold\n9 thresholds", "loss of probability")
    assert axes.xaxis_inverted()
    drawn = {line.get_label(): [list(values) for values in line.get_data()] for line in axes.get_lines()}
    curves = {name: found.metrics["completeness"] for name, found in results.methods.items()}
    assert drawn == {name: [list(curve.levels), list(curve.values)] for name, curve in curves.items()}


def test_every_method_on_the_plane_is_an_arrow_from_its_exchanged_maps(judged):
    results, styles = judged.results, method_styles([judged])
    axes = Figure().add_subplot()
    draw_plane(axes, judged, styles)
    arrows = {tuple(text.xy): text.xyann for text in axes.texts}
    hollow = [line for line in axes.get_lines() if line.get_label() == "_exchanged"]
    assert len(arrows) == len(hollow) == len(METHODS)
    for name in METHODS:
        own = tuple(results.area(name, metric) for metric in results.plane)
        exchanged = [area - SKILLS[name][metric][0] for area, metric in zip(own, results.plane, strict=True)]
        assert arrows[own] == pytest.approx(exchanged)
        assert any([float(values[0]) for values in line.get_data()] == pytest.approx(exchanged) for line in hollow)
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert left < exchanged[0] < right
        assert bottom < exchanged[1] < top
    fills = {bars.get_label(): (bars[0].get_fillstyle(), bars[0].get_markerfacecolor()) for bars in axes.containers}
    colours = {name: style.colour for name, style in styles.items()}
    assert fills == {
        "saliency": ("full", colours["saliency"]),
        "sobel": ("bottom", colours["sobel"]),
        "random": ("full", "white"),
    }
    assert set(axes.get_legend_handles_labels()[1]) == set(METHODS)


def test_the_plane_is_as_before_without_a_control(run):
    axes, plain = Figure().add_subplot(), without_control(run)
    draw_plane(axes, plain, method_styles([plain]))
    assert not axes.texts
    assert {bars[0].get_fillstyle() for bars in axes.containers} == {"full"}
    assert "white" not in {bars[0].get_markerfacecolor() for bars in axes.containers}


def test_soundness_of_the_paper_is_drawn_over_the_predictive_levels_that_it_reaches(run):
    axes = Figure().add_subplot()
    draw_metric(axes, run, "soundness", method_styles([run]))
    across = "predictive level: probability reached\nε = 0.01, 12 levels"
    assert (axes.get_xlabel(), axes.get_ylabel()) == (across, "soundness")
    [line] = [line for line in axes.get_lines() if line.get_label() == "sobel"]
    curve = run.results.methods["sobel"].metrics["soundness"]
    across = list(line.get_xdata())
    assert across == sorted(across)
    assert set(across) <= set(curve.performance)
    assert max(across) == max(curve.performance)


def test_figures_of_the_pair_hold_the_trade_off_and_names_instead_of_a_legend(paired, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "WIDTHS", {"two-columns": (6.9, 3.4)})
    sizes = {}
    monkeypatch.setattr(
        figures,
        "save_figure",
        lambda figure, stem: sizes.update({stem.name: (figure.get_size_inches()[1], figure)}) or [],
    )
    write_figures([paired], tmp_path)
    assert [name.removesuffix("-two-columns") for name in sizes] == [
        *("plane", "tradeoff", "soundness-rank", "completeness-share", "completeness")
    ]
    for name, (height, figure) in sizes.items():
        named = {text.get_text() for text in figure.axes[0].texts}
        direct = name.startswith(("plane", "tradeoff"))
        assert (set(METHODS) <= named) == direct
        assert bool(figure.legends) == (not direct)
        assert (height == 3.4) == direct
