"""Figures for papers: every chart of the page, drawn with matplotlib for one and for two columns."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinlens.report.plane import draw_points, label_points, plane_of, tradeoff_of
from twinlens.report.styles import MARKERS, MethodStyle, method_styles
from twinlens.run.results import CurveResults, Numbers
from twinlens.run.stored_run import StoredRun, run_labels
from twinlens.run.wording import performance_of, settings_of
from twinlens.support.arguments import checked
from twinlens.support.files import as_path, is_local
from twinlens.support.plotting import darker, draw_chance, import_pyplot, label_ends, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

WIDTHS = {"one-column": (3.3, 2.4), "two-columns": (6.9, 3.4)}
"""Width and height in inches; the legend adds to the height."""

_NAMED_PER_INCH = 6  # curves with names at their ends; more are in a legend
METADATA: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
_STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "pdf.fonttype": 42,
    "svg.hashsalt": "twinlens",
    "savefig.dpi": 300,
}


@checked
def write_figures(evaluations: Sequence[StoredRun], directory: str | os.PathLike[str]) -> list[Path]:
    """Write every chart as PDF, SVG and PNG, for one column and for two. Equal results give equal bytes.

    Args:
        evaluations: the results of each run; with several runs, file names start with the run's name.
        directory: the output directory, created if necessary.

    Returns:
        The files, such as plane-one-column.pdf.
    """
    folder, styles = as_path(directory), method_styles(evaluations)
    if not is_local(folder):
        raise ValueError(f"`directory` must be on this machine; got {str(directory)!r}.")
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for evaluation, label in zip(evaluations, run_labels(evaluations), strict=True):
        prefix = _file_name(label) + "-" if len(evaluations) > 1 else ""
        for name, draw in _charts(evaluation, styles).items():
            for width, size in WIDTHS.items():
                with styled_figure(size) as figure:
                    axes = figure.add_subplot()
                    draw(axes)
                    _add_legend(figure, axes)
                    files += save_figure(figure, folder / f"{prefix}{name}-{width}")
    return files


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", text).strip("-.")


@contextmanager
def styled_figure(size: tuple[float, float]) -> Iterator[Figure]:
    """Return a figure in our style, to be drawn and saved within the block; global settings of matplotlib stay."""
    pyplot = import_pyplot()
    with pyplot.rc_context(_STYLE):
        yield pyplot.Figure(figsize=size, layout="constrained")


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PDF, SVG and PNG, within the block of `styled_figure`, to a path without suffix."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is done; each format would compute it again
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in METADATA]
    for path, metadata in zip(paths, METADATA.values(), strict=True):
        figure.savefig(path, metadata=metadata)
    return paths


def _charts(evaluation: StoredRun, styles: Mapping[str, MethodStyle]) -> dict[str, Callable[[Axes], None]]:
    """Return the drawing function of each chart, by file name."""
    charts: dict[str, Callable[[Axes], None]] = {}
    if evaluation.results.plane:
        charts["plane"] = partial(draw_plane, evaluation=evaluation, styles=styles, names=True)
    if tradeoff_of(evaluation.results):
        charts["tradeoff"] = partial(draw_tradeoff, evaluation=evaluation, styles=styles)
    for metric in evaluation.metrics:
        own = _file_name(metric.replace("_", "-"))
        name = next(name for name in chain([own], (f"{own}-{k}" for k in count(2))) if name not in charts)
        charts[name] = partial(draw_metric, evaluation=evaluation, metric=metric, styles=styles)
    return charts


def draw_plane(axes: Axes, evaluation: StoredRun, styles: Mapping[str, MethodStyle], *, names: bool = False) -> None:
    """Draw the soundness–completeness plane of a run that has measured both, with names beside its points if asked."""
    plane = plane_of(evaluation.results)
    if plane is None:
        raise ValueError("`metrics` must hold soundness and completeness for the plane; request both.")
    draw_points(axes, plane, styles)
    if names:
        label_points(axes, plane, styles)


def plot_plane(evaluation: StoredRun, ax: Axes | None = None) -> Axes:
    """Draw the plane, on new axes by default; names without room beside their points are in a legend."""
    axes = new_axes(ax)
    draw_plane(axes, evaluation, method_styles([evaluation]), names=True)
    return _with_legend(axes)


def draw_tradeoff(axes: Axes, evaluation: StoredRun, styles: Mapping[str, MethodStyle]) -> None:
    """Draw soundness over completeness as features enter, with marks, chance, and names at the ends of a few curves."""
    plane, tradeoff = plane_of(evaluation.results), tradeoff_of(evaluation.results)
    if plane is None or tradeoff is None:
        raise ValueError(
            "`metrics` must hold soundness and completeness over the same steps for the trade-off; request "
            "soundness_rank and completeness_share."
        )
    chance, (*marks, last) = plane.chance[0], tradeoff.marks
    labels = [] if chance is None else [(chance, "chance", "0.5")]
    named = len(tradeoff.curves) <= _NAMED_PER_INCH * axes.get_window_extent().height / axes.figure.dpi
    for method, (sound, complete) in tradeoff.curves.items():
        line = _draw_curve(axes, complete.values, sound, method, styles[method])
        line.set(markevery=marks, markersize=3.5)
        end = np.array(line.get_xydata())[last]
        axes.plot(*end, color=line.get_color(), marker=line.get_marker(), markersize=6, label="_whole")
        labels += [(float(end[1]), method, darker(styles[method].colour))] if named else []
    highest, along = max(tradeoff.curves.values(), key=lambda pair: sum(pair[0].values[k] or 0.0 for k in marks))
    for k in marks:
        style: Any = {"textcoords": "offset points", "ha": "center", "color": "0.4", "fontsize": "x-small"}
        axes.annotate(f"{highest.levels[k]:.0%}", (along.values[k], highest.values[k]), (0, 5), **style)
    draw_chance(axes, None, chance)
    axes.set_xlabel(f"{plane.titles[1]}, {plane.settings[1]}")
    axes.set_ylabel(f"{plane.titles[0]} of what is included")
    if labels:
        label_ends(axes, labels)


def plot_tradeoff(evaluation: StoredRun, ax: Axes | None = None) -> Axes:
    """Draw the trade-off, on new axes by default."""
    axes = new_axes(ax)
    draw_tradeoff(axes, evaluation, method_styles([evaluation]))
    return _with_legend(axes)


def draw_metric(axes: Axes, evaluation: StoredRun, metric: str, styles: Mapping[str, MethodStyle]) -> None:
    """Draw the curves of all methods by one metric, with their bands."""
    results = evaluation.results
    about = results.about(metric)
    for method in results.best_first():
        curve = results.methods[method].metrics.get(metric)
        if curve is not None:
            x = curve.performance if about.stairs else curve.levels
            _draw_curve(axes, x, curve, method, styles[method], stairs=about.stairs)
    across, along = about.axes(performance_of(results, metric))
    axes.set_xlabel(f"{across}\n{settings_of(results, metric)}")
    axes.set_ylabel(along)
    if about.decreasing:
        axes.invert_xaxis()


def _draw_curve(
    axes: Axes, across: Numbers, curve: CurveResults, method: str, style: MethodStyle, *, stairs: bool = False
) -> Line2D:
    """Draw a curve with its band, as stairs over the levels that reach a new performance or as a line."""
    x = np.array(across, dtype=np.float64)
    if stairs:
        chosen = np.flatnonzero(x > np.concatenate([[-np.inf], np.maximum.accumulate(x)[:-1]]))
    else:
        chosen = np.arange(len(x))
    values, low, high = (np.array(column, dtype=np.float64)[chosen] for column in (curve.values, curve.low, curve.high))
    [line] = axes.plot(x[chosen], values, color=style.colour, label=method)
    line.set_drawstyle("steps-pre" if stairs else "default")
    line.set_marker("" if stairs else MARKERS[style.symbol])
    line.set_linestyle((0, tuple(0.5 * length for length in style.dash)) if style.dash else "-")
    step: Any = "pre" if stairs else None
    axes.fill_between(x[chosen], low, high, step=step, color=style.colour, alpha=0.12, linewidth=0)
    return line


def _legend_entries(axes: Axes) -> tuple[list[Any], list[str]]:
    """Return handles and labels of the methods whose names are not in the axes; no name is read as mathematics."""
    written = {text.get_text() for text in axes.texts}
    entries = [entry for entry in zip(*axes.get_legend_handles_labels(), strict=True) if entry[1] not in written]
    return [handle for handle, _ in entries], [label.replace("$", r"\$") for _, label in entries]


def _with_legend(axes: Axes) -> Axes:
    """Add a legend of the methods whose names are not in the axes, if there are any."""
    handles, labels = _legend_entries(axes)
    if handles:
        axes.legend(handles, labels)
    return axes


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Put the legend below the axes, and make the figure that much taller."""
    handles, labels = _legend_entries(axes)
    if not handles:
        return
    width, height = figure.get_size_inches()
    columns = min(len(labels), max(1, int(width / (0.055 * max(map(len, labels)) + 0.4))))
    rows = -(-len(labels) // columns)
    figure.set_size_inches(width, height + 0.15 * rows)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=7)
