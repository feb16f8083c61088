"""Comparison of methods on a trained network: model and data, options of methods, evaluation, areas and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from twinlens.data.samples import Samples, subset
from twinlens.data.sources import open_data
from twinlens.errors import unknown
from twinlens.evaluation import evaluate
from twinlens.models.loading import PRETRAINED, LoadedModel, load_model
from twinlens.outcome import Evaluation
from twinlens.probing.model_call import best_device
from twinlens.report.figures import draw_metric, draw_plane
from twinlens.report.styles import method_styles
from twinlens.reproduction.claims import Claim, area_of, list_values, too_few
from twinlens.reproduction.experiment import ExperimentOptions, Outcome, require_both
from twinlens.support.estimate import Estimate
from twinlens.support.fields import to_json
from twinlens.support.progress import Progress
from twinlens.support.randomness import stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

PAPER_MODEL = "torchvision:vgg16"
FEW_LEVELS = tuple(percent / 100 for percent in range(98, 0, -4))
"""Steps of 4% instead of the paper's 1%, for smoke runs; with larger steps nearly every one gains more than epsilon."""

Areas = Mapping[str, Mapping[str, Estimate]]
"""Areas by metric and method; more is better."""

_PER_CLASS = 5
_LAYERS = {"gradcam": "features.28", "iba": "features.17", "input_iba": "features.17"}  # of VGG16


def open_photographs(options: ExperimentOptions) -> tuple[LoadedModel, Samples]:
    """Open the model and data for claims about photographs; see `open_both`.

    By default a dozen, reduced in size because the network is three times slower at full size.
    """
    small = {"resize": 146, "crop": 128}
    return open_both(options, "efficientnet-lite0", "imagenet20", limit=12, preprocessing=small)


def open_both(
    options: ExperimentOptions, model: str, data: str, *, limit: int, preprocessing: Mapping[str, Any] | None = None
) -> tuple[LoadedModel, Samples]:
    """Load the model and open the data: the paper's, those of the options, or these defaults.

    Of the default data `limit` samples are drawn; `preprocessing` replaces settings of the default model.
    """
    if options.paper and options.data is None:
        raise ValueError("`data` is missing: the paper's settings need a folder of ImageNet images. Pass --data DIR.")
    require_both(options, {"classes": "data", "weights": "model"})
    loaded = load_model(
        options.model or (PAPER_MODEL if options.paper else model),
        weights=options.weights or PRETRAINED,
        preprocessing=preprocessing if options.embedded else None,
        device=best_device(options.device),
        allow_code=options.allow_code,
    )
    samples = open_data(options.data or data, classes=options.classes)
    count = options.limit or (limit if options.data is None else None)
    if count is not None:
        samples = subset(samples, count, options.seed)
    elif options.paper:
        samples = some_of_each_class(samples, _PER_CLASS, options.seed)
    return loaded, samples


def some_of_each_class(samples: Samples, count: int, seed: int) -> Samples:
    """Draw `count` samples of each class, in their original order."""
    order = sorted(range(len(samples)), key=lambda i: (stream(seed, "class", samples.ids[i]), samples.ids[i]))
    chosen: dict[int, list[int]] = {}
    for position in order:
        of_class = chosen.setdefault(int(samples.labels[position]), [])
        if len(of_class) < count:
            of_class.append(position)
    return samples.take(sorted(position for of_class in chosen.values() for position in of_class))


def paper_options(method: str, module: nn.Module, noise: str) -> dict[str, Any]:
    """Return the options of a method in the paper and its authors' code; layers where the network has VGG16's names."""
    options: dict[str, Any] = {}
    if method in ("integrated_gradients", "ig_sg", "ig_sq", "ig_var"):
        options["steps"] = 50  # Captum's default
    if method in ("ig_sg", "ig_sq", "ig_var", "deepshap"):
        options["variance"] = {"variance": 0.3, "deviation": 0.09}[noise]
    if method == "extremal_perturbation":
        options["areas"] = 0.3
    if method == "iba":
        options["beta"] = 20.0  # as in the code of InputIBA, whose first step it is; Schulz et al. use 10
    if method == "input_iba":
        options["rounds"] = 40
    if method in _LAYERS and _LAYERS["gradcam"] in dict(module.named_modules()):
        options["layer"] = _LAYERS[method]
    return options


def without(methods: Mapping[str, T], options: ExperimentOptions, needed: Sequence[str]) -> dict[str, T]:
    """Return the methods without those that the options leave out, which cannot be the needed ones."""
    for name in options.leave_out:
        if name not in methods:
            raise unknown("leave_out", name, methods)
        if name in needed:
            raise ValueError(f"`leave_out` cannot name {name!r}, which the experiment is about.")
    return {name: method for name, method in methods.items() if name not in options.leave_out}


def compare_methods(
    model: LoadedModel,
    samples: Samples,
    methods: Mapping[str, Any],
    metrics: Sequence[str] | Mapping[str, Any],
    options: ExperimentOptions,
    progress: Progress,
    *,
    folder: str = "run",
    **settings: Any,
) -> Evaluation:
    """Evaluate methods in the experiment's directory, with other settings of `evaluate`."""
    common: dict[str, Any] = {
        "control": "none",  # the paper has none
        "batch_size": 32,  # the last digits depend on it
        "memory_format": "channels_last",
        "precision": "float32",  # as in the paper
        "threads": None if options.paper else 1,  # more are no faster on inputs this small
        "compile": options.compile,
        "seed": options.seed,
        "progress": progress,
    }
    return evaluate(model, samples, methods, metrics=metrics, out=options.out / folder, **common | settings)


def outcome_of(
    evaluation: Evaluation,
    claims: Callable[[Areas, Mapping[str, str]], Iterator[Claim]],
    *,
    figure: str,
    cannot: str,
    plane: bool = False,
) -> Outcome:
    """Return the results of an experiment that is one evaluation.

    `claims` judges by areas and, for each metric, the reason why it cannot decide any, such as `cannot`.
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
        figures={figure: lambda canvas: draw_panels(canvas, evaluation, list(areas), plane=plane)},
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
    values = {name: -math.inf if area.value is None else area.value for name, area in areas.items()}
    return list_values({name: areas[name] for name in sorted(areas, key=lambda name: -values[name])})


def draw_panels(figure: Figure, evaluation: Evaluation, metrics: Sequence[str], *, plane: bool) -> None:
    """Draw one panel per metric, and with `plane` the soundness–completeness plane; one legend for all."""
    count, columns = len(metrics) + plane, 3
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
