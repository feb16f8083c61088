"""Which metrics react to values, and which to the order alone? Maps whose values change much and whose order little.

Attribution is removed from maps and introduced into them by three schemes. A metric that reacts to values has to
separate original and modified maps: the least Hausdorff distance between two of the three curves must not be near zero.

Shapes: L levels, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial.distance import cdist

from twinlens.laboratory.modifications import SCHEMES
from twinlens.metrics.curves import Curve
from twinlens.report.styles import styles_of
from twinlens.reproduction.claims import RESAMPLES, Claim, average, judge, list_values, too_few
from twinlens.reproduction.comparison_figures import name_row, paper_name, shown_input
from twinlens.reproduction.experiment import (
    MAP_READINGS,
    Experiment,
    ExperimentOptions,
    Outcome,
    plain,
    refuse_options,
)
from twinlens.reproduction.method_comparison import open_photographs, paper_options, without
from twinlens.reproduction.order_runs import (
    COLUMNS,
    LITERAL,
    MAPS,
    METRICS,
    ORDER_BASED,
    ORIGINAL,
    OURS,
    SHOWN,
    STEPS,
    VALUE_BASED,
    VARIANTS,
    Runs,
    Versions,
)
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.arrays import Floats
from twinlens.support.estimate import Estimate
from twinlens.support.plotting import COLOURS
from twinlens.support.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"completeness": "Completeness", "soundness": "Soundness", "road_morf": "ROAD", "deletion": "Deletion"}
PAPER_DISTANCES = {"completeness": 0.503, "soundness": 0.183, "deletion": 0.019, "road_morf": 0.014}
OWN = {
    "soundness_rank": ("Soundness as a rank", "Table 1"),
    "completeness_share": ("Completeness as a share", "Table 1"),
    "calibration": ("Calibration", "Definition 4.3"),
}
"""Our own metrics, with what a claim about each is compared to in the paper."""

_STYLES = {"original": (COLOURS[0], "-"), "remove": (COLOURS[1], "--"), "introduce": (COLOURS[2], ":")}
READINGS = {OURS: "the order kept where possible", LITERAL: "to the letter of Table 3, in 8 bits"}
ORDER_KEPT = ("constant", "random")  # with these, two of the three maps have the same order in our variant
FACTOR, NEAR_ZERO, SLIGHT = 5.0, 0.05, 0.9
SMALL: dict[str, Mapping[str, Any]] = {"gradcam": {}, "integrated_gradients": {"steps": 16}}
METHODS: dict[str, Mapping[str, Any]] = {
    "gradcam": {},
    "integrated_gradients": {},
    "extremal_perturbation": {"steps": 100},
}
"""The methods with their options, in a smoke run and otherwise."""

Distances = Mapping[tuple[str, str, str], Estimate]
"""Least Hausdorff distances by method, scheme and metric."""


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    model, samples = open_photographs(options)
    refuse_options(options, MAP_READINGS, "it has its own two variants, one of them with the authors' maps in 8 bits")
    own = SMALL if options.embedded else METHODS
    if options.paper:
        own = {name: paper_options(name, model.module, options.noise) for name in METHODS}
    methods = {name: {"method": name, **method} for name, method in own.items()}
    runs = Runs(model, samples, without(methods, options, needed=SHOWN[:1]), options, progress)
    curves = {OURS: runs.ours(), LITERAL: runs.literal()}
    distances = {variant: distances_of(own) for variant, own in curves.items()}
    orders = {variant: {scheme: runs.order_kept(scheme, variant) for scheme in SCHEMES} for variant in VARIANTS}
    curve_values = {name: _plain_curves(curves[OURS][SHOWN][name]) for name in MAPS}
    tables = {variant: _table(own, list(runs.methods)) for variant, own in distances.items()}
    numbers = {
        "model": model.name,
        "data": samples.name,
        "samples": len(samples),
        "performance": "accuracy",
        "distances": tables,
        "areas": {variant: _areas(own) for variant, own in curves.items()},
        "rank_correlation": {v: {scheme: r.value for scheme, r in own.items()} for v, own in orders.items()},
        "curves": {"of": list(SHOWN), **curve_values},
    }
    cannot = "a dozen small photographs are too few" if options.embedded else ""
    few = cannot or too_few(curves[OURS][SHOWN][ORIGINAL]["soundness"])
    example = {"input": shown_input(model, samples, 0), **runs.example(SHOWN[0])}
    sheet = {method: runs.example(method) for method in runs.methods}
    return Outcome(
        numbers=numbers,
        claims=tuple(claim for v in VARIANTS for claim in _claims(v, distances[v], orders[v], cannot, few)),
        figures={
            "order-vs-value": lambda figure: draw(figure, example, curve_values),
            "distances": lambda figure: draw_distances(figure, tables),
            "modified-maps": lambda figure: draw_modified(figure, example["input"], sheet),
        },
    )


def distances_of(curves: Mapping[tuple[str, str], Versions]) -> dict[tuple[str, str, str], Estimate]:
    """Estimate, by method, scheme and metric, the least Hausdorff distance between curves of two versions."""
    points, distances = cache(_points), {}  # the original curves are the same for every scheme
    for (method, scheme), versions in curves.items():
        for metric in COLUMNS:
            own = [version[metric] for version in versions.values()]
            pairs = [_hausdorff(points(one, metric), points(other, metric)) for one, other in combinations(own, 2)]
            value, *replicates = np.min(pairs, axis=0).tolist()
            distances[method, scheme, metric] = Estimate.of(value, np.array(replicates), samples=len(own[0].table))
    return distances


def _points(curve: Curve, metric: str) -> Floats:
    """Return the points of a curve, (1 + R, L, 2): as measured, and in each resample."""
    again = bootstrap(curve, resamples=RESAMPLES)
    values = np.vstack([curve.values, again.values])
    across = np.vstack([curve.performance, again.performance]) if metric == "soundness" else curve.levels
    return np.stack([np.broadcast_to(across, values.shape), values], axis=2)


def _hausdorff(one: Floats, other: Floats) -> Floats:
    """Return the Hausdorff distances (R,) between sets of points (R, L, 2), leaving out points without a value."""
    distances = []
    for a, b in zip(one, other, strict=True):
        gaps = cdist(a[np.isfinite(a[:, 1])], b[np.isfinite(b[:, 1])])
        distances.append(max(gaps.min(axis=0).max(), gaps.min(axis=1).max()) if gaps.size else np.nan)
    return np.array(distances)


def _table(distances: Distances, methods: Sequence[str]) -> dict[str, Any]:
    """Return distances as results.json holds them: each, their means by scheme, and the mean and deviation of all."""

    def by_metric(over: Callable[[Floats], Any], chosen: Sequence[str], schemes: Sequence[str]) -> dict[str, Any]:
        each = [[distances[method, s, metric].value for method in chosen for s in schemes] for metric in COLUMNS]
        return dict(zip(COLUMNS, plain(over(np.array(values, dtype=float)) for values in each), strict=True))

    return {
        "mean": by_metric(np.mean, methods, SCHEMES),
        "deviation": by_metric(np.std, methods, SCHEMES),
        "by_scheme": {s: by_metric(np.mean, methods, [s]) for s in SCHEMES},
        "least": {method: {s: by_metric(np.mean, [method], [s]) for s in SCHEMES} for method in methods},
    }


def _areas(curves: Mapping[tuple[str, str], Versions]) -> dict[str, Any]:
    """Return the areas of our metrics as results.json holds them, by metric, method and scheme, then version."""
    return {
        metric: {
            f"{method}, {s}": {v: own[metric].area() for v, own in of.items()} for (method, s), of in curves.items()
        }
        for metric in STEPS
    }


def _plain_curves(curves: Mapping[str, Curve]) -> dict[str, Any]:
    return {
        metric: {
            "across": plain(curve.performance if metric == "soundness" else curve.levels),
            "values": plain(curve.values),
        }
        for metric, curve in curves.items()
        if metric in METRICS
    }


def _describe(means: Mapping[str, Estimate]) -> str:
    return list_values({"ROAD" if metric == "road_morf" else metric: means[metric] for metric in METRICS})


def _claims(
    variant: str, distances: Distances, orders: Mapping[str, Estimate], cannot: str, few: str
) -> Iterator[Claim]:
    """Judge the claims about a variant; `few` is the reason why soundness cannot decide any."""
    decide = partial(judge, cannot=cannot, reading=READINGS[variant])

    def means(schemes: Sequence[str]) -> dict[str, Estimate]:
        return {m: average([d for (_, s, own), d in distances.items() if s in schemes and own == m]) for m in COLUMNS}

    mean, kept = means(SCHEMES), means(ORDER_KEPT)
    for metric in VALUE_BASED:
        for factor in (1.0, FACTOR):
            times = "larger than" if factor == 1 else "at least five times"
            yield decide(
                *(mean[metric] - mean[other] * factor for other in ORDER_BASED),
                text=f"{TITLES[metric]} tells original and modified maps apart: its least Hausdorff distance is "
                f"{times} that of ROAD and of deletion.",
                source=f"Table 1 ({PAPER_DISTANCES[metric]} against 0.014 and 0.019), Fig. 7",
                measured=_describe(mean),
                ours=factor != 1,
                cannot=few if metric == "soundness" else cannot,
            )
    yield decide(
        *(NEAR_ZERO - mean[metric] for metric in ORDER_BASED),
        text=f"ROAD and deletion overlap: their least distances are near zero, below {NEAR_ZERO:g}.",
        source="Table 1, Fig. 7d and 7e",
        measured=_describe(mean),
    )
    text = "Where maps have nearly one order and other values (constant, random)"
    yield decide(
        *(kept[metric] - NEAR_ZERO for metric in VALUE_BASED),
        text=f"{text}, completeness and soundness tell them apart.",
        source="Section 5.2",
        measured=_describe(kept),
        ours=True,
        cannot=few,
    )
    blind = f"{text}, ROAD and deletion do not."
    if variant == OURS:
        reason = "two of the three maps have exactly one order"
        yield Claim(
            text=blind,
            source="Section 5.2",
            measured=_describe(kept),
            verdict="by construction",
            ours=True,
            reading=READINGS[variant],
            reason=reason,
        )
    else:
        overlap = [NEAR_ZERO - kept[metric] for metric in ORDER_BASED]
        yield decide(*overlap, text=blind, source="Section 5.2", measured=_describe(kept), ours=True)
    yield from _own_claims(mean, decide)
    yield decide(
        *(correlation - SLIGHT for correlation in orders.values()),
        text=f"The modifications change the order of features only slightly: rank correlation above {SLIGHT:g}.",
        source="Section 5.2, caption of Fig. 7",
        measured=f"mean rank correlation with the original: {list_values(orders, 'z.2f')}",
    )


def _own_claims(mean: Mapping[str, Estimate], decide: Callable[..., Claim]) -> Iterator[Claim]:
    """Judge our own metrics by their mean distances, against ROAD in either order."""
    roads = {"ROAD": mean["road_morf"], "ROAD, least relevant first": mean["road_lerf"]}
    for metric, (name, source) in OWN.items():
        yield decide(
            *(mean[metric] - road for road in roads.values()),
            text=f"{name} tells original and modified maps apart: its least distance is larger than ROAD's.",
            source=source,
            measured=list_values({name[0].lower() + name[1:]: mean[metric], **roads}),
            ours=True,
        )


def draw(figure: Figure, example: Mapping[str, Floats], curves: Mapping[str, Any]) -> None:
    """Draw modified maps of one sample above the curves of the four metrics."""
    figure.set_size_inches(6.9, 3.5)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.75))[:, 0]
    method, scheme = SHOWN
    above.suptitle(f"(a) Maps of {paper_name(method)}", fontsize=8)
    _show_maps(above.subplots(1, len(example)), example)
    below.suptitle(f"(b) Curves of {paper_name(method)}, scheme {scheme}", fontsize=8)
    grid = below.subplots(1, len(METRICS))
    for axes, metric in zip(grid, METRICS, strict=True):
        _draw_metric(axes, curves, metric)
    handles, labels = grid[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def draw_modified(figure: Figure, image: Floats, maps: Mapping[str, Mapping[str, Floats]]) -> None:
    """Draw the original and the modified maps of the first image, a row for each method, all on one scale."""
    columns = 1 + len(next(iter(maps.values())))
    figure.set_size_inches(6.9, 6.9 / columns * len(maps) + 0.3)
    grid = figure.subplots(len(maps), columns, squeeze=False)
    for number, (row, (method, own)) in enumerate(zip(grid, maps.items(), strict=True)):
        _show_maps(row, {"input": image, **own}, titles=number == 0)
        name_row(row[0], paper_name(method))


def _show_maps(row: Sequence[Axes], images: Mapping[str, Floats], *, titles: bool = True) -> None:
    for axes, (name, values) in zip(row, images.items(), strict=True):
        axes.imshow(
            np.atleast_2d(values),
            cmap="gray" if name == "input" else "viridis",
            vmin=0,
            vmax=None if name == "input" else 1.6,
        )
        axes.set_title(name if titles else "", fontsize=7)
        axes.set_axis_off()


def _draw_metric(axes: Axes, curves: Mapping[str, Any], metric: str) -> None:
    for name, own in curves.items():
        colour, dash = _STYLES[name]
        x, y = (np.array(own[metric][key], dtype=np.float64) for key in ("across", "values"))
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
    styles = styles_of({method for table in tables.values() for method in table["least"]})
    for axes, (variant, table) in zip(panels, tables.items(), strict=True):
        for k, (method, of_method) in enumerate(table["least"].items()):
            for scheme, of_scheme in of_method.items():
                x = [position + 0.16 * (k - 1) for position in range(len(METRICS))]
                y = np.array([of_scheme[metric] for metric in METRICS], dtype=np.float64)
                colour, label = styles[method].colour, f"{paper_name(method)}, {scheme}"
                axes.plot(x, y, linestyle="", marker=markers[scheme], color=colour, label=label)
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


EXPERIMENT = Experiment(
    title="Which metrics look at values, and which at the order alone?",
    source="Section 5.2, Fig. 7, Table 1, Table 3, appendix G.3",
    run=run,
    stand_in="12 photographs of 128 × 128 pixels and EfficientNet-lite0 stand for ImageNet and VGG16",
)
