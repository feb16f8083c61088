"""Figures of experiments that compare methods: curves, families of ensembles, planes and maps.

Methods have the names that the paper gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinlens.attribution import METHODS, title_of
from twinlens.data.samples import Samples
from twinlens.models.loading import LoadedModel
from twinlens.outcome import Evaluation
from twinlens.report.styles import BUILT_IN, MARKERS, MethodStyle, styles_of
from twinlens.support.arrays import Floats
from twinlens.support.estimate import Estimate
from twinlens.support.plotting import darker, draw_chance, write_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {
    "soundness": "Soundness",
    "completeness": "Completeness",
    "road_morf": "ROAD, most relevant first",
    "road_lerf": "ROAD, least relevant first",
    "deletion": "Deletion",
    "soundness_rank": "Soundness as a rank",
    "completeness_share": "Completeness as a share",
}
_ENSEMBLES = {"sg": "ig_sg", "sq": "ig_sq", "var": "ig_var"}
_BLACK = "#111111"


def paper_name(method: str) -> str:
    """Return a method's name as the paper writes it.

    Example:
        >>> paper_name("integrated_gradients"), paper_name("deepshap_var"), paper_name("random")
        ('IG', 'DeepSHAP-Var', 'random')
    """
    base, _, kind = method.rpartition("_")
    if base in METHODS and kind in _ENSEMBLES and method not in METHODS:
        return f"{paper_name(base)}-{paper_name(_ENSEMBLES[kind]).removeprefix('IG-')}"
    return method if method == "random" else title_of(method)


def draw_families(
    figure: Figure, evaluation: Evaluation, families: Mapping[str, Sequence[str]], metrics: Sequence[str]
) -> None:
    """Draw one panel per metric and family: the first method of a family in black, its ensembles in colours."""
    figure.set_size_inches(6.9, 1.75 * len(families) + 0.4)
    grid = figure.subplots(len(families), len(metrics), squeeze=False)
    for number, (row, (family, methods)) in enumerate(zip(grid, families.items(), strict=True)):
        styles = {methods[0]: (_BLACK, "-")}
        styles |= {name: (BUILT_IN[_ENSEMBLES[name.rpartition("_")[2]]].colour, "-") for name in methods[1:]}
        for axes, metric in zip(row, metrics, strict=True):
            _draw_curves(axes, evaluation, metric, styles)
            axes.tick_params(labelsize=6)
            axes.set_xlabel(axes.get_xlabel() if number == len(families) - 1 else "", fontsize=6)
            axes.set_ylabel(axes.get_ylabel(), fontsize=6, labelpad=1)
            if number == 0:
                axes.set_title(TITLES[metric].replace(", ", ",\n"), fontsize=7)
        name_row(row[0], family, gap=30)
    for column in grid.T:  # one scale for both families
        bottoms, tops = zip(*(axes.get_ylim() for axes in column), strict=True)
        for axes in column:
            axes.set_ylim(min(bottoms), max(tops))
    handles, _ = grid[0][0].get_legend_handles_labels()
    ensembles = (paper_name(name).removeprefix("IG-") for name in next(iter(families.values()))[1:])
    labels = [f"{' or '.join(families)} alone", *ensembles]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=7)


def draw_comparison(
    figure: Figure, evaluation: Evaluation, planes: Mapping[str, tuple[Mapping[str, Estimate], Mapping[str, Estimate]]]
) -> None:
    """Draw curves of soundness and completeness, and below them planes with names beside the points, by title."""
    figure.set_size_inches(6.9, 5.4)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.15))[:, 0]
    styles = styles_of(evaluation.methods, set(evaluation.methods) & {"random"})
    pair = above.subplots(1, 2)
    for axes, metric in zip(pair, ("soundness", "completeness"), strict=True):
        lines = {name: (style.colour, _dashes(style)) for name, style in styles.items()}
        _draw_curves(axes, evaluation, metric, lines)
        axes.set_title(TITLES[metric], fontsize=8)
    handles, labels = pair[0].get_legend_handles_labels()
    above.legend(handles, labels, loc="outside right center", fontsize=7)
    for axes, (title, (across, along)) in zip(
        below.subplots(1, len(planes), squeeze=False)[0], planes.items(), strict=True
    ):
        _draw_plane(axes, across, along, styles)
        axes.set_title(title, fontsize=8)
        if "rank" in title:
            draw_chance(axes, 0.5, 0.5)
    for axes, (across, along) in zip(below.axes, planes.values(), strict=True):
        _label_plane(axes, across, along, styles)


def draw_maps(
    figure: Figure, evaluation: Evaluation, model: LoadedModel, samples: Samples, methods: Sequence[str], rows: int = 4
) -> None:
    """Draw inputs and the maps of methods beside them; each map has its own scale, up to its 99.5th percentile."""
    figure.set_size_inches(6.9, 6.9 / (len(methods) + 1) * rows + 0.25)
    rows = min(rows, len(samples))
    grid = figure.subplots(rows, len(methods) + 1, squeeze=False, gridspec_kw={"wspace": 0.03, "hspace": 0.03})
    maps = {name: evaluation.maps(name) for name in methods}
    for index, row in enumerate(grid):
        row[0].imshow(shown_input(model, samples, index), cmap="gray")
        for axes, name in zip(row[1:], methods, strict=True):
            values = maps[name][index].numpy()
            axes.imshow(values, cmap="viridis", vmin=0, vmax=float(np.quantile(values, 0.995)) or 1.0)
        for axes in row:
            axes.set_axis_off()
    for axes, title in zip(grid[0], ["input", *map(paper_name, methods)], strict=True):
        axes.set_title(title.replace("-", "\n") if len(title) > 8 else title, fontsize=7)


def name_row(axes: Axes, name: str, gap: float = 4.0) -> None:
    """Write a name, turned upwards, `gap` points to the left of the first axes of a row."""
    axes.annotate(
        name, (0, 0.5), (-gap, 0), xycoords="axes fraction", textcoords="offset points", rotation=90, va="center",
        ha="right", fontsize=8,
    )  # fmt: skip


def shown_input(model: LoadedModel, samples: Samples, index: int) -> Floats:
    """Return an input (H, W, C) as the model sees it, stretched to colours between 0 and 1."""
    values = model.preprocessing(samples.read(index)).permute(1, 2, 0).double().numpy()
    low, high = values.min(axis=(0, 1)), values.max(axis=(0, 1))
    return np.asarray((values - low) / np.maximum(high - low, 1e-12))


def _draw_curves(axes: Axes, evaluation: Evaluation, metric: str, styles: Mapping[str, tuple[str, Any]]) -> None:
    """Draw the curves of some methods by one metric; soundness as stairs over the accuracy that it reaches."""
    about = evaluation.results.about(metric)
    for method, (colour, dash) in styles.items():
        curve = evaluation.results.methods[method].metrics[metric]
        x, y = (np.array(each, dtype=np.float64) for each in (curve.performance, curve.values))
        if about.stairs:
            new = x > np.concatenate([[-np.inf], np.maximum.accumulate(x)[:-1]])
            axes.plot(x[new], y[new], color=colour, linestyle=dash, drawstyle="steps-pre", label=paper_name(method))
        else:
            x = np.array(curve.levels, dtype=np.float64)
            axes.plot(x, y, color=colour, linestyle=dash, label=paper_name(method))
            low, high = (np.array(end, dtype=np.float64) for end in (curve.low, curve.high))
            axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    across = {"soundness": "accuracy", "completeness": "threshold"}
    kept = "share kept" if metric in ("soundness_rank", "completeness_share") else "share removed"
    axes.set_xlabel(across.get(metric, kept))
    axes.set_ylabel(
        "soundness" if "soundness" in metric else "share found" if kept == "share kept" else "accuracy lost"
    )
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(float(bottom), -0.05), min(float(top), 1.05))
    if about.decreasing:
        axes.invert_xaxis()


def _dashes(style: MethodStyle) -> Any:
    return (0, tuple(0.5 * length for length in style.dash)) if style.dash else "-"


def _draw_plane(
    axes: Axes, across: Mapping[str, Estimate], along: Mapping[str, Estimate], styles: Mapping[str, MethodStyle]
) -> None:
    for name, style in styles.items():
        x, y = across[name], along[name]
        if x.value is None or y.value is None:
            continue
        axes.errorbar(
            x.value, y.value, xerr=_ends(x), yerr=_ends(y), fmt=MARKERS[style.symbol], color=style.colour,
            markersize=5, elinewidth=0.7,
        )  # fmt: skip
    axes.set_xlabel("soundness, area")
    axes.set_ylabel("completeness, area")


def _ends(estimate: Estimate) -> Floats | None:
    """Return the lengths (2, 1) of an error bar."""
    if estimate.value is None or estimate.interval is None:
        return None
    return np.array([[estimate.value - estimate.interval[0]], [estimate.interval[1] - estimate.value]])


def _label_plane(
    axes: Axes, across: Mapping[str, Estimate], along: Mapping[str, Estimate], styles: Mapping[str, MethodStyle]
) -> None:
    """Write names beside the points; the axes must have their final size."""
    canvas = axes.figure.canvas.figure
    canvas.draw_without_rendering()
    pixels, reach = axes.transData.transform, canvas.dpi / 72
    taken, lines = [], []
    labels = []
    for name in across:
        x, y = across[name], along[name]
        if x.value is None or y.value is None:
            continue
        at = pixels((x.value, y.value))
        taken.append((*(at - 5 * reach), *(at + 5 * reach)))
        lines += [[*pixels((end, y.value)), *at] for end in x.interval or ()]
        lines += [[*pixels((x.value, end)), *at] for end in y.interval or ()]
        labels.append((paper_name(name), (x.value, y.value), darker(styles[name].colour)))
    write_beside(axes, labels, taken=taken, lines=np.array(lines).reshape(-1, 4), costs=np.full(len(lines), 0.7))
