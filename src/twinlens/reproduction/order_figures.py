"""Figures of order-vs-value: modified maps, their curves, and the distances between curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from twinlens.laboratory.modifications import SCHEMES
from twinlens.support.arrays import Floats
from twinlens.support.plotting import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = ("completeness", "soundness", "road_morf", "deletion")
TITLES = {"completeness": "Completeness", "soundness": "Soundness", "road_morf": "ROAD", "deletion": "Deletion"}
PAPER_DISTANCES = {"completeness": 0.503, "soundness": 0.183, "deletion": 0.019, "road_morf": 0.014}
_STYLES = {"original": (COLOURS[0], "-"), "remove": (COLOURS[1], "--"), "introduce": (COLOURS[2], ":")}


def draw(figure: Figure, example: Mapping[str, Floats], shown: Mapping[str, Any]) -> None:
    """Draw modified maps of one sample above the curves of the four metrics."""
    figure.set_size_inches(6.9, 3.5)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.75))[:, 0]
    for axes, (name, values) in zip(above.subplots(1, len(example)), example.items(), strict=True):
        axes.imshow(np.atleast_2d(values), cmap="viridis", vmin=0, vmax=1.6)
        axes.set_title(name, fontsize=7)
        axes.set_axis_off()
    grid = below.subplots(1, len(METRICS))
    for axes, metric in zip(grid, METRICS, strict=True):
        _draw_metric(axes, shown, metric)
    handles, labels = grid[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _draw_metric(axes: Axes, shown: Mapping[str, Any], metric: str) -> None:
    for name, curves in shown.items():
        colour, dash = _STYLES[name]
        x, y = (np.array(curves[metric][key], dtype=np.float64) for key in ("across", "values"))
        axes.plot(x, y, color=colour, linestyle=dash, label=name, marker="." if metric != "soundness" else "")
    axes.set_title(TITLES[metric], fontsize=8)
    across = {"soundness": "accuracy", "completeness": "threshold"}
    axes.set_xlabel(across.get(metric, "share removed"))
    axes.set_ylabel("soundness" if metric == "soundness" else "loss of accuracy")
    if metric == "completeness":
        axes.invert_xaxis()


def draw_distances(figure: Figure, tables: Mapping[str, Any]) -> None:
    """Draw the least distance of each method and scheme by metric, a panel for each variant, with the means."""
    figure.set_size_inches(6.9, 2.7)
    panels = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    markers = dict(zip(SCHEMES, "os^", strict=True))
    for axes, (variant, table) in zip(panels, tables.items(), strict=True):
        for k, (method, of_method) in enumerate(table["least"].items()):
            for scheme, of_scheme in of_method.items():
                x = [position + 0.16 * (k - 1) for position in range(len(METRICS))]
                y = np.array([of_scheme[metric] for metric in METRICS], dtype=np.float64)
                axes.plot(x, y, linestyle="", marker=markers[scheme], color=COLOURS[k], label=f"{method}, {scheme}")
        for position, metric in enumerate(METRICS):
            ends = position - 0.35, position + 0.35
            axes.hlines(np.array(table["mean"][metric], dtype=np.float64), *ends, color="0.2", linewidth=1.5)
            axes.hlines(PAPER_DISTANCES[metric], *ends, color="0.6", linewidth=1.0, linestyle="--")
        axes.set_xticks(range(len(METRICS)), [TITLES[metric] for metric in METRICS], fontsize=6)
        axes.set_title({"ours": "order kept (ours)"}.get(variant, "to the letter"), fontsize=8)
        axes.grid(visible=False, axis="x")
    axes.plot([], [], color="0.2", linewidth=1.5, label="mean here")
    axes.plot([], [], color="0.6", linewidth=1.0, linestyle="--", label="mean in the paper")
    panels[0].set_ylabel("least Hausdorff distance")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=6)
