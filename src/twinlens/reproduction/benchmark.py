"""Which method is sound, which is complete? The paper's methods by both metrics, with a random baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn

from twinlens.reproduction.claims import Claim, judge
from twinlens.reproduction.experiment import Experiment, ExperimentOptions, Outcome
from twinlens.reproduction.method_comparison import (
    Areas,
    compare_methods,
    describe_areas,
    open_both,
    outcome_of,
    paper_options,
    without,
)
from twinlens.support.estimate import Estimate
from twinlens.support.progress import Progress

METRICS = ("soundness", "completeness")
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
_SMALL: dict[str, Mapping[str, Any]] = {
    "integrated_gradients": {"steps": 16},
    **{name: {"samples": 8, "steps": 8} for name in _ENSEMBLES},
    "extremal_perturbation": {"steps": 100},
    "input_iba": {"rounds": 10},
}


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    model, samples = open_both(options, "mnist-cnn", "mnist", limit=100)
    methods = {name: {"method": name, **_options(name, model.module, options)} for name in METHODS}
    methods = without(methods, options, needed=(*HIDDEN, "integrated_gradients", BASELINE))
    evaluation = compare_methods(model, samples, methods, METRICS, options, progress)
    cannot = "digits and a small network say nothing about photographs and VGG16" if options.embedded else ""
    return outcome_of(evaluation, _claims, figure="benchmark", cannot=cannot, plane=True)


def _options(name: str, module: nn.Module, options: ExperimentOptions) -> Mapping[str, Any]:
    """Return the options of a method: few steps on digits, the paper's with `paper`, and the defaults otherwise."""
    paper = paper_options(name, module, options.noise)
    if options.paper:
        return paper
    own = dict(_SMALL.get(name, {})) if options.embedded else {}
    return own | ({"variance": paper["variance"]} if name in _ENSEMBLES else {})


def _claims(areas: Areas, cannot: Mapping[str, str]) -> Iterator[Claim]:
    sound, complete = (areas[metric] for metric in METRICS)
    by_soundness, by_completeness = (partial(judge, cannot=cannot[metric]) for metric in METRICS)
    methods = [name for name in sound if name != BASELINE]
    descriptions = {metric: describe_areas(own) for metric, own in areas.items()}
    yield by_soundness(
        *(
            tuple(own[other] - own[name] for own in (sound, complete) for other in methods if other != name)
            for name in methods
        ),
        text="No method is best by both metrics: each is beaten by another in soundness or in completeness.",
        source="Section 5.3, Fig. 9",
        measured="; ".join(f"{metric}: {own}" for metric, own in descriptions.items()),
    )
    if MASK in methods:
        yield by_completeness(
            *_lead(complete, [MASK], methods),
            text="Extremal perturbation stands out in completeness: it is more complete than every other method.",
            source="Section 5.3, Fig. 9b",
            measured=descriptions["completeness"],
        )
    yield by_soundness(
        *_lead(sound, HIDDEN, methods),
        text="IBA and GradCAM are superior in soundness: sounder than every other method.",
        source="Section 5.3, Fig. 9a",
        measured=descriptions["soundness"],
    )
    if MASK in methods:
        yield by_soundness(
            *(sound[name] - sound[MASK] for name in HIDDEN),
            text="Extremal perturbation is less sound than IBA and GradCAM.",
            source="Appendix B",
            measured=describe_areas({name: sound[name] for name in (*HIDDEN, MASK)}),
        )
    for metric, own in areas.items():
        yield judge(
            *(own[name] - own[BASELINE] for name in methods),
            text=f"A random map is behind every method in {metric}.",
            source="Fig. 9",
            measured=descriptions[metric],
            ours=True,
            cannot=cannot[metric],
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
