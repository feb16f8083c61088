"""Comparison of methods on a trained network: model and data, options of methods, evaluation, areas and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import nn

from twinlens.data.samples import Samples, subset
from twinlens.data.sources import open_data
from twinlens.errors import unknown
from twinlens.evaluation import evaluate
from twinlens.metrics.soundness import Soundness
from twinlens.models.loading import PRETRAINED, LoadedModel, load_model
from twinlens.outcome import Evaluation
from twinlens.probing.model_call import best_device
from twinlens.reproduction.claims import Claim, area_of, list_values, too_few
from twinlens.reproduction.comparison_figures import paper_name
from twinlens.reproduction.experiment import ExperimentOptions, refuse_options, require_both
from twinlens.reproduction.map_readings import NOISE
from twinlens.support.estimate import Estimate
from twinlens.support.fields import to_json
from twinlens.support.progress import Progress
from twinlens.support.randomness import stream

T = TypeVar("T")

PAPER_MODEL = "torchvision:vgg16"
FEW_LEVELS = tuple(percent / 100 for percent in range(98, 0, -4))
"""Steps of 4% instead of the paper's 1%, for smoke runs; with larger steps nearly every one gains more than epsilon."""

Areas = Mapping[str, Mapping[str, Estimate]]
"""Areas by metric and method; more is better."""

START_LEVEL, STARTED = 0.04, "soundness_started"
"""Accuracy up to which the authors' configuration judges no step, and the name of soundness with that start."""

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
    refuse_options(options, ["epochs"], "it trains no network")
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
        options["variance"] = NOISE[noise]
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


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What claims are judged by: areas, and why a metric cannot decide any claim."""

    areas: Areas
    cannot: Mapping[str, str]  # by metric; empty if it can
    reading: str  # in words; empty if there is one reading

    def __getitem__(self, metric: str) -> Mapping[str, Estimate]:
        return self.areas[metric]


def judged_readings(evaluation: Evaluation, *, cannot: str, words: str) -> Iterator[Judged]:
    """Yield what claims are judged by, and again with the soundness that is judged from `STARTED` on if it differs."""
    [method, *_] = evaluation.methods
    areas = {metric: areas_of(evaluation, metric) for metric in evaluation.metrics}
    reasons = {metric: cannot or too_few(evaluation.curve(method, metric)) for metric in areas}
    started = areas.pop(STARTED, None)
    differs = started is not None and any(
        started[name].value != area.value for name, area in areas["soundness"].items()
    )
    parts = [words, "judged from the first level"] if differs else [words]
    yield Judged(areas=areas, cannot=reasons, reading=", ".join(filter(None, parts)))
    if started is not None and differs:
        label = ", ".join(filter(None, [words, f"judged above an accuracy of {START_LEVEL:g}"]))
        yield Judged(areas=areas | {"soundness": started}, cannot=reasons, reading=label)


def judge_all(
    evaluations: Mapping[str, Evaluation], claims: Callable[[Judged], Iterator[Claim]], *, cannot: str
) -> tuple[Claim, ...]:
    """Judge the claims by every evaluation, from the words of its reading, and by both starts of soundness.

    Claims that do not depend on where soundness starts are judged once for each evaluation.
    """
    judged: list[Claim] = []
    for words, evaluation in evaluations.items():
        own: dict[str, list[Claim]] = {}
        for inputs in judged_readings(evaluation, cannot=cannot, words=words):
            for claim in claims(inputs):
                own.setdefault(claim.text, []).append(replace(claim, reading=inputs.reading))
        for same in own.values():
            judged += [replace(same[0], reading=words)] if len({each.measured for each in same}) == 1 else same
    order = list(dict.fromkeys(claim.text for claim in judged))
    return tuple(sorted(judged, key=lambda claim: (claim.ours, order.index(claim.text))))


def numbers_of(evaluations: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Return the numbers of evaluations of the same samples as results.json holds them, by reading."""
    results = {words: evaluation.results for words, evaluation in evaluations.items()}
    first = next(iter(results.values()))
    return {
        "model": first.model.name,
        "data": first.data.name,
        "samples": first.data.samples,
        "accuracy": first.accuracy,
        "readings": {
            words: {
                "soundness_levels": _level_range(evaluations[words], "soundness"),
                "front": list(own.front),
                "methods": {name: to_json(method.metrics) for name, method in own.methods.items()},
            }
            for words, own in results.items()
        },
    }


def _level_range(evaluation: Evaluation, metric: str) -> tuple[float, float | None]:
    """Return the predictive levels over which areas of soundness are compared.

    They start at the highest accuracy that a method has at the first level: below, a map's value is that of its first
    step alone. They end at nine tenths of the accuracy on original inputs.
    """
    first = max(float(evaluation.curve(name, metric).performance[0]) for name in evaluation.methods)
    return first, evaluation.results.soundness_up_to.get(metric)


def areas_of(evaluation: Evaluation, metric: str) -> dict[str, Estimate]:
    """Estimate the area of every method by a metric; with the opposite sign if less is better."""
    sign = 1.0 if evaluation.results.about(metric).higher_is_better else -1.0
    by_level = metric in evaluation.results.soundness_up_to
    low, high = _level_range(evaluation, metric) if by_level else (0.0, None)
    return {name: area_of(evaluation.curve(name, metric), low, high) * sign for name in evaluation.methods}


def with_start(metrics: Sequence[str], levels: Sequence[float] | None) -> dict[str, Any]:
    """Return metrics with a second reading of the paper's soundness, from the same probes: the authors' start level."""
    started = Soundness(start_level=START_LEVEL)
    if levels is not None:
        started = replace(started, levels=tuple(levels))
    return {metric: metric for metric in metrics} | {STARTED: started}


def describe_areas(areas: Mapping[str, Estimate]) -> str:
    """List areas, the largest first.

    Example:
        >>> describe_areas({"gradcam": Estimate(value=0.25, samples=9), "iba": Estimate(value=0.5, samples=9)})
        'IBA 0.500, GradCAM 0.250'
    """
    values = {name: -math.inf if area.value is None else area.value for name, area in areas.items()}
    return list_values({paper_name(name): areas[name] for name in sorted(areas, key=lambda name: -values[name])})
