"""The catalogue of checks, and how to run one: measure the methods of a run and store the record in it."""

from __future__ import annotations

from twinlens.checks.check_definition import CheckDefinition, CheckOptions
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.fine_tuning import fine_tuned_check
from twinlens.checks.imputer_choice import imputers_check
from twinlens.checks.krippendorff import agreement_check
from twinlens.checks.localisation import localisation_check
from twinlens.checks.monotonicity import monotonicity_check
from twinlens.checks.order_ceiling import ceiling_check
from twinlens.checks.probe_distribution import distribution_check
from twinlens.checks.random_sets import sensitivity_n_check
from twinlens.checks.randomisation import (
    data_randomisation_check,
    efficient_randomisation_check,
    model_randomisation_check,
)
from twinlens.checks.remove_and_retrain import roar_check
from twinlens.checks.smoothness import smoothness_check
from twinlens.checks.stability import class_similarity_check, max_sensitivity_check
from twinlens.errors import RunError, unknown
from twinlens.outcome import Evaluation
from twinlens.run.check_records import Check, CheckText, check_writable, store_check
from twinlens.support.arguments import checked
from twinlens.support.fields import fields_of, to_json
from twinlens.support.progress import Progress, Quiet
from twinlens.support.versions import environment

__all__ = ["CHECKS", "Check", "run_check"]

CHECKS: dict[str, CheckDefinition] = {
    "localisation": localisation_check,
    "model-randomisation": model_randomisation_check,
    "efficient-randomisation": efficient_randomisation_check,
    "data-randomisation": data_randomisation_check,
    "sensitivity-n": sensitivity_n_check,
    "max-sensitivity": max_sensitivity_check,
    "class-similarity": class_similarity_check,
    "ceiling": ceiling_check,
    "roar": roar_check,
    "monotonicity": monotonicity_check,
    "imputers": imputers_check,
    "distribution": distribution_check,
    "fine-tuned": fine_tuned_check,
    "agreement": agreement_check,
    "smoothness": smoothness_check,
}
"""All checks by name."""


@checked
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
    """Run a check on the methods of a run and store its record there, replacing an earlier one.

    Args:
        evaluation: the run.
        name: a name in `CHECKS`.
        methods: names of the run's methods; all by default.
        options: options of the check. Those it does not use must keep their defaults.
        model: spec of the run's model; required if the model is code.
        allow_code: as in `load_model`.
        progress: receives the progress; nothing is shown by default.
    """
    if name not in CHECKS:
        raise unknown("name", name, CHECKS)
    definition, options = CHECKS[name], options or CheckOptions()
    for option in fields_of(CheckOptions):
        if option.name not in definition.options and getattr(options, option.name) != option.default:
            own = ", ".join(definition.options) or "no options"
            raise ValueError(f"`{option.name}` has no effect on the check {name}, which has {own}. Leave it out.")
    run = CheckedRun(
        evaluation=evaluation,
        names=_choose_methods(evaluation, methods),
        options=options,
        model_spec=model,
        allow_code=allow_code,
        progress=progress or Quiet(),
    )
    check_writable(evaluation.run)
    result = definition.measure(run)
    check = Check(
        name=name,
        **{text.name: getattr(definition, text.name) for text in fields_of(CheckText)},
        steps=result.steps,
        options={option: to_json(getattr(options, option)) for option in definition.options} | {"seed": run.seed},
        samples=result.samples,
        methods=result.methods,
        notes=result.notes,
        line=result.line,
        versions=environment(),
    )
    store_check(evaluation.run, check)
    return check


def _choose_methods(evaluation: Evaluation, methods: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the methods to check: the requested ones, or all that are complete."""
    complete = evaluation.results.methods
    for name in methods or ():
        if name not in complete:
            raise unknown("methods", name, complete)
    if not complete:
        raise RunError(f"{evaluation.run} has no complete method.")
    return tuple(dict.fromkeys(methods or complete))
