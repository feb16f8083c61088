"""Which method is sound, which is complete? The paper's methods by both metrics, with a control that knows nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from twinlens.reproduction.claims import Estimate, judge
from twinlens.reproduction.experiment_setup import EmbeddedSubject, Subject, find_subject, measured, paper_options
from twinlens.reproduction.method_comparison import areas_of, compare_methods, describe_areas, draw_panels, numbers_of
from twinlens.reproduction.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.support.progress import Progress

METRICS = ("soundness", "completeness")
CONTROL, MASK, HIDDEN = "random", "extremal_perturbation", ("iba", "gradcam")
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
    CONTROL,
)

_EMBEDDED = EmbeddedSubject(model="mnist-cnn", data="mnist", limit=100)
_ENSEMBLES = ("ig_sg", "ig_sq", "ig_var")
_SMALL: dict[str, Mapping[str, Any]] = {
    "integrated_gradients": {"steps": 16},
    **{name: {"samples": 8, "steps": 8} for name in _ENSEMBLES},
    "extremal_perturbation": {"steps": 100},
    "input_iba": {"rounds": 10},
}


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    subject = find_subject(options, _EMBEDDED)
    methods = {name: {"method": name, **_options(name, subject, options)} for name in METHODS}
    methods = measured(methods, options, needed=(*HIDDEN, "integrated_gradients", CONTROL))
    evaluation = compare_methods(subject, methods, METRICS, None, options, progress)
    areas = {metric: areas_of(evaluation, metric) for metric in METRICS}
    cannot = "digits and a small network say nothing about photographs and VGG16" if subject.embedded else ""
    return Outcome(
        numbers=numbers_of(evaluation),
        claims=tuple(_claims(areas, cannot)),
        figures={"benchmark": lambda figure: draw_panels(figure, evaluation, METRICS, columns=3, plane=True)},
    )


def _options(name: str, subject: Subject, options: ExperimentOptions) -> Mapping[str, Any]:
    """Return the options of a method: few steps on digits, the paper's with `paper`, and the defaults otherwise."""
    if options.paper:
        return paper_options(name, subject.model.module, options.noise)
    own = dict(_SMALL.get(name, {})) if subject.embedded else {}
    if name in _ENSEMBLES:
        own["variance"] = paper_options(name, subject.model.module, options.noise)["variance"]
    return own


def _claims(areas: Mapping[str, Mapping[str, Estimate]], cannot: str) -> Iterator[Claim]:
    judged = partial(judge, cannot=cannot)
    sound, complete = (areas[metric] for metric in METRICS)
    methods = [name for name in sound if name != CONTROL]
    listed = {metric: describe_areas(own) for metric, own in areas.items()}
    yield judged(
        *(
            tuple(own[other] - own[name] for own in (sound, complete) for other in methods if other != name)
            for name in methods
        ),
        text="No method is best by both metrics: each is beaten by another in soundness or in completeness.",
        source="Section 5.3, Fig. 9",
        measured="; ".join(f"{metric}: {own}" for metric, own in listed.items()),
    )
    if MASK in methods:
        yield judged(
            *_before(complete, [MASK], methods),
            text="Extremal perturbation stands out in completeness: it is more complete than every other method.",
            source="Section 5.3, Fig. 9b",
            measured=listed["completeness"],
        )
    yield judged(
        *_before(sound, HIDDEN, methods),
        text="IBA and GradCAM are superior in soundness: sounder than every other method.",
        source="Section 5.3, Fig. 9a",
        measured=listed["soundness"],
    )
    if MASK in methods:
        yield judged(
            *(sound[name] - sound[MASK] for name in HIDDEN),
            text="Extremal perturbation is less sound than IBA and GradCAM.",
            source="Appendix B",
            measured=describe_areas({name: sound[name] for name in (*HIDDEN, MASK)}),
        )
    for metric, own in areas.items():
        yield judged(
            *(own[name] - own[CONTROL] for name in methods),
            text=f"A random map is behind every method in {metric}.",
            source="Fig. 9",
            measured=listed[metric],
            ours=True,
        )


def _before(areas: Mapping[str, Estimate], better: Sequence[str], methods: Sequence[str]) -> list[Estimate]:
    """Return by how much each of some methods is before each of the rest."""
    return [areas[one] - areas[other] for one in better for other in methods if other not in better]


EXPERIMENT = Experiment(
    title="Which method is sound, which is complete?",
    source="Section 5.3, Fig. 9",
    run=run,
    stand_in="100 digits and a small network stand for ImageNet and VGG16",
)
