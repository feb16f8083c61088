"""The subject of a run: a model that can be called, and samples that were read once.

Shapes: C channels, S = spatial shape.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.data.datasets import from_dataset, is_dataset
from twinlens.data.inputs import load_inputs
from twinlens.data.samples import Samples, Skipped, check, from_arrays, subset
from twinlens.data.segments import Segments, find_segments
from twinlens.data.sources import open_data
from twinlens.errors import DataError, RunError, first_line, short_repr
from twinlens.imputation.imputers import (
    Imputer,
    LinearImputer,
    MeanImputer,
    TokenImputer,
    find_imputer,
    takes_tokens,
)
from twinlens.metrics.metric import Metric
from twinlens.metrics.performance import check_measure
from twinlens.models.callables import find_estimator, from_function
from twinlens.models.loading import LoadedModel, comes_from_a_library, load_model
from twinlens.options import DataSource, ModelSource, Options, SubjectOptions
from twinlens.probing.answers import REGRESSION, SCORE, SINGLE, Target, find_logits, score_of, task_of
from twinlens.probing.model_call import blaming, evaluating, find_device, refusing_exit
from twinlens.probing.tokens import IDS, TokenModel, are_tokens
from twinlens.run.manifest import DataRecord, Manifest, ModelRecord, RoundsRecord
from twinlens.run.run_reader import Evaluation
from twinlens.statistics.sequential import round_sizes
from twinlens.support.code_digest import describe_function
from twinlens.support.randomness import drawn_order

_MEAN_SAMPLES = 64  # that are in memory at a time while their mean is taken


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What is evaluated."""

    model: LoadedModel
    """The model, on its device."""

    everything: Samples
    """The whole data set."""

    samples: Samples
    """The samples that are evaluated."""

    skipped: tuple[Skipped, ...]
    """Those that could not be read."""

    digest: str
    """Hash of the samples."""

    fingerprints: tuple[bytes, ...]
    """(N,) hash of each sample's id, label and content."""

    example: Tensor
    """(1, C, *S): the first input as the model expects it."""

    output: str
    """Where the logits are in what the model returns."""

    segments: Segments | None
    """What joins places of a map to features."""

    target: Target | None
    """What makes scores of it instead."""

    task: str
    """"classification" or "regression"."""

    def first(self, count: int) -> Subject:
        """Return the subject with its first samples alone, which make one round."""
        prints = self.fingerprints[:count]
        digest = hashlib.blake2b(b"".join(prints), digest_size=32).hexdigest()
        return dataclasses.replace(self, samples=self.samples.take(range(count)), digest=digest, fingerprints=prints)

    @cached_property
    def rounds(self) -> RoundsRecord:
        """The rounds in which its samples are drawn, where they are not measured all at once."""
        return RoundsRecord(sizes=round_sizes(len(self.samples)), digest=self.digest)

    @cached_property
    def model_record(self) -> ModelRecord:
        """The model as run.json holds it."""
        return ModelRecord(
            name=self.model.name,
            digest=self.model.digest(),
            preprocessing=self.model.preprocessing,
            classes=self.model.classes or self.samples.classes,
            output=self.output,
            scale=self.model.scale,
            target=None if self.target is None else " ".join(describe_function(self.target).values()),
            task=self.task,
        )

    @cached_property
    def data(self) -> DataRecord:
        """The samples as run.json holds them."""
        return DataRecord(
            name=self.samples.name,
            digest=self.digest,
            samples=len(self.samples),
            shape=tuple(self.example.shape[1:]),
            skipped=self.skipped,
            segments=None if self.segments is None else self.segments.identity,
            tokens=are_tokens(self.example),
        )


def open_subject(
    model: ModelSource, data: DataSource, options: Options, *, device: str | None, there: Manifest | None
) -> Subject:
    """Load the model, read every sample once, and call the model once, so that nothing fails later.

    Args:
        model: as for `evaluate`.
        data: as for `evaluate`.
        options: what is asked.
        device: where a model that is given by its spec is put.
        there: the manifest of the run that goes on, with which the model need not be called.
    """
    everything = _open_samples(data, model, options)
    arrays = isinstance(data, (tuple, list)) and not isinstance(data[0], Tensor)
    loaded = _open_model(model, options, device, on_arrays=arrays)
    if isinstance(data, (tuple, list)) and isinstance(data[0], Mapping):
        loaded = dataclasses.replace(loaded, module=TokenModel(loaded.module))
    task = task_of(everything.labels) if options.target is None else REGRESSION
    _check_performance(options, task)
    chosen = everything if options.limit is None else subset(everything, options.limit, options.seed)
    if options.until is not None:  # so that a round has the samples of the last one, and then others
        chosen = chosen.take(drawn_order(chosen.ids, seed=options.seed))
    samples, skipped, digest, fingerprints = check(
        chosen,
        skip_bad=options.skip_bad,
        workers=options.workers,
        check_size=loaded.preprocessing.check_size,
    )
    example = load_inputs(samples.take([0]), loaded, workers=1)
    output = there.model.output if there else _check_fit(loaded, samples, example, options)
    return Subject(
        model=loaded,
        everything=everything,
        samples=samples,
        skipped=skipped,
        digest=digest,
        fingerprints=fingerprints,
        example=example,
        output=output,
        segments=_open_segments(options, everything),
        target=options.target,
        task=task,
    )


def _open_model(model: ModelSource, options: SubjectOptions, device: str | None, *, on_arrays: bool) -> LoadedModel:
    if isinstance(model, str):
        loaded = load_model(
            model,
            weights=options.weights,
            preprocessing=options.preprocessing,
            device=device,
            allow_code=options.allow_code,
        )
    elif isinstance(model, LoadedModel):
        loaded = model
    elif isinstance(model, nn.Module):
        find_device(model, device)
        loaded = LoadedModel(name=type(model).__qualname__, module=model)
    else:
        loaded = from_function(model, on_arrays=on_arrays)
    scale = loaded.scale if options.output == "auto" else options.output
    return dataclasses.replace(loaded, preprocessing=loaded.preprocessing.changed(options.preprocessing), scale=scale)


def _open_samples(data: DataSource, model: ModelSource, options: SubjectOptions) -> Samples:
    if isinstance(data, (str, os.PathLike)):
        return open_data(os.fspath(data), classes=options.classes)
    if options.classes is not None:
        raise ValueError("`classes` belongs to data that is opened by its path; name the classes of your own samples.")
    estimator = find_estimator(model)
    if isinstance(data, Samples) or is_dataset(data):
        samples = data if isinstance(data, Samples) else from_dataset(data)
        if estimator is None or samples.classes is not None:
            return samples
        return dataclasses.replace(samples, labels=estimator.indices(samples.labels), classes=estimator.class_names)
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise TypeError(
            "`data` must be a path, samples, a data set or loader of torch, or inputs and labels as two arrays; got "
            f"{short_repr(data)}."
        )
    inputs, labels = data
    if labels is None and options.target is not None:
        labels = np.zeros(len(inputs[IDS] if isinstance(inputs, Mapping) else inputs))
    if estimator is None or labels is None:
        return from_arrays(inputs, labels)
    return from_arrays(inputs, estimator.indices(labels), classes=estimator.class_names)


def _open_segments(options: Options, everything: Samples) -> Segments | None:
    if options.segments is not None:
        return find_segments(options.segments, everything)
    if isinstance(imputer := options.imputer, TokenImputer):
        return Segments(identity=f"tokens but {list(imputer.special)}", of=lambda _, inputs: imputer.segments(inputs))
    return None


def _check_fit(model: LoadedModel, samples: Samples, example: Tensor, options: SubjectOptions) -> str:
    """Call the model once, refuse labels that cannot be meant for it, and return where its logits are."""
    device, dtype = find_device(model.module, None)
    with evaluating(model.module), torch.inference_mode():
        try:
            with refusing_exit("model"):
                cast = example.dtype if dtype is None or are_tokens(example) else dtype
                answer = model.module(example.to(device=device, dtype=cast))
        except Exception as error:
            raise ValueError(
                f"`model` {model.name} fails on an input of shape {tuple(example.shape)}: {first_line(error)} Check "
                "the size and the channels that it expects."
            ) from error
        if options.target is not None:
            with blaming("target"):
                score_of(answer, options.target, 1)
            return SCORE
    logits, output = find_logits(answer)
    single, values = output.endswith(SINGLE), task_of(samples.labels) == REGRESSION
    if not isinstance(logits, Tensor) or not (single or logits.dim() == 2):
        raise TypeError(
            f"`model` {model.name} must return logits (samples, classes), or have them as `logits` or as its first "
            "item; it returned something else. Of whatever it returns, `target` makes a score per sample."
        )
    if values and not single:
        raise DataError(
            f"`data` has floating-point labels, which mean regression, and the model returns {logits.shape[1]} values "
            "per sample. For classes convert the labels to integers."
        )
    if not values:
        _check_classes(samples, 2 if single else logits.shape[1], options.classes)
    return output


def _check_classes(samples: Samples, outputs: int, classes: str | None) -> None:
    """Refuse labels that are not among the model's classes."""
    folders = samples.classes
    if samples.name.startswith("folder:") and classes is None and folders is not None and len(folders) != outputs:
        raise DataError(
            f"`data` holds {len(folders)} class folders and the model knows {outputs} classes, so their numbers are "
            "unclear. Say which folder is which class with `classes`, a file of names and indices."
        )
    if (largest := int(samples.labels.max())) >= outputs:
        name = samples.ids[int(samples.labels.argmax())]
        raise DataError(f"`data` has label {largest} (sample '{name}'), and the model knows 0 to {outputs - 1}.")


def _check_performance(options: Options, task: str) -> None:
    """Refuse metrics by a measure that the kind of model does not have, before any work."""
    for metric in options.metric_values().values():
        try:
            check_measure(metric.performance, task)
        except ValueError as error:
            why = "labels are floating-point" if options.target is None else "`target` makes scores"
            raise ValueError(
                f"{error} The model is one for {task} because {why}." if task == REGRESSION else f"{error}"
            ) from None


def choose_imputer(subject: Subject, options: Options) -> Imputer:
    """Return the imputer of the run: the one named, or linear for images and the samples' mean for tabular rows."""
    if subject.data.tokens and (options.imputer is None or not takes_tokens(find_imputer(options.imputer))):
        raise ValueError(
            "`imputer` must be tl.TokenImputer(mask_id) for token ids, which integers are taken for. Convert whatever "
            "else they are to floating-point numbers."
        )
    if options.imputer is None:
        return LinearImputer() if subject.data.has_neighbours else with_mean(MeanImputer(), subject, options.workers)
    return with_mean(find_imputer(options.imputer), subject, options.workers)


def with_mean(imputer: Imputer, subject: Subject, workers: int) -> Imputer:
    """Return an imputer by the mean of the samples for one by a mean that was not given, and any other as it is."""
    if isinstance(imputer, MeanImputer) and imputer.mean is None:
        return MeanImputer(mean_input(subject, workers))
    return imputer


def bind_metrics(metrics: Mapping[str, Metric], imputer: Imputer, subject: Subject, workers: int) -> dict[str, Metric]:
    """Give every metric its imputer: its own, or that of the run."""
    bound = {name: metric.bound(imputer, neighbours=subject.data.has_neighbours) for name, metric in metrics.items()}
    own = {name: with_mean(metric.imputer or imputer, subject, workers) for name, metric in bound.items()}
    return {name: dataclasses.replace(metric, imputer=own[name]) for name, metric in bound.items()}


def mean_input(subject: Subject, workers: int) -> list[float]:
    """Mean of the samples as the model sees them: one number per channel, or per feature of tabular rows."""
    total, count = torch.zeros(subject.example.shape[1], dtype=torch.float64), 0
    for start in range(0, len(subject.samples), _MEAN_SAMPLES):
        stop = min(start + _MEAN_SAMPLES, len(subject.samples))
        inputs = load_inputs(subject.samples.take(range(start, stop)), subject.model, workers)
        values = inputs.double().flatten(2) if inputs.dim() > 2 else inputs.double()[..., None]
        total += values.sum(dim=(0, 2))
        count += values.shape[0] * values.shape[2]
    means: list[float] = (total / count).tolist()
    return means


def reopen(
    evaluation: Evaluation, *, model: str | None = None, allow_code: bool = False
) -> tuple[LoadedModel, Samples]:
    """Load the model and open the samples of a run again, if it was given both by their specs.

    The model must be the one that was evaluated; samples are found by their ids. Code that run.json names, which may
    come from anybody, is not loaded.

    Args:
        evaluation: of the run.
        model: spec of its model; that of run.json by default, if it names a model of a library.
        allow_code: as in `load_model`.
    """
    spec, weights = model_spec(evaluation, model), evaluation.run.manifest.source.weights
    loaded = load_again(evaluation, spec, weights=weights, allow_code=allow_code)
    if loaded.digest() != evaluation.run.manifest.model.digest:
        raise RunError(f"The model {spec!r} is not, or no longer, the one that {evaluation.run} was made with.")
    return loaded, reopen_samples(evaluation)


def model_spec(evaluation: Evaluation, model: str | None) -> str:
    """Return the spec by which a run's model is loaded again: the one given, or that of a library in run.json."""
    spec = model or evaluation.run.manifest.source.model
    if spec is None:
        raise _cannot_open(evaluation)
    if model is None and not comes_from_a_library(spec):
        raise RunError(
            f"{evaluation.run} names the model {spec!r}, which is code, and code is loaded only where you name it "
            f"yourself. If you trust it, pass --model {shlex.quote(spec)}"
        )
    return spec


def load_again(evaluation: Evaluation, spec: str, *, weights: str, allow_code: bool) -> LoadedModel:
    """Load a model as a run did: with its preprocessing, on its device."""
    manifest = evaluation.run.manifest
    return load_model(
        spec,
        weights=weights,
        preprocessing=dataclasses.asdict(manifest.model.preprocessing),
        device=manifest.execution.device,
        allow_code=allow_code,
    )


def reopen_samples(evaluation: Evaluation) -> Samples:
    """Open the samples of a run again, if it was given its data by their spec."""
    source = evaluation.run.manifest.source
    if source.data is None:
        raise _cannot_open(evaluation)
    everything = open_data(source.data, classes=source.classes)
    place = {name: k for k, name in enumerate(everything.ids)}
    ids = evaluation.ids()
    if missing := [name for name in ids if name not in place]:
        raise DataError(f"`data` {source.data!r} no longer has sample {missing[0]!r}, which {evaluation.run} has.")
    return everything.take([place[name] for name in ids])


def _cannot_open(evaluation: Evaluation) -> RunError:
    return RunError(f"{evaluation.run} was made in Python from a model or data at hand, and cannot open them again.")
