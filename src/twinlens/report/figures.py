"""Figures for papers: every chart of the page, drawn by matplotlib for one and for two columns."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinlens.comparison import Comparison
from twinlens.report.content import (
    PLANE,
    area_of,
    axis_titles,
    measured_metrics,
    order_methods,
    pareto_front,
    run_labels,
)
from twinlens.report.looks import COLOURS, Look, method_looks
from twinlens.results import Evaluation
from twinlens.table import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS = {"one-column": (3.3, 2.4), "two-columns": (6.9, 3.4)}
"""Inches, as wide as the columns of most proceedings; the legend adds to the height."""

_METADATA: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
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


def write_figures(evaluations: Sequence[Evaluation], directory: str | os.PathLike[str]) -> list[Path]:
    """Writes every chart as PDF, SVG and PNG, for one column and for two. The same results give the same bytes.

    Args:
        evaluations: the results of each run; with several, the names of the files begin with the run's.
        directory: where they go; made where it is not there.

    Returns:
        The files, such as plane-one-column.pdf.
    """
    folder, looks = Path(directory), method_looks(evaluations)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for evaluation, label in zip(evaluations, run_labels(evaluations), strict=True):
        prefix = re.sub(r"[^A-Za-z0-9_.+-]+", "-", label).strip("-.") + "-" if len(evaluations) > 1 else ""
        for name, draw in _charts(evaluation, looks).items():
            for width, size in WIDTHS.items():
                with styled_figure(size) as figure:
                    axes = figure.add_subplot()
                    draw(axes)
                    _add_legend(figure, axes)
                    files += save_figure(figure, folder / f"{prefix}{name}-{width}")
    return files


def plot_of(thing: Evaluation | Comparison, ax: Axes | None = None) -> Axes:
    """Draws results as the soundness–completeness plane, or a comparison as intervals of areas.

    Args:
        thing: what to draw.
        ax: where to draw; a new figure where none is given.
    """
    axes = ax if ax is not None else _new_axes()
    if isinstance(thing, Comparison):
        _draw_standings(axes, thing)
    else:
        draw_plane(axes, thing, method_looks([thing]))
    return axes


def _new_axes() -> Axes:
    _require_matplotlib()
    from matplotlib import pyplot  # noqa: PLC0415

    return pyplot.subplots()[1]


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: PLC0415, F401
    except ImportError as error:
        raise ImportError("Figures need matplotlib. Run: pip install 'twinlens[plot]'") from error


@contextmanager
def styled_figure(size: tuple[float, float]) -> Iterator[Figure]:
    """Gives a figure of our style that no other figure of the program knows of; it is to be drawn within the block."""
    _require_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        yield Figure(figsize=size, layout="constrained")


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Writes a figure as PDF, SVG and PNG, within the block of `styled_figure`. The same figure gives the same bytes.

    Args:
        figure: what was drawn.
        stem: the files without their endings.

    Returns:
        The files.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout stands; each format would compute it anew
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in _METADATA]
    for path, metadata in zip(paths, _METADATA.values(), strict=True):
        figure.savefig(path, metadata=metadata)
    return paths


def _charts(evaluation: Evaluation, looks: Mapping[str, Look]) -> dict[str, Callable[[Axes], None]]:
    charts: dict[str, Callable[[Axes], None]] = {}
    metrics = measured_metrics(evaluation)
    if set(PLANE) <= set(metrics):
        charts["plane"] = lambda axes: draw_plane(axes, evaluation, looks)
    for metric in metrics:
        charts[metric.replace("_", "-")] = lambda axes, metric=metric: draw_metric(axes, evaluation, metric, looks)  # type: ignore[misc]
    return charts


def draw_plane(axes: Axes, evaluation: Evaluation, looks: Mapping[str, Look]) -> None:
    """Draws the area of completeness over that of soundness, with intervals and the Pareto front."""
    results = evaluation.results
    front = []
    for method in order_methods(results):
        sound, complete = (area_of(results, method, metric) for metric in PLANE)
        if sound is None or complete is None:
            continue
        look = looks[method]
        curves = results["methods"][method]["metrics"]
        across, along = (_reach(curves[metric]) for metric in PLANE)
        axes.errorbar(
            sound, complete, xerr=across, yerr=along, fmt=_MARKERS[look.symbol], color=look.colour, label=method,
            markersize=5, elinewidth=0.8,
        )  # fmt: skip
        if method in pareto_front(results):
            front.append((sound, complete))
    if front:
        # Drawn between the methods alone; towards the axes it would widen their range.
        x, y = zip(*sorted(front), strict=True)
        axes.step(x, y, where="pre", color="0.4", linestyle="--", linewidth=0.8, zorder=1)
    axes.set_xlabel("soundness")
    axes.set_ylabel("completeness")


def _reach(curve: Mapping[str, Any]) -> Floats | None:
    """Gives the lengths (2, 1) of an error bar."""
    ends = curve.get("area_interval")
    if not ends or None in ends:
        return None
    reach = np.array([[curve["area"] - ends[0]], [ends[1] - curve["area"]]], dtype=np.float64)
    return np.asarray(np.maximum(reach, 0.0))


def draw_metric(axes: Axes, evaluation: Evaluation, metric: str, looks: Mapping[str, Look]) -> None:
    """Draws the curves of all methods by one metric, with their bands."""
    for method in order_methods(evaluation.results):
        curve = evaluation.results["methods"][method]["metrics"].get(metric)
        if curve:
            _draw_curve(axes, curve, metric, method, looks[method])
    across, along = axis_titles(metric, evaluation.results["options"]["performance"])
    axes.set_xlabel(across)
    axes.set_ylabel(along)
    if metric == "completeness":
        axes.invert_xaxis()


def _draw_curve(axes: Axes, curve: Mapping[str, Any], metric: str, method: str, look: Look) -> None:
    """Draws a curve with its band: soundness as stairs over the levels that reach a new performance."""
    columns = {name: np.array(curve[name], dtype=np.float64) for name in ("values", "low", "high") if curve.get(name)}
    sound = metric == "soundness"
    x = np.array(curve["performance" if sound else "levels"], dtype=np.float64)
    chosen = records(x) if sound else np.arange(len(x))
    [line] = axes.plot(x[chosen], columns["values"][chosen], color=look.colour, label=method)
    line.set_drawstyle("steps-pre" if sound else "default")
    line.set_marker("" if sound else _MARKERS[look.symbol])
    line.set_linestyle((0, tuple(0.5 * length for length in look.dash)) if look.dash else "-")
    if {"low", "high"} <= set(columns):
        low, high = columns["low"][chosen], columns["high"][chosen]
        step: Any = "pre" if sound else None
        axes.fill_between(x[chosen], low, high, step=step, color=look.colour, alpha=0.12, linewidth=0)


def records(performance: Floats) -> NDArray[np.intp]:
    """Gives the levels at which performance is higher than at all before: where soundness at v takes a new value.

    Example:
        >>> records(np.array([0.1, 0.3, 0.2, 0.4])).tolist()
        [0, 1, 3]
    """
    before = np.concatenate([[-np.inf], np.maximum.accumulate(performance)[:-1]])
    return np.flatnonzero(performance > before)


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Puts the legend below the axes, and makes the figure higher by as much."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    width, height = figure.get_size_inches()
    columns = min(len(labels), max(1, int(width / (0.055 * max(map(len, labels)) + 0.4))))
    rows = -(-len(labels) // columns)
    figure.set_size_inches(width, height + 0.15 * rows)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=7)


def _draw_standings(axes: Axes, comparison: Comparison) -> None:
    metrics = list(dict.fromkeys(standing.metric for standing in comparison.standings))
    methods = list(dict.fromkeys(standing.method for standing in comparison.standings))
    for k, metric in enumerate(metrics):
        rows = [standing for standing in comparison.standings if standing.metric == metric]
        y = [methods.index(row.method) + 0.6 * ((k + 0.5) / len(metrics) - 0.5) for row in rows]
        reach = np.clip([[row.area - row.low for row in rows], [row.high - row.area for row in rows]], 0, None)
        colour = COLOURS[k % len(COLOURS)]
        axes.errorbar([row.area for row in rows], y, xerr=reach, fmt="o", color=colour, label=metric, markersize=4)
    axes.set_yticks(range(len(methods)), methods)
    axes.invert_yaxis()
    axes.set_xlabel("area")
    axes.legend()
