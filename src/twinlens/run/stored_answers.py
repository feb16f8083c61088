"""The net under the digests: stored answers to a few original inputs against those of the model at hand."""

from __future__ import annotations

import dataclasses

import torch

from twinlens.data.inputs import load_inputs
from twinlens.errors import DamagedError, RunError
from twinlens.imputation.imputers import ConstantImputer, TokenImputer
from twinlens.probing.execution import Prepared, using_threads
from twinlens.probing.model_call import find_device
from twinlens.probing.probe import Prober
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule
from twinlens.probing.tokens import are_tokens
from twinlens.run.directory import Run
from twinlens.run.setup import Setup

_ROUNDING, _COARSE = 1e-3, 3e-2  # the second for lower precisions, compiled models and other devices


def original_answers(prober: Prober) -> ProbeTable:
    """Return the model's answers to original inputs."""
    nothing = prober.rank(torch.zeros(len(prober.ids), *prober.spatial), warn=False)
    imputer = TokenImputer(0) if are_tokens(prober.inputs) else ConstantImputer()  # nothing is removed
    return prober.sweep(nothing, Schedule(by="area", order="morf", levels=(0.0,)), imputer)


def check_answers(run: Run, setup: Setup) -> None:
    """Refuse a model that answers original inputs of an existing run otherwise than the run has stored."""
    stored = _stored_answers(run)
    positions = {name: k for k, name in enumerate(setup.samples.ids)}
    rows = [positions[table.ids[0]] for table in stored]
    if not rows:
        return
    manifest, samples = run.manifest, setup.samples.take(rows)
    execution, here = (
        dataclasses.replace(manifest.execution.execution, compiled=False),
        find_device(setup.model.module, None),
    )
    with using_threads(execution.threads):
        fresh = original_answers(
            Prober(
                Prepared(setup.model.module, execution),
                load_inputs(samples, setup.model, workers=1),
                samples.labels,
                ids=samples.ids,
                batch_size=execution.batch_size,
                output=manifest.model.scale,
                target=setup.options.target,
            )
        )
    regression = bool(torch.from_numpy(fresh.logit).isnan().any())
    column = "predicted" if regression else "probability" if manifest.model.scale == "probabilities" else "logit"
    plain = execution.precision == "float32" and not manifest.execution.compiled and here[0].type == "cpu"
    tolerance = max(_ROUNDING if plain and manifest.execution.device == "cpu" else _COARSE, 3 * setup.unsteady)
    for k, table in enumerate(stored):
        before, now = float(getattr(table, column)[0, 0]), float(getattr(fresh, column)[k, 0])
        if not abs(before - now) <= tolerance * max(1.0, abs(before)):
            raise RunError(
                f"{run} was made with a model that answers otherwise: for sample {table.ids[0]!r} the stored {column} "
                f"of the target is {before:.6g}, and now it is {now:.6g}. Choose another directory."
            )


def _stored_answers(run: Run) -> list[ProbeTable]:
    """Read the answers of up to three shards: the first, the last, and one between them."""
    folder = run.original_shard(0).parent
    files = sorted(folder.glob("*.parquet")) if folder.exists() else []
    tables = []
    for k in sorted({0, len(files) // 2, len(files) - 1} if files else ()):
        try:
            tables.append(ProbeTable.load(files[k]))
        except DamagedError:  # made anew by the work
            continue
    return tables
