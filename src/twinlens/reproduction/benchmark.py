"""Which method is sound, which is complete? The paper's methods by both metrics, with a random baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn

from twinlens.data.samples import Samples
from twinlens.models.loading import LoadedModel
from twinlens.outcome import Evaluation
from twinlens.reproduction.claims import Claim, judge
from twinlens.reproduction.comparison_figures import draw_comparison
from twinlens.reproduction.experiment import Experiment, ExperimentOptions, Outcome
from twinlens.reproduction.map_readings import PAPER, MapReading, Readings, list_readings
from twinlens.reproduction.method_comparison import (
    Judged,
    areas_of,
    compare_methods,
    describe_areas,
    judge_all,
    numbers_of,
    open_both,
    paper_options,
    with_start,
    without,
)
from twinlens.support.estimate import Estimate
from twinlens.support.progress import Progress

METRICS, HEADLINE = ("soundness", "completeness"), ("soundness_rank", "completeness_share")
_NAMES = {
    "soundness": "soundness",
    "completeness": "completeness",
    "soundness_rank": "soundness as a rank",
    "completeness_share": "completeness as a share",
}
BASELINE, MASK, HIDDEN = "random", "extremal_perturbation", ("iba", "gradcam")
METHODS = (
    "gradcam",
    "integrated_gradients",
    "ig_sg",
    "ig_sq",
    "ig_var",
    "deepshap",
    MASK,
    "iba",
    "input_iba",
    BASELINE,
)

_ENSEMBLES = ("ig_sg", "ig_sq", "ig_var")
_SIGNED = ("integrated_gradients", *_ENSEMBLES, "deepshap")  # attributions of either sign, in every channel
_SMALL: dict[str, Mapping[str, Any]] = {
    "integrated_gradients": {"steps": 16},
    **{name: {"samples": 8, "steps": 8} for name in _ENSEMBLES},
    "extremal_perturbation": {"steps": 100},
    "input_iba": {"rounds": 10},
}


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    model, samples = open_both(options, "mnist-cnn", "mnist", limit=100)
    evaluations = {}
    for reading in (readings := list_readings(options)):
        methods = {name: {"method": name, **_options(name, model.module, options, reading)} for name in METHODS}
        methods = without(methods, options, needed=(*HIDDEN, "integrated_gradients", BASELINE))
        if reading.bits:
            methods = _stored(model, samples, methods, reading, options, progress)
        metrics = with_start((*METRICS, *HEADLINE), None) if reading.protocol == PAPER else list(METRICS)
        evaluations[reading.words if len(readings) > 1 else ""] = compare_methods(
            model, samples, methods, metrics, options, progress, folder=reading.folder, protocol=reading.protocol
        )
    cannot = "digits and a small network say nothing about photographs and VGG16" if options.embedded else ""
    [first, *_] = evaluations.values()
    planes = {
        title: (_shown_areas(first, one), _shown_areas(first, other))
        for title, (one, other) in {"The paper's pair": METRICS, "As a rank and as a share": HEADLINE}.items()
        if one in first.metrics
    }
    return Outcome(
        numbers=numbers_of(evaluations),
        claims=judge_all(evaluations, _claims, cannot=cannot),
        figures={"benchmark": lambda figure: draw_comparison(figure, first, planes)},
    )


def _shown_areas(evaluation: Evaluation, metric: str) -> dict[str, Estimate]:
    """Return areas with intervals that end where the metric does."""
    return {name: area.clipped(0.0, 1.0) for name, area in areas_of(evaluation, metric).items()}


def _stored(
    model: LoadedModel,
    samples: Samples,
    methods: Mapping[str, Any],
    reading: MapReading,
    options: ExperimentOptions,
    progress: Progress,
) -> dict[str, Any]:
    """Make maps first, those of signed methods with all channels, and return methods that reduce them to few bits."""
    made: dict[str, Any] = {}
    for folder, settings in (("attributions", {"features": "channels", "sign": "signed"}), ("maps", {})):
        own = {name: method for name, method in methods.items() if (name in _SIGNED) == (folder == "attributions")}
        if own:
            run = compare_methods(
                model, samples, own, [], options, progress, folder=f"{folder}-{reading.noise}", **settings
            )
            made |= Readings(run).methods({name: name for name in own}, reading)
    return {name: made[name] for name in methods}


def _options(name: str, module: nn.Module, options: ExperimentOptions, reading: MapReading) -> Mapping[str, Any]:
    """Return the options of a method: few steps on digits, the paper's with `paper`, and the defaults otherwise."""
    paper = paper_options(name, module, reading.noise)
    if options.paper:
        return paper
    own = dict(_SMALL.get(name, {})) if options.embedded else {}
    return own | ({"variance": paper["variance"]} if name in _ENSEMBLES else {})


def _claims(judged: Judged) -> Iterator[Claim]:
    yield from _pair(judged, *METRICS)
    if HEADLINE[0] in judged.areas:
        yield from _pair(judged, *HEADLINE)
    for metric, own in judged.areas.items():
        yield judge(
            *(own[name] - own[BASELINE] for name in own if name != BASELINE),
            text=f"A random map is behind every method in {_NAMES[metric]}.",
            source="Fig. 9",
            measured=describe_areas(own),
            ours=True,
            cannot=judged.cannot[metric],
        )


def _pair(judged: Judged, soundness: str, completeness: str) -> Iterator[Claim]:
    """Judge the paper's claims by its own pair of metrics, or by ours."""
    ours = soundness != METRICS[0]
    by = " (as a rank, as a share)" if ours else ""
    sound, complete = judged[soundness], judged[completeness]
    by_soundness, by_completeness = (
        partial(judge, ours=ours, cannot=judged.cannot[metric]) for metric in (soundness, completeness)
    )
    methods = [name for name in sound if name != BASELINE]
    descriptions = {_NAMES[metric]: describe_areas(judged[metric]) for metric in (soundness, completeness)}
    yield by_soundness(
        *(
            tuple(own[other] - own[name] for own in (sound, complete) for other in methods if other != name)
            for name in methods
        ),
        text=f"No method is best by both metrics: each is beaten by another in soundness or in completeness{by}.",
        source="Section 5.3, Fig. 9",
        measured="; ".join(f"{metric}: {own}" for metric, own in descriptions.items()),
    )
    if MASK in methods:
        yield by_completeness(
            *_lead(complete, [MASK], methods),
            text=f"Extremal perturbation stands out in completeness: it is more complete than every other method{by}.",
            source="Section 5.3, Fig. 9b",
            measured=descriptions[_NAMES[completeness]],
        )
    yield by_soundness(
        *_lead(sound, HIDDEN, methods),
        text=f"IBA and GradCAM are superior in soundness: sounder than every other method{by}.",
        source="Section 5.3, Fig. 9a",
        measured=descriptions[_NAMES[soundness]],
    )
    if MASK in methods:
        yield by_soundness(
            *(sound[name] - sound[MASK] for name in HIDDEN),
            text=f"Extremal perturbation is less sound than IBA and GradCAM{by}.",
            source="Appendix B",
            measured=describe_areas({name: sound[name] for name in (*HIDDEN, MASK)}),
        )


def _lead(areas: Mapping[str, Estimate], better: Sequence[str], methods: Sequence[str]) -> list[Estimate]:
    """Return by how much each of the better methods leads each of the others."""
    return [areas[one] - areas[other] for one in better for other in methods if other not in better]


EXPERIMENT = Experiment(
    title="Which method is sound, which is complete?",
    source="Section 5.3, Fig. 9",
    run=run,
    stand_in="100 digits and a small network stand for ImageNet and VGG16",
)
