"""Checks: tests of other papers, made on the methods of a run, and stored beside its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twinlens.core.fields import fields_of, to_json
from twinlens.core.progress import Progress, Quiet
from twinlens.core.versions import environment
from twinlens.errors import unknown
from twinlens.experiments import check_measures as measures
from twinlens.experiments.check_subject import CheckOptions, CheckSubject, choose_methods
from twinlens.running.checks import Check, CheckColumn, store_check
from twinlens.running.run_reader import Evaluation


@dataclass(frozen=True, kw_only=True)
class CheckKind:
    """One check: what it asks, and how it is made."""

    title: str
    """Its name in the literature."""

    question: str
    """What it asks."""

    source: str
    """Where it was published."""

    reading: str
    """How its numbers are to be read."""

    columns: tuple[CheckColumn, ...]
    """What it measures."""

    step_title: str | None = None
    """What goes on from step to step."""

    course_title: str | None = None
    """What is measured at each step."""

    options: tuple[str, ...]
    """The options that it has."""

    measure: Callable[[CheckSubject], measures.Measured]
    """Makes it."""


CHECKS = {
    "localisation": CheckKind(
        title="Localisation: Attr% and the pointing game",
        question="Does a map mark the object?",
        source="Attr%: Zhou et al. 2022, Do feature attribution methods correctly attribute features?; pointing game: "
        "Zhang et al. 2018, Top-down neural attention by excitation backprop",
        reading="Attr% is the share of a map's attribution inside the boxes, the pointing game the share of maps whose "
        "largest value is. Compare with the area of the boxes. A model may rightly look elsewhere: at the water below "
        "the boat.",
        columns=(CheckColumn(title="Attr%", better="higher"), CheckColumn(title="pointing game", better="higher")),
        options=("boxes", "any_label", "tolerance"),
        measure=measures.localisation,
    ),
}
"""Every check by its name."""


def run_check(
    evaluation: Evaluation,
    name: str,
    *,
    methods: tuple[str, ...] | None = None,
    options: CheckOptions | None = None,
    model: str | None = None,
    allow_code: bool = False,
    progress: Progress | None = None,
) -> Check:
    """Make a check on a run and store it there; one of the same name is replaced.

    Args:
        evaluation: the run.
        name: a name in `CHECKS`.
        methods: names of the run's methods; all by default.
        options: what is asked; those that the check does not have must stay at their defaults.
        model: spec of the run's model, which is needed where that is code.
        allow_code: as in `load_model`.
        progress: receives the progress; nothing is shown by default.
    """
    if name not in CHECKS:
        raise unknown("name", name, CHECKS)
    kind, given = CHECKS[name], options or CheckOptions()
    for option in fields_of(CheckOptions):
        if option.name not in kind.options and getattr(given, option.name) != option.default:
            raise ValueError(
                f"`{option.name}` has no effect on the check {name}, which has "
                f"{', '.join(kind.options) or 'no options'}. Leave it out."
            )
    subject = CheckSubject(
        evaluation=evaluation,
        names=choose_methods(evaluation, methods),
        options=given,
        model_given=model,
        allow_code=allow_code,
        progress=progress or Quiet(),
    )
    found = kind.measure(subject)
    check = Check(
        name=name,
        title=kind.title,
        question=kind.question,
        source=kind.source,
        reading=kind.reading,
        columns=kind.columns,
        step_title=kind.step_title,
        course_title=kind.course_title,
        steps=found.steps,
        options={option: to_json(getattr(given, option)) for option in kind.options} | {"seed": subject.seed},
        samples=found.samples,
        methods=found.methods,
        notes=found.notes,
        versions=environment(),
    )
    store_check(evaluation.run, check)
    return check
