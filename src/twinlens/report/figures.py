"""Figures for papers: every chart of the page, drawn by matplotlib for one and for two columns."""

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
from numpy.typing import NDArray

from twinlens.report.styles import MethodStyle, method_styles
from twinlens.run.results import CurveResults
from twinlens.run.stored_run import StoredRun, exchanged_point, run_labels
from twinlens.run.wording import name_of, performance_of
from twinlens.support.arguments import checked
from twinlens.support.arrays import Floats
from twinlens.support.files import as_path, is_local
from twinlens.support.plotting import draw_arrow, import_pyplot, marker_fill

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS = {"one-column": (3.3, 2.4), "two-columns": (6.9, 3.4)}
"""Inches, as wide as the columns of most proceedings; the legend adds to the height."""

METADATA: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
_MARKERS = {
    "circle": "o", "square": "s", "triangle": "^", "diamond": "D", "wedge": "v", "plus": "P", "cross": "X",
}  # fmt: skip
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
    """Write every chart as PDF, SVG and PNG, for one column and for two. The same results give the same bytes.

    Args:
        evaluations: the results of each run; with several, the names of the files begin with the run's.
        directory: where they go; made where it is not there.

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
    """Make a figure in our style, unknown to the other figures of the program, to be drawn within the block."""
    pyplot = import_pyplot()
    with pyplot.rc_context(_STYLE):
        yield pyplot.Figure(figsize=size, layout="constrained")


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PDF, SVG and PNG, within the block of `styled_figure`. The same figure gives the same bytes.

    Args:
        figure: what was drawn.
        stem: the files without their endings.

    Returns:
        The files.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout stands; each format would compute it anew
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in METADATA]
    for path, metadata in zip(paths, METADATA.values(), strict=True):
        figure.savefig(path, metadata=metadata)
    return paths


def _charts(evaluation: StoredRun, styles: Mapping[str, MethodStyle]) -> dict[str, Callable[[Axes], None]]:
    """Return how to draw each chart, by the name of its file."""
    charts: dict[str, Callable[[Axes], None]] = {}
    if evaluation.results.plane:
        charts["plane"] = lambda axes: draw_plane(axes, evaluation, styles)
    for metric in evaluation.metrics:
        own = _file_name(metric.replace("_", "-"))
        name = next(name for name in chain([own], (f"{own}-{k}" for k in count(2))) if name not in charts)
        charts[name] = partial(draw_metric, evaluation=evaluation, metric=metric, styles=styles)
    return charts


def draw_plane(axes: Axes, evaluation: StoredRun, styles: Mapping[str, MethodStyle]) -> None:
    """Draw the area of completeness over that of soundness, with intervals and the Pareto front.

    Each method is an arrow from what its exchanged maps score, where that was measured; its marker is left empty
    towards a side on which it does no better than these.
    """
    results, front = evaluation.results, []
    for method in results.best_first():
        curves = [results.methods[method].metrics.get(metric) for metric in results.plane]
        areas = [curve.area for curve in curves if curve is not None and curve.area is not None]
        if len(areas) < 2:
            continue
        style, exchanged = styles[method], exchanged_point(results, method)
        across, along = (_reach(curve) for curve in curves)
        fill = marker_fill([results.knows(method, metric) for metric in results.plane], style.colour)
        axes.errorbar(
            areas[0], areas[1], xerr=across, yerr=along, fmt=_MARKERS[style.symbol], color=style.colour, label=method,
            markersize=5, elinewidth=0.8, markeredgewidth=0.8, **fill,
        )  # fmt: skip
        if exchanged is not None:
            draw_arrow(axes, exchanged, areas, style.colour)
        if method in results.front:
            front.append(areas)
    if front:
        # Drawn between the methods alone; towards the axes it would widen their range.
        x, y = zip(*sorted(front), strict=True)
        axes.step(x, y, where="pre", color="0.4", linestyle="--", linewidth=0.8, zorder=1)
    across_title, along_title = (name_of(results, metric) for metric in results.plane)
    axes.set_xlabel(across_title)
    axes.set_ylabel(along_title)


def _reach(curve: CurveResults | None) -> Floats | None:
    """Compute the lengths (2, 1) of an error bar."""
    if curve is None or curve.area is None or curve.area_interval is None:
        return None
    low, high = curve.area_interval
    reach = np.array([[curve.area - low], [high - curve.area]], dtype=np.float64)
    return np.asarray(np.maximum(reach, 0.0))


def draw_metric(axes: Axes, evaluation: StoredRun, metric: str, styles: Mapping[str, MethodStyle]) -> None:
    """Draw the curves of all methods by one metric, with their bands."""
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


def _draw_curve(axes: Axes, curve: CurveResults, method: str, style: MethodStyle, *, stairs: bool) -> None:
    """Draw a curve with its band: soundness as stairs over the levels that reach a new performance."""
    x = np.array(curve.performance if stairs else curve.levels, dtype=np.float64)
    chosen = records(x) if stairs else np.arange(len(x))
    values, low, high = (np.array(column, dtype=np.float64)[chosen] for column in (curve.values, curve.low, curve.high))
    [line] = axes.plot(x[chosen], values, color=style.colour, label=method)
    line.set_drawstyle("steps-pre" if stairs else "default")
    line.set_marker("" if stairs else _MARKERS[style.symbol])
    line.set_linestyle((0, tuple(0.5 * length for length in style.dash)) if style.dash else "-")
    step: Any = "pre" if stairs else None
    axes.fill_between(x[chosen], low, high, step=step, color=style.colour, alpha=0.12, linewidth=0)


def records(performance: Floats) -> NDArray[np.intp]:
    """Find the levels at which performance is higher than at all before: where soundness at v takes a new value.

    Example:
        >>> records(np.array([0.1, 0.3, 0.2, 0.4])).tolist()
        [0, 1, 3]
    """
    before = np.concatenate([[-np.inf], np.maximum.accumulate(performance)[:-1]])
    return np.flatnonzero(performance > before)


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Put the legend below the axes, and make the figure higher by as much."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    width, height = figure.get_size_inches()
    columns = min(len(labels), max(1, int(width / (0.055 * max(map(len, labels)) + 0.4))))
    rows = -(-len(labels) // columns)
    figure.set_size_inches(width, height + 0.15 * rows)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=7)
