"""Planning: from what is asked, and the run that is there, to its manifest and the probes that are needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from twinlens.errors import RunError
from twinlens.imputation.imputers import Imputer, describe_imputer
from twinlens.metrics.metric import Metric
from twinlens.metrics.sweeps import Sweep, merge_sweeps
from twinlens.options import Options
from twinlens.probing.exchange import BLOCK
from twinlens.run.directory import Run
from twinlens.run.manifest import ExecutionRecord, Manifest, Question, RoundsRecord, SourceRecord, SweepRecord
from twinlens.run.method_sources import Method
from twinlens.run.setup import Subject, bind_metrics
from twinlens.support.versions import environment


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What a run is to be."""

    manifest: Manifest
    """The manifest, to be joined with that of the run that is there."""

    metrics: Mapping[str, Metric]
    """The metrics by their names, each with its imputer."""

    wanted: Sequence[Sweep]
    """The probes that they need, each once."""


def plan_run(
    subject: Subject,
    methods: Mapping[str, Method],
    options: Options,
    there: Manifest | None,
    *,
    imputer: Imputer,
    execution: Callable[[int], ExecutionRecord],
    source: SourceRecord,
) -> Plan:
    """Plan a run: metrics with their imputers, and the sweeps that they need, each once.

    Args:
        subject: model and samples.
        methods: where the maps come from.
        options: what is asked.
        there: the manifest of the run that goes on; what it was asked is asked again.
        imputer: that of metrics that have none of their own.
        execution: chooses how the model is called, by the number of probes of each method.
        source: how model and data were named.
    """
    asked = {**(there.question.values_with(imputer) if there else {}), **options.metric_values()}
    metrics = bind_metrics(asked, imputer, subject, options.workers)
    rounds = None if options.until is None else subject.rounds
    data = subject.data if rounds is None else subject.first(_samples_so_far(rounds, there)).data
    question = Question.of(metrics, imputer, options, samples=data.samples)
    wanted, sweeps = question.sweeps(metrics, data.features), there.sweeps if there else ()
    planned = plan_sweeps(wanted, sweeps)
    levels = sum(len(sweep.schedule.levels) * (sweep.exchanged or 1.0) for sweep in planned)
    manifest = Manifest(
        model=subject.model_record,
        data=data,
        seed=options.seed,
        execution=execution(int(levels * subject.data.samples)),
        source=source,
        methods={name: method.record for name, method in methods.items()},
        sweeps=(*sweeps, *planned),
        question=question,
        versions=environment(),
        rounds=rounds,
        exchange_within=there.exchange_within if there else BLOCK,
    )
    return Plan(manifest=manifest, metrics=metrics, wanted=wanted)


def _samples_so_far(rounds: RoundsRecord, there: Manifest | None) -> int:
    """Return the samples of the round that a run is in; those of the first one for a new run."""
    if there is not None and there.data.samples in rounds.sizes:
        return there.data.samples
    return rounds.sizes[0]


def check_rounds(until: str | float | None, there: Manifest | None, where: str) -> None:
    """Refuse to go on in rounds with a run that has measured all its samples at once, and the other way round."""
    if there is None or (until is None) == (there.rounds is None):
        return
    if until is None:
        raise RunError(
            f"`out` {where!r} holds a run that draws its samples in rounds, until {there.question.until}. Say `until` "
            "again, or choose another directory."
        )
    raise RunError(
        f"`out` {where!r} holds a run that has measured all its samples at once, and `until` draws them in rounds. "
        "Leave it out, or choose another directory."
    )


def draw_rounds(run: Run[Manifest], subject: Subject) -> Iterator[Subject]:
    """Yield the samples of each round, from the one that a run is in; all samples where it has no rounds.

    run.json always has the samples of the round that is being measured: a run that is killed goes on there.
    """
    rounds = run.manifest.rounds
    if rounds is None:
        yield subject
        return
    for size in rounds.sizes:
        there = run.manifest.data.samples
        if size >= there:
            drawn = subject.first(size)
            if size > there:
                run.write_manifest(dataclasses.replace(run.manifest, data=drawn.data))
            yield drawn


def plan_sweeps(wanted: Iterable[Sweep], there: Sequence[SweepRecord]) -> list[SweepRecord]:
    """Plan the sweeps that are wanted beyond those that are there, no level twice.

    Example:
        >>> from twinlens.metrics.catalogue import METRICS
        >>> wanted = [sweep for name in ("soundness", "road_lerf") for sweep in METRICS[name].sweeps(100)]
        >>> [(sweep.name, len(sweep.schedule.levels)) for sweep in plan_sweeps(wanted, [])]
        [('area-lerf-linear', 99)]
    """
    used, planned = {sweep.name for sweep in there}, []
    for sweep in merge_sweeps(wanted):
        have = {level for record in there if record.is_kind_of(sweep) for level in record.schedule.levels}
        missing = tuple(level for level in sweep.schedule.levels if level not in have)
        if missing:
            described, schedule = describe_imputer(sweep.imputer), sweep.schedule
            kind = f"{schedule.by}-{schedule.order}-{described['name']}"
            name = _unused(f"{kind}-exchanged" if sweep.exchanged else kind, used)
            used.add(name)
            planned.append(
                SweepRecord(
                    name=name,
                    schedule=dataclasses.replace(schedule, levels=missing),
                    imputer=described,
                    exchanged=sweep.exchanged,
                )
            )
    return planned


def _unused(name: str, used: set[str]) -> str:
    names = (name, *(f"{name}-{k}" for k in range(2, 1000)))
    return next(candidate for candidate in names if candidate not in used)


def needed_sweeps(wanted: Sequence[Sweep], there: Sequence[SweepRecord]) -> list[tuple[SweepRecord, Imputer]]:
    """Return the sweeps of a run that hold what is wanted, each with its imputer."""
    found = []
    for record in there:
        levels = set(record.schedule.levels)
        users = [sweep for sweep in wanted if record.is_kind_of(sweep) and levels & set(sweep.schedule.levels)]
        if users:
            found.append((record, users[0].imputer))
    return found
