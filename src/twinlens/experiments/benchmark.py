"""Which method is sound, which is complete? The paper's methods by both metrics, with a control that knows nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from twinlens.core.progress import Progress
from twinlens.experiments.comparing import compare_methods, describe_areas, draw_panels, numbers_of
from twinlens.experiments.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.experiments.subject import EmbeddedSubject, find_subject
from twinlens.running.run_reader import Evaluation

METRICS = ("soundness", "completeness")
CONTROL = "random"
METHODS = (
    "gradcam",
    "integrated_gradients",
    "ig_sg",
    "ig_sq",
    "ig_var",
    "deepshap",
    "extremal_perturbation",
    "iba",
    "input_iba",
    CONTROL,
)

_EMBEDDED = EmbeddedSubject(model="mnist-cnn", data="mnist", limit=200)
_ENSEMBLE = {"samples": 8, "steps": 8}
_SMALL: dict[str, Mapping[str, Any]] = {
    "integrated_gradients": {"steps": 16},
    "ig_sg": _ENSEMBLE,
    "ig_sq": _ENSEMBLE,
    "ig_var": _ENSEMBLE,
    "extremal_perturbation": {"steps": 100},
    "input_iba": {"rounds": 10},
}


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    subject = find_subject(options, _EMBEDDED)
    own = _SMALL if subject.embedded else {}
    methods = {name: {"method": name, **own.get(name, {})} for name in METHODS}
    evaluation = compare_methods(subject, methods, METRICS, None, options, progress)
    return Outcome(
        numbers=numbers_of(evaluation),
        claims=tuple(_claims(evaluation)),
        figures={"benchmark": lambda figure: draw_panels(figure, evaluation, METRICS, columns=3, plane=True)},
    )


def _claims(evaluation: Evaluation) -> Iterator[Claim]:
    areas = {metric: evaluation.results.areas(metric) for metric in METRICS}
    methods = {metric: {name: area for name, area in own.items() if name != CONTROL} for metric, own in areas.items()}
    best = {metric: max(own, key=own.__getitem__) for metric, own in methods.items()}
    measured = "; ".join(f"{metric}: {describe_areas(own)}" for metric, own in areas.items())
    yield Claim(
        text="No method is best by both metrics.",
        source="Section 5.3, Fig. 8",
        measured=measured,
        holds=best["soundness"] != best["completeness"],
    )
    yield Claim(
        text="Extremal perturbation stands out in completeness.",
        source="Section 5.3, Fig. 8b",
        measured=_place(methods["completeness"], "extremal_perturbation"),
        holds=_rank(methods["completeness"], "extremal_perturbation") <= 2,
    )
    yield Claim(
        text="IBA and GradCAM are superior in soundness.",
        source="Section 5.3, Fig. 8a",
        measured=f"{_place(methods['soundness'], 'iba')}; {_place(methods['soundness'], 'gradcam')}",
        holds=max(_rank(methods["soundness"], name) for name in ("iba", "gradcam")) <= len(methods["soundness"]) / 2,
    )


def _rank(areas: Mapping[str, float], name: str) -> int:
    """Return the rank of a method, 1 for the largest area; one without an area comes after all others."""
    if name not in areas:
        return len(areas) + 1
    return 1 + sum(area > areas[name] for area in areas.values())


def _place(areas: Mapping[str, float], name: str) -> str:
    if name not in areas:
        return f"{name} has no area"
    return f"{name} is number {_rank(areas, name)} of {len(areas)} with an area of {areas[name]:z.3f}"


EXPERIMENT = Experiment(
    title="Which method is sound, which is complete?",
    source="Section 5.3, Fig. 8",
    run=run,
)
