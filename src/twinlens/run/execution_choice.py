"""How the model of a run is called: chosen once, kept in run.json, and the same for whoever goes on with it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from torch import nn

from twinlens.data.inputs import load_inputs
from twinlens.imputation.imputers import Imputer
from twinlens.options import Options
from twinlens.probing.agreement import AgreementTrial, worth_trying
from twinlens.probing.execution import choose_execution
from twinlens.probing.model_call import find_device
from twinlens.probing.probe import Prober
from twinlens.run.manifest import ExecutionRecord, Manifest
from twinlens.run.setup import Subject
from twinlens.run.units import Cluster

_SHARD_VALUES = 2_500_000  # input values per shard: 16 images of 224 × 224 × 3, a minute's work on two cores
_MOST_SHARDS = 1000  # more parts than that cost more time to open than to read


def call_how(
    subject: Subject,
    options: Options,
    there: Manifest | None,
    imputer: Imputer,
    cluster: Cluster | None,
    device: str | None,
    rows: int,
) -> ExecutionRecord:
    """Choose how to call the model; a run that is there has chosen already.

    Args:
        subject: the model and an example.
        options: what is asked for is kept to.
        there: the manifest of the run that goes on.
        imputer: that of the run, for the probes of a trial.
        cluster: on what workers run, if not in this process.
        device: where these put the model.
        rows: probes of each method that are ahead. How many methods there are plays no part, because none may change
            the numbers of another.
    """
    module = subject.model.module
    where = device or str(find_device(module, None)[0])
    if there is not None:
        before = there.execution
        return dataclasses.replace(
            before,
            batch_size=options.batch_size or before.batch_size,
            memory_format=options.memory_format or before.memory_format,
            compiled=before.compiled if options.compile == "auto" else options.compile,
            precision=before.precision if options.precision == "auto" else options.precision,
            threads=options.threads or before.threads,
            shard_size=options.shard_size or before.shard_size,
            device=where,
        )
    trial = AgreementTrial(module, lambda model, samples: _prober(model, subject, samples), imputer, options.seed)
    chosen, trials = choose_execution(
        module,
        subject.example,
        batch_size=options.batch_size,
        memory_format=options.memory_format,
        threads=options.threads or (max(1, int(cluster.cpus_per_unit)) if cluster else None),
        precision=options.precision,
        compiled=options.compile,
        rows=rows if worth_trying(rows) else 0,
        agreement=trial if worth_trying(rows) else lambda _: None,
    )
    return ExecutionRecord(
        **dataclasses.asdict(chosen),
        trials=trials,
        device=where,
        shard_size=options.shard_size or choose_shard_size(subject.data.samples, subject.example.numel()),
    )


def _prober(model: nn.Module, subject: Subject, samples: int) -> Prober:
    """Make a prober of samples that lie evenly in the data set."""
    count = min(samples, len(subject.samples))
    part = subject.samples.take([int(k) for k in np.linspace(0, len(subject.samples) - 1, count)])
    inputs = load_inputs(part, subject.model, workers=1)
    return Prober(
        model,
        inputs,
        part.labels,
        ids=part.ids,
        output=subject.model.scale,
        target=subject.target,
        segments=None if subject.segments is None else subject.segments.of(part, inputs),
    )


def choose_shard_size(samples: int, values: int) -> int:
    """Choose how many samples of so many values make a part.

    Example:
        >>> [choose_shard_size(samples, 3 * 224 * 224) for samples in (500, 50_000)]
        [16, 50]
    """
    return max(8, min(512, _SHARD_VALUES // values), math.ceil(samples / _MOST_SHARDS))
