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

from twinlens.report.plane import Plane, draw_points, label_points, plane_of
from twinlens.report.styles import MARKERS, MethodStyle, method_styles
from twinlens.report.tradeoff import draw_tradeoff, tradeoff_of
from twinlens.run.results import CurveResults
from twinlens.run.stored_run import StoredRun, run_labels
from twinlens.run.wording import performance_of
from twinlens.support.arguments import checked
from twinlens.support.files import as_path, is_local
from twinlens.support.plotting import import_pyplot, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS = {"one-column": (3.3, 2.4), "two-columns": (6.9, 3.4)}
"""Width and height in inches; the legend adds to the height."""

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
                    _add_legend(figure, axes, draw(axes))
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


def _charts(evaluation: StoredRun, styles: Mapping[str, MethodStyle]) -> dict[str, Callable[[Axes], list[str]]]:
    """Return the drawing function of each chart, by file name; it returns the methods that need a legend."""
    charts: dict[str, Callable[[Axes], list[str]]] = {}
    if evaluation.results.plane:
        charts["plane"] = partial(_draw_labelled, evaluation=evaluation, styles=styles)
    if tradeoff := tradeoff_of(evaluation.results):
        charts["tradeoff"] = partial(draw_tradeoff, tradeoff=tradeoff, styles=styles)
    for metric in evaluation.metrics:
        own = _file_name(metric.replace("_", "-"))
        name = next(name for name in chain([own], (f"{own}-{k}" for k in count(2))) if name not in charts)
        charts[name] = partial(draw_metric, evaluation=evaluation, metric=metric, styles=styles)
    return charts


def draw_plane(axes: Axes, evaluation: StoredRun, styles: Mapping[str, MethodStyle]) -> Plane:
    """Draw the soundness–completeness plane of a run that has measured both, without names."""
    plane = plane_of(evaluation.results)
    if plane is None:
        raise ValueError("`metrics` must hold soundness and completeness for the plane; request both.")
    draw_points(axes, plane, styles)
    return plane


def _draw_labelled(axes: Axes, evaluation: StoredRun, styles: Mapping[str, MethodStyle]) -> list[str]:
    return label_points(axes, draw_plane(axes, evaluation, styles))


def plot_plane(evaluation: StoredRun, ax: Axes | None = None) -> Axes:
    """Draw the plane, on new axes by default; names without room beside their points are in a legend."""
    axes = new_axes(ax)
    missing = _draw_labelled(axes, evaluation, method_styles([evaluation]))
    if missing:
        axes.legend(*_legend_entries(axes, missing))
    return axes


def plot_tradeoff(evaluation: StoredRun, ax: Axes | None = None) -> Axes:
    """Draw the trade-off of a run, on new axes by default."""
    tradeoff = tradeoff_of(evaluation.results)
    if tradeoff is None:
        raise ValueError(
            "`metrics` must hold soundness and completeness over the same steps of the map's order for the trade-off; "
            "request soundness_rank and completeness_share."
        )
    axes = new_axes(ax)
    draw_tradeoff(axes, tradeoff, method_styles([evaluation]))
    return axes


def draw_metric(axes: Axes, evaluation: StoredRun, metric: str, styles: Mapping[str, MethodStyle]) -> list[str]:
    """Draw the curves of all methods by one metric, with their bands; return all of them, which need a legend."""
    results = evaluation.results
    about = results.about(metric)
    for method in results.best_first():
        curve = results.methods[method].metrics.get(metric)
        if curve is not None:
            _draw_curve(axes, curve, method, styles[method], stairs=about.stairs)
    across, along = about.axes(performance_of(results, metric))
    axes.set_xlabel(across)
    axes.set_ylabel(along)
    if about.decreasing:
        axes.invert_xaxis()
    return list(results.methods)


def _draw_curve(axes: Axes, curve: CurveResults, method: str, style: MethodStyle, *, stairs: bool) -> None:
    """Draw a curve with its band, as stairs over the levels that reach a new performance or as a line."""
    x = np.array(curve.performance if stairs else curve.levels, dtype=np.float64)
    if stairs:
        chosen = np.flatnonzero(x > np.concatenate([[-np.inf], np.maximum.accumulate(x)[:-1]]))
    else:
        chosen = np.arange(len(x))
    values, low, high = (np.array(column, dtype=np.float64)[chosen] for column in (curve.values, curve.low, curve.high))
    [line] = axes.plot(x[chosen], values, color=style.colour, label=method)
    line.set_drawstyle("steps-pre" if stairs else "default")
    line.set_marker("" if stairs else MARKERS[style.symbol])
    line.set_linestyle(style.line)
    step: Any = "pre" if stairs else None
    axes.fill_between(x[chosen], low, high, step=step, color=style.colour, alpha=0.12, linewidth=0)


def _legend_entries(axes: Axes, methods: Sequence[str]) -> tuple[list[Any], list[str]]:
    """Return handles and labels of some methods; a name is not read as mathematics."""
    entries = [entry for entry in zip(*axes.get_legend_handles_labels(), strict=True) if entry[1] in methods]
    return [handle for handle, _ in entries], [label.replace("$", r"\$") for _, label in entries]


def _add_legend(figure: Figure, axes: Axes, methods: Sequence[str]) -> None:
    """Put a legend of some methods below the axes, and make the figure that much taller."""
    handles, labels = _legend_entries(axes, methods)
    if not handles:
        return
    width, height = figure.get_size_inches()
    columns = min(len(labels), max(1, int(width / (0.055 * max(map(len, labels)) + 0.4))))
    rows = -(-len(labels) // columns)
    figure.set_size_inches(width, height + 0.15 * rows)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=7)
