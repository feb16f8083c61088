"""Planning: from what is asked, and the run that is there, to its manifest and the probes that are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from twinlens.core.versions import environment
from twinlens.imputation.imputers import Imputer
from twinlens.metrics.catalogue import Metric
from twinlens.metrics.sweeps import Sweep
from twinlens.options import Options
from twinlens.running.manifest import ExecutionRecord, Manifest, Question, SourceRecord, plan_sweeps
from twinlens.running.methods import Method
from twinlens.running.subject import Subject, bind_metrics


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
    question = Question.of(metrics, imputer, options, samples=subject.data.samples)
    wanted, sweeps = question.sweeps(metrics, subject.data.features), there.sweeps if there else ()
    planned = plan_sweeps(wanted, sweeps)
    levels = sum(len(sweep.schedule.levels) * (sweep.exchanged or 1.0) for sweep in planned)
    manifest = Manifest(
        model=subject.model_record,
        data=subject.data,
        seed=options.seed,
        execution=execution(int(levels * subject.data.samples)),
        source=source,
        methods={name: method.record for name, method in methods.items()},
        sweeps=(*sweeps, *planned),
        question=question,
        versions=environment(),
    )
    return Plan(manifest=manifest, metrics=metrics, wanted=wanted)
