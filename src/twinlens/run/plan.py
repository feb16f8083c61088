"""Planning: from options and the existing run to the manifest of a run and the probes that it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from twinlens.errors import RunError
from twinlens.imputation.imputers import Imputer, describe_imputer
from twinlens.metrics.metric import Metric
from twinlens.metrics.sweeps import Sweep, merge_sweeps
from twinlens.run.directory import Run
from twinlens.run.distribution import Distribution
from twinlens.run.execution_choice import choose_calls
from twinlens.run.manifest import Manifest, Settings, SweepRecord
from twinlens.run.method_sources import Method
from twinlens.run.setup import Setup
from twinlens.support.versions import environment


@dataclass(frozen=True, kw_only=True, eq=False)
class Planner:
    """Plans a run; an existing run keeps its metrics, sweeps and execution."""

    setup: Setup
    methods: Mapping[str, Method]
    imputer: Imputer
    """The imputer of metrics without their own."""
    distribution: Distribution

    def metrics(self, stored: Manifest | None) -> dict[str, Metric]:
        """Return the metrics of the existing run and of this call, each with its imputer."""
        before = stored.settings.values_with(self.imputer) if stored else {}
        return self.setup.bind({**before, **self.setup.options.metric_values}, self.imputer)

    def manifest(self, stored: Manifest | None) -> Manifest:
        """Return the manifest of this call, to be joined with that of the existing run."""
        setup, options = self.setup, self.setup.options
        rounds = None if options.until is None else setup.rounds
        data = setup.data
        if rounds is not None:  # those of the current round, or of the first
            resumes = stored is not None and stored.data.samples in rounds.sizes
            data = setup.first(stored.data.samples if stored and resumes else rounds.sizes[0]).data
        metrics = self.metrics(stored)
        settings = Settings.of(metrics, self.imputer, options, samples=setup.data.samples)
        existing = stored.sweeps if stored else ()
        planned = plan_sweeps(settings.sweeps(metrics, data.features), existing)
        levels = sum(len(sweep.schedule.levels) * (sweep.exchanged or 1.0) for sweep in planned)
        rows = int(levels * setup.data.samples)
        return Manifest(
            model=setup.model_record,
            data=data,
            seed=options.seed,
            execution=choose_calls(setup, stored, self.imputer, self.distribution, rows),
            # Every job may have the data in another folder.
            source=stored.source if stored and options.job else setup.source,
            methods={name: method.record for name, method in self.methods.items()},
            sweeps=(*existing, *planned),
            settings=settings,
            versions=environment(),
            rounds=rounds,
        )


def check_rounds(until: str | float | None, stored: Manifest | None, where: str) -> None:
    """Refuse to resume in rounds a run that measured all samples at once, and the other way round."""
    if stored is None or (until is None) == (stored.rounds is None):
        return
    if until is None:
        raise RunError(
            f"`out` {where!r} holds a run that draws its samples in rounds, until {stored.settings.until}. Pass "
            "`until` again, or choose another directory."
        )
    raise RunError(
        f"`out` {where!r} holds a run that measured all its samples at once, and `until` draws them in rounds. Leave "
        "it out, or choose another directory."
    )


def draw_rounds(run: Run, setup: Setup) -> Iterator[Setup]:
    """Yield the samples of each round from the current one on; all samples if the run has no rounds.

    run.json always names the samples of the current round, and an interrupted run resumes there.
    """
    rounds = run.manifest.rounds
    for size in rounds.sizes if rounds else ():
        current = run.manifest.data.samples
        if size >= current:
            drawn = setup.first(size)
            if size > current:
                run.write_manifest(dataclasses.replace(run.manifest, data=drawn.data))
            yield drawn
    if rounds is None:
        yield setup


def plan_sweeps(sweeps: Iterable[Sweep], existing: Sequence[SweepRecord]) -> list[SweepRecord]:
    """Plan the sweeps that a run still lacks, no level twice."""
    names, planned = {sweep.name for sweep in existing}, []
    for sweep in merge_sweeps(sweeps):
        done = {level for record in existing if record.is_kind_of(sweep) for level in record.schedule.levels}
        missing = tuple(level for level in sweep.schedule.levels if level not in done)
        if missing:
            imputer, schedule = describe_imputer(sweep.imputer), sweep.schedule
            kind = f"{schedule.by}-{schedule.order}-{imputer['name']}" + ("-exchanged" if sweep.exchanged else "")
            kind += "-negative" if schedule.part == "negative" else ""
            name = next(name for name in (kind, *(f"{kind}-{k}" for k in range(2, 1000))) if name not in names)
            names.add(name)
            levels = dataclasses.replace(schedule, levels=missing)
            planned.append(SweepRecord(name=name, schedule=levels, imputer=imputer, exchanged=sweep.exchanged))
    return planned


def needed_sweeps(sweeps: Sequence[Sweep], existing: Sequence[SweepRecord]) -> list[tuple[SweepRecord, Imputer]]:
    """Return the sweeps of a run that hold any of these probes, each with its imputer."""
    needed = []
    for record in existing:
        levels = set(record.schedule.levels)
        users = [sweep for sweep in sweeps if record.is_kind_of(sweep) and levels & set(sweep.schedule.levels)]
        if users:
            needed.append((record, users[0].imputer))
    return needed
