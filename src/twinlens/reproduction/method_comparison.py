"""Comparing methods: an evaluation of all of them, the areas of their curves, and panels that draw them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twinlens.evaluation import evaluate
from twinlens.outcome import Evaluation
from twinlens.report.figures import draw_metric, draw_plane
from twinlens.report.styles import method_styles
from twinlens.reproduction.claims import Estimate, area_of
from twinlens.reproduction.experiment_setup import Subject
from twinlens.reproduction.outcome import ExperimentOptions
from twinlens.support.fields import to_json
from twinlens.support.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compare_methods(
    subject: Subject,
    methods: Mapping[str, Any],
    metrics: Sequence[str] | Mapping[str, Any],
    levels: tuple[float, ...] | None,
    options: ExperimentOptions,
    progress: Progress,
    *,
    folder: str = "run",
    batch_size: int = 32,
    resamples: int = 1000,
) -> Evaluation:
    """Evaluate methods in the experiment's directory, in fixed batches, so that last bits are the same everywhere."""
    return evaluate(
        subject.model,
        subject.samples,
        methods,
        metrics=metrics,
        out=options.out / folder,
        levels=levels,
        control="none",  # the paper has none
        batch_size=batch_size,
        memory_format="channels_last",
        precision="float32",  # as in the paper
        compile=options.compile,
        threads=None if options.paper else 1,  # more wait for each other on inputs this small
        seed=options.seed,
        resamples=resamples,
        progress=progress,
    )


def numbers_of(evaluation: Evaluation) -> dict[str, Any]:
    """Return what results.json of the experiment holds: areas with intervals, and all curves."""
    results = evaluation.results
    return {
        "model": results.model.name,
        "data": results.data.name,
        "samples": results.data.samples,
        "accuracy": results.accuracy,
        "soundness_up_to": results.soundness_up_to.get("soundness"),
        "front": list(results.front),
        "methods": {name: to_json(found.metrics) for name, found in results.methods.items()},
    }


def areas_of(evaluation: Evaluation, metric: str) -> dict[str, Estimate]:
    """Estimate the area of every method by a metric; where less is better, of the other sign."""
    sign = 1.0 if evaluation.results.about(metric).higher_is_better else -1.0
    high = evaluation.results.soundness_up_to.get(metric)
    return {name: area_of(evaluation.curve(name, metric), high) * sign for name in evaluation.methods}


def describe_areas(areas: Mapping[str, Estimate]) -> str:
    """List the areas that were measured, the largest first.

    Example:
        >>> import numpy as np
        >>> one = Estimate(value=0.25, replicates=np.zeros(2), samples=9)
        >>> describe_areas({"gradcam": one, "iba": one * 2})
        'iba 0.500, gradcam 0.250'
    """
    known = sorted(areas.items(), key=lambda item: (math.isnan(item[1].value), -item[1].value))
    return ", ".join(f"{name} not reached" if math.isnan(a.value) else f"{name} {a.value:z.3f}" for name, a in known)


def draw_panels(figure: Figure, evaluation: Evaluation, metrics: Sequence[str], *, columns: int, plane: bool) -> None:
    """Draw one panel per metric, and with `plane` the soundness–completeness plane; one legend for all."""
    count = len(metrics) + plane
    rows = -(-count // columns)
    figure.set_size_inches(6.9, 2.3 * rows + 0.2 + 0.15 * -(-len(evaluation.methods) // 4))
    styles = method_styles([evaluation])
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, metric in zip(grid, metrics, strict=False):
        draw_metric(axes, evaluation, metric, styles)
        axes.set_title(evaluation.results.about(metric).title, fontsize=8)
    if plane:
        draw_plane(grid[len(metrics)], evaluation, styles)
        grid[len(metrics)].set_title("Both, as areas", fontsize=8)
    for axes in grid[count:]:
        axes.set_axis_off()
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), fontsize=7)
