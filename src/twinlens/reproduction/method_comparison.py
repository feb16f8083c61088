"""Comparison of methods on a trained network: their evaluation, the areas of their curves, and figures of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twinlens.evaluation import evaluate
from twinlens.report.figures import draw_metric, draw_plane
from twinlens.report.styles import method_styles
from twinlens.reproduction.claims import Claim, area_of, too_few
from twinlens.reproduction.experiment import ExperimentOptions, Outcome
from twinlens.reproduction.experiment_setup import Setup
from twinlens.run.run_reader import Evaluation
from twinlens.support.estimate import Estimate
from twinlens.support.fields import to_json
from twinlens.support.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Areas = Mapping[str, Mapping[str, Estimate]]
"""Areas by metric and method; more is better."""


def compare_methods(
    setup: Setup,
    methods: Mapping[str, Any],
    metrics: Sequence[str] | Mapping[str, Any],
    options: ExperimentOptions,
    progress: Progress,
    *,
    levels: tuple[float, ...] | None = None,
    folder: str = "run",
    batch_size: int = 32,
    resamples: int = 1000,
) -> Evaluation:
    """Evaluate methods in the experiment's directory; the batch size is fixed because the last digits depend on it."""
    return evaluate(
        setup.model,
        setup.samples,
        methods,
        metrics=metrics,
        out=options.out / folder,
        levels=levels,
        control="none",  # the paper has none
        batch_size=batch_size,
        memory_format="channels_last",
        precision="float32",  # as in the paper
        compile=options.compile,
        threads=None if options.paper else 1,  # more are no faster on inputs this small
        seed=options.seed,
        resamples=resamples,
        progress=progress,
    )


def outcome_of(
    evaluation: Evaluation,
    claims: Callable[[Areas, Mapping[str, str]], Iterator[Claim]],
    *,
    figure: str,
    cannot: str,
    plane: bool = False,
) -> Outcome:
    """Return the results of an experiment that is one evaluation.

    Args:
        evaluation: all methods by all metrics.
        claims: judges the claims by the areas and, for each metric, the reason why it cannot decide any.
        figure: name of the figure, which has a panel for each metric.
        cannot: why the data cannot decide any claim.
        plane: whether the figure has the soundness–completeness plane, too.
    """
    results, [method, *_] = evaluation.results, evaluation.methods
    areas = {metric: areas_of(evaluation, metric) for metric in evaluation.metrics}
    reasons = {metric: cannot or too_few(evaluation.curve(method, metric)) for metric in areas}
    numbers = {
        "model": results.model.name,
        "data": results.data.name,
        "samples": results.data.samples,
        "accuracy": results.accuracy,
        "soundness_up_to": results.soundness_up_to.get("soundness"),
        "front": list(results.front),
        "methods": {name: to_json(own.metrics) for name, own in results.methods.items()},
    }
    return Outcome(
        numbers=numbers,
        claims=tuple(claims(areas, reasons)),
        figures={figure: lambda canvas: draw_panels(canvas, evaluation, list(areas), columns=3, plane=plane)},
    )


def areas_of(evaluation: Evaluation, metric: str) -> dict[str, Estimate]:
    """Estimate the area of every method by a metric; with the opposite sign if less is better."""
    sign = 1.0 if evaluation.results.about(metric).higher_is_better else -1.0
    high = evaluation.results.soundness_up_to.get(metric)
    return {name: area_of(evaluation.curve(name, metric), high) * sign for name in evaluation.methods}


def describe_areas(areas: Mapping[str, Estimate]) -> str:
    """List areas, the largest first.

    Example:
        >>> describe_areas({"gradcam": Estimate(value=0.25, samples=9), "iba": Estimate(value=0.5, samples=9)})
        'iba 0.500, gradcam 0.250'
    """
    values = {name: area.value for name, area in areas.items()}
    reached = {name: value for name, value in values.items() if value is not None}
    listed = [f"{name} {value:z.3f}" for name, value in sorted(reached.items(), key=lambda item: -item[1])]
    return ", ".join([*listed, *(f"{name} not reached" for name in values if name not in reached)])


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
