"""What experiments that compare methods share: the areas of their curves, and panels that draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twinlens.evaluation import evaluate
from twinlens.experiments.outcome import Options, Tell
from twinlens.experiments.settings import Subject, Told
from twinlens.report.content import TITLES, area_of
from twinlens.report.figures import draw_metric, draw_plane
from twinlens.report.looks import method_looks
from twinlens.results import Evaluation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compare_methods(
    subject: Subject,
    methods: Mapping[str, Mapping[str, Any]],
    metrics: Sequence[str],
    levels: tuple[float, ...] | None,
    options: Options,
    tell: Tell,
) -> Evaluation:
    """Evaluates methods in the experiment's directory; batches are fixed, so that last bits are the same everywhere."""
    return evaluate(
        subject.model,
        subject.samples,
        methods,
        metrics=metrics,
        out=options.out / "run",
        levels=levels,
        batch_size=32,
        memory_format="channels_last",
        threads=None if options.paper else 1,  # more wait for each other on inputs this small
        seed=options.seed,
        progress=Told(tell),
    )


def numbers_of(evaluation: Evaluation) -> dict[str, Any]:
    """Gives what results.json of the experiment holds: areas with intervals, and all curves."""
    results = evaluation.results
    return {
        "model": results["model"]["name"],
        "data": results["data"]["name"],
        "samples": results["data"]["samples"],
        "accuracy": results["accuracy"],
        "soundness_up_to": results["soundness_up_to"],
        "front": list(results["front"]),
        "methods": {name: content["metrics"] for name, content in results["methods"].items()},
    }


def areas_of(evaluation: Evaluation, metric: str) -> dict[str, float]:
    """Gives the area of each method's curve that has one."""
    areas = {method: area_of(evaluation.results, method, metric) for method in evaluation.methods}
    return {method: area for method, area in areas.items() if area is not None}


def describe_areas(areas: Mapping[str, float]) -> str:
    """Says which areas were measured, the largest first.

    Example:
        >>> describe_areas({"gradcam": 0.25, "iba": 0.5})
        'iba 0.500, gradcam 0.250'
    """
    return ", ".join(f"{name} {area:.3f}" for name, area in sorted(areas.items(), key=lambda item: -item[1]))


def draw_panels(figure: Figure, evaluation: Evaluation, metrics: Sequence[str], *, columns: int, plane: bool) -> None:
    """Draws one panel per metric, and the soundness–completeness plane where wanted; one legend for all."""
    count = len(metrics) + plane
    rows = -(-count // columns)
    figure.set_size_inches(6.9, 2.3 * rows + 0.2 + 0.15 * -(-len(evaluation.methods) // 4))
    looks = method_looks([evaluation])
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, metric in zip(grid, metrics, strict=False):
        draw_metric(axes, evaluation, metric, looks)
        axes.set_title(TITLES[metric], fontsize=8)
    if plane:
        draw_plane(grid[len(metrics)], evaluation, looks)
        grid[len(metrics)].set_title("Both, as areas", fontsize=8)
    for axes in grid[count:]:
        axes.set_axis_off()
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), fontsize=7)
