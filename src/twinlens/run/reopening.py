"""The model and the samples of an existing run, opened again by the specs in run.json, or by the caller's."""

from __future__ import annotations

import dataclasses
import shlex

from twinlens.data.inputs import load_inputs
from twinlens.data.samples import Samples
from twinlens.data.sources import open_labelled
from twinlens.errors import DataError, RunError
from twinlens.models.loading import LoadedModel, comes_from_a_library, load_model
from twinlens.probing.model_call import blaming
from twinlens.run.fingerprints import read_fingerprints
from twinlens.run.stored_run import StoredRun
from twinlens.run.tokenization import fit_labels, fit_texts


def reopen(run: StoredRun, *, model: str | None = None, allow_code: bool = False) -> tuple[LoadedModel, Samples]:
    """Load the model and open the samples of a run again, if both were given by their specs.

    The model must be the one that was evaluated; samples are matched by id, and compared when they are read. Code
    named in run.json, which may come from anybody, is not loaded: pass the spec as `model`.
    """
    spec, weights = model_spec(run, model), run.manifest.source.weights
    loaded = load_again(run, spec, weights=weights, allow_code=allow_code)
    samples = reopen_samples(run, loaded)
    example = load_inputs(samples.take([0]), loaded, workers=1)
    with blaming("model"):
        digest = loaded.digest(example)
    if digest != run.manifest.model.digest:
        raise RunError(f"The model {spec!r} is not, or no longer, the one that {run.run} was made with.")
    return loaded, samples


def model_spec(run: StoredRun, model: str | None) -> str:
    """Return the spec that loads a run's model again: the argument, or a library model named in run.json."""
    spec = model or run.manifest.source.model
    if spec is None:
        raise _cannot_open(run)
    if model is None and not comes_from_a_library(spec):
        raise RunError(
            f"{run.run} names the model {spec!r}, which is code, and code is loaded only where you name it yourself. "
            f"If you trust it, pass --model {shlex.quote(spec)}"
        )
    return spec


def load_again(run: StoredRun, spec: str, *, weights: str, allow_code: bool) -> LoadedModel:
    """Load a model with the preprocessing and on the device of a run."""
    return load_model(
        spec,
        weights=weights,
        preprocessing=dataclasses.asdict(run.manifest.model.preprocessing),
        device=run.manifest.execution.device,
        allow_code=allow_code,
    )


def reopen_samples(run: StoredRun, model: LoadedModel | None = None) -> Samples:
    """Open the samples of a run again, if they were given by a spec; texts need its model."""
    source = run.manifest.source
    if source.data is None:
        raise _cannot_open(run)
    index_of = None if model is None else model.class_index
    everything = open_labelled(source.data, classes=source.classes, index_of=index_of)
    if model is not None:
        everything = fit_texts(everything, model)
    positions, ids = {name: k for k, name in enumerate(everything.ids)}, run.ids()
    if missing := [name for name in ids if name not in positions]:
        raise DataError(f"`data` {source.data!r} no longer has sample {missing[0]!r}, which {run.run} has.")
    prints = read_fingerprints(run.run)
    if prints is None:
        raise RunError(
            f"{run.run} lacks the fingerprints of its samples, and cannot tell whether they are the same. Start it "
            "again with the same command to write them."
        )
    samples = everything.take([positions[name] for name in ids])
    if model is not None:
        samples = fit_labels(samples, model)
    return dataclasses.replace(samples, prints=dict(zip(ids, prints, strict=True)))


def _cannot_open(run: StoredRun) -> RunError:
    return RunError(f"{run.run} was made from Python objects, and cannot load its model and data again.")
