"""Imputers: does the answer depend on how removed features are filled in (Blücher et al. 2024)?

The headline pair is measured again under other imputers, on the same maps and samples. Random removal, which no map
guides, shows how far each imputer leaves the inputs that the model knows: Blücher et al. take a random order as the
reference of their R-OMS score for the same reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import partial

import numpy as np

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.rank_agreement import VerdictChanges, kendall
from twinlens.checks.remeasuring import NAMES, PAIR, areas_of, headline_pair, main_imputer, random_maps, remeasure
from twinlens.errors import first_line
from twinlens.imputation.imputers import Imputer, describe_imputer, find_imputer
from twinlens.models.loading import find_in_file
from twinlens.outcome import Evaluation
from twinlens.probing.answers import CLASSIFICATION
from twinlens.probing.probe_table import ProbeTable
from twinlens.run.check_records import CheckColumn, MethodCheck
from twinlens.support.estimate import Estimate

_OTHERS = ("linear", "mean", "blur", "constant")
_FLAT = ("mean", "constant")  # for features without neighbours


def find_imputers(names: tuple[str, ...] | None, main: Imputer, *, neighbours: bool) -> dict[str, Imputer]:
    """Return the run's imputer and those to compare with it, by their names.

    Args:
        names: names of imputers, or FILE.py:FUNCTION; all that need no settings by default.
        main: the run's imputer.
        neighbours: whether features have neighbours.
    """
    imputers = {str(describe_imputer(main)["name"]): main}
    for name in names or (_OTHERS if neighbours else _FLAT):
        own = name.rpartition(":")[2] if ".py:" in name else None
        if own in imputers:
            raise ValueError(f"`imputers` must have different names; {own!r} occurs twice. Rename the function.")
        if own is not None:
            imputers[own] = _from_file(name)
        elif name not in imputers:
            imputers[name] = find_imputer(name)
    if len(imputers) < 2:
        raise ValueError(f"`imputers` must name others than {', '.join(imputers)}, the run's own.")
    return imputers


def _from_file(spec: str) -> Imputer:
    """Return a custom imputer; its code runs because the caller names the file."""
    try:
        imputer: Imputer | None = find_in_file(spec, "imputers")
    except Exception as error:
        raise ValueError(f"`imputers` {spec!r} failed: {type(error).__name__}: {first_line(error)}") from error
    if not callable(imputer):
        raise ValueError(f"`imputers` {spec!r} must name a function (inputs, keep, streams); there is none.")
    return imputer


def accuracy_of(table: ProbeTable, seed: int) -> Estimate:
    """Return the accuracy where some features are removed and some are kept, the mean over these levels."""
    removes = (table.removed > 0) & (table.removed < table.counts[:, None])
    with np.errstate(invalid="ignore"):
        each = np.where(removes, table.correct, 0.0).sum(axis=1) / removes.sum(axis=1)
    return Estimate.of_mean(each, table.ids, seed=seed).clipped(0.0, 1.0)


@partial(
    CheckDefinition,
    title="Choice of the imputer",
    source="Blücher et al. 2024, Decoupling pixel flipping and occlusion strategy for consistent XAI benchmarks",
    rows="imputer",
    columns=(
        CheckColumn(title="soundness, tau", better="higher"),
        CheckColumn(title="completeness, tau", better="higher"),
        CheckColumn(title="same verdict", better="higher"),
        CheckColumn(title="reversed", better="lower"),
        CheckColumn(title="accuracy, random removal", better="higher"),
    ),
    step_title="metric and method",
    course_title="value",
    ordered=False,
    options=("limit", "imputers", "engine"),
)
def imputers_check(run: CheckedRun) -> CheckResult:
    """Does the ranking of the methods depend on how removed features are filled in?

    Tau is Kendall's rank correlation of the methods with their ranking under the run's own imputer, the first row: 1 is
    the same ranking, 0 is unrelated. A verdict is a comparison of two methods, by either metric, that is decided under
    the run's imputer: it stays the same, is reversed, or is no longer decided. The last column is the mean accuracy
    while features are removed in a random order: the lower, the farther the imputer leaves the inputs that the model
    knows.
    """
    data = run.evaluation.run.manifest.data
    if data.tokens:
        raise ValueError("`name` imputers compares imputers of numbers, and the inputs of this run are tokens.")
    imputers = find_imputers(run.options.imputers, main_imputer(run), neighbours=data.has_neighbours)
    metrics = {
        f"{metric} {name}": dataclasses.replace(value, imputer=imputer)
        for name, imputer in imputers.items()
        for metric, value in headline_pair(run).items()
    }
    reference, extra = random_maps(run)
    inner = remeasure(run, "imputers", metrics, methods=extra)
    areas = {name: {m: areas_of(inner, run.names, f"{m} {name}") for m in PAIR} for name in imputers}
    main, *others = imputers
    changes = {name: VerdictChanges.between(areas[main], areas[name]) for name in others}
    taus = {name: tuple(kendall(areas[main][m], areas[name][m]) for m in PAIR) for name in others}

    none = Estimate(value=None, samples=len(run.samples))

    def row(name: str) -> MethodCheck:
        own = changes.get(name)
        shares = (None, None) if own is None else (own.share(own.same), own.share(own.reversed))
        verdicts = (Estimate(value=share, samples=len(run.samples)) for share in shares)
        removal = _random_removal(inner, reference, name, run.seed)
        return MethodCheck(
            values=(*taus.get(name, (none, none)), *verdicts, removal or none),
            course=tuple(area.estimate for metric in PAIR for area in areas[name][metric].values()),
        )

    return CheckResult(
        methods={name: row(name) for name in imputers},
        samples=len(run.samples),
        steps=tuple(f"{NAMES[metric]}, {method}" for metric in PAIR for method in run.names),
        notes=tuple(f"Under {name}, {own.describe(NAMES)}." for name, own in changes.items()),
        line=describe_changes(main, changes, taus, run.evaluation.results.baselines),
    )


def _random_removal(inner: Evaluation, reference: str, name: str, seed: int) -> Estimate | None:
    if inner.results.model.task != CLASSIFICATION:
        return None
    return accuracy_of(inner.curve(reference, f"{PAIR[0]} {name}").table, seed)


def describe_changes(
    main: str,
    changes: Mapping[str, VerdictChanges],
    taus: Mapping[str, tuple[Estimate, ...]],
    baselines: Collection[str],
) -> str:
    """Return the outcome in two sentences."""
    decided = next(iter(changes.values())).decided
    reversals = {name: len(own.reversed) for name, own in changes.items() if own.reversed}
    counts, lost = (
        ", ".join(f"{count} under {name}" for name, count in each.items())
        for each in (reversals, {name: len(own.lost) for name, own in changes.items() if own.lost})
    )
    outcome = f"None of {decided} verdicts under {main} is reversed under {', '.join(changes)}"
    if lost:
        outcome += f", but not all of them are still decided: {lost} are not"
    if not decided:
        outcome = f"Under {main} no verdict is decided, and none can be reversed: more samples are needed"
    if reversals:
        alone = sum(own.without(baselines) for own in changes.values())
        outcome = (
            f"The ranking does not survive every imputer: of {decided} verdicts under {main} these are reversed: "
            f"{counts}; {alone or 'none'} of them without a baseline method"
        )
    ranges = [
        f"{NAMES[metric]} {' to '.join(dict.fromkeys(f'{end:.2f}' for end in (min(values), max(values))))}"
        for k, metric in enumerate(PAIR)
        if (values := [value for each in taus.values() if (value := each[k].value) is not None])
    ]
    return f"{outcome}." + (f" Kendall's tau with the ranking under {main}: {', '.join(ranges)}." if ranges else "")
