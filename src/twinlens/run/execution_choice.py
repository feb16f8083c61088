"""How the model of a run is called: chosen once and stored in run.json."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from torch import nn

from twinlens.data.inputs import load_inputs
from twinlens.imputation.imputers import Imputer
from twinlens.probing.agreement import AgreementTrial, worth_trying
from twinlens.probing.execution import choose_execution
from twinlens.probing.model_call import find_device
from twinlens.probing.probe import Prober
from twinlens.run.distribution import Distribution
from twinlens.run.manifest import ExecutionRecord, Manifest
from twinlens.run.setup import Setup

_SHARD_VALUES = 2_500_000  # input values per shard: 16 images of 224 × 224 × 3, a minute's work on two cores
_LARGE_SHARD_VALUES = 2**25  # of a shard of fewer than 8 samples: its ranks are kept from one sweep to the next
_MOST_SHARDS = 1000  # more shards take longer to open than to read


def choose_calls(
    setup: Setup, stored: Manifest | None, imputer: Imputer, distribution: Distribution, rows: int
) -> ExecutionRecord:
    """Choose how to call the model for `rows` probes per method; an existing run keeps its choice.

    The number of methods is not used: no method may change the numbers of another.
    """
    module, options, cluster = setup.model.module, setup.options, distribution.cluster
    where = distribution.worker_device or str(find_device(module, None)[0])
    if stored is not None:
        before = stored.execution
        return dataclasses.replace(
            before,
            batch_size=options.batch_size or before.batch_size,
            memory_format=options.memory_format or before.memory_format,
            compiled=before.compiled if options.compile is None else options.compile,
            precision=before.precision if options.precision == "auto" else options.precision,
            threads=options.threads or before.threads,
            shard_size=options.shard_size or before.shard_size,
            device=where,
        )
    trial = AgreementTrial(module, lambda model, samples: _prober(model, setup, samples), imputer, options.seed)
    chosen, trials = choose_execution(
        module,
        setup.example,
        batch_size=options.batch_size,
        memory_format=options.memory_format,
        threads=options.threads or (max(1, int(cluster.cpus_per_unit)) if cluster else None),
        precision=options.precision,
        compiled=bool(options.compile),
        rows=rows if worth_trying(rows) else 0,
        agreement=trial if worth_trying(rows) else lambda _: None,
    )
    return ExecutionRecord(
        **dataclasses.asdict(chosen),
        trials=trials,
        device=where,
        shard_size=options.shard_size or choose_shard_size(setup.data.samples, setup.example.numel()),
    )


def _prober(model: nn.Module, setup: Setup, samples: int) -> Prober:
    """Return a prober of evenly spaced samples."""
    count = min(samples, len(setup.samples))
    part = setup.samples.take([int(k) for k in np.linspace(0, len(setup.samples) - 1, count)])
    inputs = load_inputs(part, setup.model, workers=1)
    return Prober(
        model,
        inputs,
        part.labels,
        ids=part.ids,
        output=setup.model.scale,
        target=setup.options.target,
        features=setup.options.features,
        segments=None if setup.segments is None else setup.segments.of(part, inputs),
    )


def choose_shard_size(samples: int, values: int) -> int:
    """Choose the number of samples per shard."""
    least = min(8, max(1, _LARGE_SHARD_VALUES // values))
    return max(least, min(512, _SHARD_VALUES // values), math.ceil(samples / _MOST_SHARDS))
