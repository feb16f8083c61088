"""The model and the samples of a run, loaded and checked.

Shapes: N samples, C channels, S = spatial shape.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.data.datasets import is_bunch
from twinlens.data.inputs import load_inputs
from twinlens.data.samples import Samples, Skipped, cached, check, subset
from twinlens.data.segments import Segments, find_segments, find_word_segments
from twinlens.data.texts import are_texts
from twinlens.errors import DataError, first_line
from twinlens.imputation.imputers import (
    Imputer,
    LinearImputer,
    MeanImputer,
    TokenImputer,
    find_imputer,
    takes_tokens,
)
from twinlens.metrics.catalogue import describe_metric
from twinlens.metrics.metric import Metric
from twinlens.metrics.performance import check_measure
from twinlens.models.callables import from_function
from twinlens.models.loading import LoadedModel, from_module, load_model
from twinlens.options import DataSource, ModelDataOptions, ModelSource, Options
from twinlens.probing.answers import (
    REGRESSION,
    SCORE,
    SINGLE,
    advise_on_shape,
    find_logits,
    score_of,
    task_of,
    warn_of_softmax,
)
from twinlens.probing.maps import feature_shape
from twinlens.probing.model_call import blaming, check_real, find_device, refusing_exit
from twinlens.probing.steadiness import check_steady
from twinlens.probing.tokens import are_tokens, called_with_tokens
from twinlens.run.manifest import DataRecord, ModelRecord, RoundsRecord, SourceRecord
from twinlens.run.opening import named, open_samples, path_of
from twinlens.run.tokenization import (
    find_tokenizer,
    fit_labels,
    fit_texts,
    token_imputer,
    warn_of_padding,
    with_tokenizer,
)
from twinlens.statistics.sequential import round_sizes
from twinlens.support.code_digest import describe_function
from twinlens.support.fields import JSON
from twinlens.support.randomness import drawn_order

_TRIED = 4  # inputs that are asked twice, alone and in a batch, before the work
_MEAN_SAMPLES = 64  # in memory at a time while their mean is computed


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """The model and the samples of a run."""

    model: LoadedModel
    everything: Samples
    """The whole data set."""
    samples: Samples
    """The samples to evaluate."""
    skipped: tuple[Skipped, ...]
    digest: str
    """Hash of the samples."""
    fingerprints: tuple[bytes, ...]
    """(N,) hash of each sample's id, label and content."""
    example: Tensor
    """(1, C, *S): the first input, preprocessed."""
    output: str
    """Where the logits are in the model's output."""
    unsteady: float
    """How far answers to the same input differ; see `check_steady`."""
    segments: Segments | None
    task: str
    options: Options
    source: SourceRecord
    """The specs of model and data."""
    reload: Callable[[], LoadedModel] | None
    """Loads the model in other processes; None if they have to receive it."""

    def first(self, count: int) -> Setup:
        """Return the setup with the first `count` samples, as of one round."""
        prints = self.fingerprints[:count]
        digest = hashlib.blake2b(b"".join(prints), digest_size=32).hexdigest()
        return dataclasses.replace(self, samples=self.samples.take(range(count)), digest=digest, fingerprints=prints)

    @cached_property
    def rounds(self) -> RoundsRecord:
        """The rounds in which `until` draws the samples."""
        return RoundsRecord(sizes=round_sizes(len(self.samples)), digest=self.digest)

    @cached_property
    def model_record(self) -> ModelRecord:
        """The model as run.json describes it."""
        target = self.options.target
        return ModelRecord(
            name=self.model.name,
            digest=self.model.digest(self.example),
            preprocessing=self.model.preprocessing,
            classes=self.model.classes or self.samples.classes,
            output=self.output,
            scale=self.model.scale,
            target=None if target is None else " ".join(describe_function(target).values()),
            task=self.task,
        )

    @cached_property
    def data(self) -> DataRecord:
        """The samples as run.json describes them."""
        return DataRecord(
            name=self.samples.name,
            digest=self.digest,
            samples=len(self.samples),
            shape=tuple(self.example.shape[1:]),
            skipped=self.skipped,
            segments=None if self.segments is None else self.segments.identity,
            tokens=are_tokens(self.example),
            feature_kind=self.options.features,
        )

    @cached_property
    def mean(self) -> list[float]:
        """Mean of the preprocessed samples: one number per channel, or per feature of tabular rows."""
        total, count = torch.zeros(self.example.shape[1], dtype=torch.float64), 0
        for start in range(0, len(self.samples), _MEAN_SAMPLES):
            stop = min(start + _MEAN_SAMPLES, len(self.samples))
            inputs = load_inputs(self.samples.take(range(start, stop)), self.model, self.options.workers)
            values = inputs.double().flatten(2) if inputs.dim() > 2 else inputs.double()[..., None]
            total += values.sum(dim=(0, 2))
            count += values.shape[0] * values.shape[2]
        means: list[float] = (total / count).tolist()
        return means

    def imputer(self, imputer: str | Mapping[str, JSON] | Imputer | None) -> Imputer:
        """Return an imputer that is ready to use; by default linear for images and the mean for tabular rows."""
        if imputer is None and not self.data.tokens:
            imputer = LinearImputer() if self.data.has_neighbours else MeanImputer()
        ready = token_imputer(self.tokenizer) if imputer is None else find_imputer(imputer)
        if ready is None or (self.data.tokens and not takes_tokens(ready)):
            raise ValueError(
                "Integers are token ids, and need a `tokenizer` of transformers, or imputer=tl.TokenImputer(mask_id); "
                "convert other integers to floating-point numbers."
            )
        return self._with_mean(with_tokenizer(ready, self.tokenizer))

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the samples, if there is one of transformers."""
        return find_tokenizer(self.model, self.options)

    def _with_mean(self, imputer: Imputer) -> Imputer:
        return MeanImputer(self.mean) if isinstance(imputer, MeanImputer) and imputer.mean is None else imputer

    def bind(self, metrics: Mapping[str, Metric], imputer: Imputer) -> dict[str, Metric]:
        """Give every metric its imputer: its own, or that of the run."""
        bound = {name: metric.bound(imputer, neighbours=self.data.has_neighbours) for name, metric in metrics.items()}
        requested = self.options.metrics
        if requested == "all" or (isinstance(requested, (list, tuple)) and "all" in requested):
            bound = _without_repeats(bound)
        return {
            name: dataclasses.replace(metric, imputer=self._with_mean(metric.imputer or imputer))
            for name, metric in bound.items()
        }


def _without_repeats(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Leave out deletion and insertion where they are ROAD: without neighbours, both fill in features the same way."""
    twins = {"deletion": "road_morf", "insertion": "road_lerf"}

    def measured(name: str) -> dict[str, JSON]:
        return {key: value for key, value in describe_metric(metrics[name]).items() if key not in ("metric", "order")}

    return {
        name: metric
        for name, metric in metrics.items()
        if not (name in twins and twins[name] in metrics and measured(name) == measured(twins[name]))
    }


def open_setup(model: ModelSource, data: DataSource, options: Options, *, device: str | None) -> Setup:
    """Load the model, read every sample once and call the model on a few, to find problems before the work starts.

    `device` is for a model given by its spec.
    """
    first = data[0] if isinstance(data, (tuple, list)) and len(data) == 2 else None
    tensors = first is None or isinstance(first, (Tensor, Mapping)) or are_texts(first)
    arrays = is_bunch(data) or not tensors
    load = cache(partial(_open_model, model, options, device, on_arrays=arrays))
    samples = open_samples(data, model, options, load)  # first, because a model may take long
    loaded = load()
    opened = fit_texts(samples, loaded, options.tokenizer)
    everything, spec = named(cached(opened), model, options), loaded.module
    if everything.tokenized:
        loaded = dataclasses.replace(loaded, module=called_with_tokens(loaded.module))
    task = task_of(everything.labels) if options.target is None else REGRESSION
    _check_performance(options, task)
    chosen = everything if options.limit is None else subset(everything, options.limit, options.seed)
    if options.until is not None:  # each round keeps the samples of the one before and adds others
        chosen = chosen.take(drawn_order(chosen.ids, seed=options.seed))
    samples, skipped, digest, fingerprints = check(
        fit_labels(chosen, loaded, options.target),
        skip_bad=options.skip_bad,
        workers=options.workers,
        check_size=loaded.preprocessing.check_size,
    )
    if missing := [name for name in options.show if name not in samples.ids]:
        raise ValueError(
            f"`show` must hold ids of samples of this run, such as {samples.ids[0]!r}; got {missing[0]!r}."
        )
    tried = np.linspace(0, len(samples) - 1, min(options.batch_size or _TRIED, _TRIED, len(samples)))
    inputs = load_inputs(samples.take(tried.astype(int)), loaded, workers=1)
    samples.naming.check(inputs)
    warn_of_padding(inputs, find_tokenizer(loaded, options))
    output, unsteady = _check_fit(loaded, samples, inputs, options)
    return Setup(
        model=loaded,
        everything=everything,
        samples=samples,
        skipped=skipped,
        digest=digest,
        fingerprints=fingerprints,
        example=inputs[:1],
        output=output,
        unsteady=unsteady,
        segments=_open_segments(options, everything, inputs, find_tokenizer(loaded, options)),
        task=task,
        options=options,
        source=SourceRecord(
            model=model if isinstance(model, str) else None,
            weights=options.weights,
            data=path_of(data),
            classes=options.classes,
        ),
        # First on the CPU; the work moves it to the worker's device.
        reload=_loader(model, options, "cpu") if isinstance(model, str) and loaded.module is spec else None,
    )


def _loader(model: str, options: ModelDataOptions, device: str | None) -> Callable[[], LoadedModel]:
    return partial(
        load_model,
        model,
        weights=options.weights,
        preprocessing=options.preprocessing,
        device=device,
        allow_code=options.allow_code,
    )


def _open_model(model: ModelSource, options: ModelDataOptions, device: str | None, *, on_arrays: bool) -> LoadedModel:
    if isinstance(model, str):
        loaded = _loader(model, options, device)()
    elif isinstance(model, LoadedModel):
        loaded = model
    elif isinstance(model, nn.Module):
        find_device(model, device)
        loaded = from_module(model, options.tokenizer if hasattr(options.tokenizer, "all_special_ids") else None)
    else:
        loaded = from_function(model, on_arrays=on_arrays)
    scale = loaded.scale if options.output == "auto" else options.output
    return dataclasses.replace(loaded, preprocessing=loaded.preprocessing.changed(options.preprocessing), scale=scale)


def _open_segments(options: Options, everything: Samples, inputs: Tensor, tokenizer: Any) -> Segments | None:
    feature_shape(inputs.shape, options.features)  # refuses channels of inputs that have none
    if options.features == "channels" and are_tokens(inputs):
        raise ValueError("`features` 'channels' is for signals, images and volumes; token ids have no channels.")
    words = are_tokens(inputs) and isinstance(options.segments, str) and options.segments == "words"
    if options.segments is not None and not words:
        return find_segments(options.segments, everything, options.features)
    imputer = options.imputer
    if are_tokens(inputs):
        imputer = token_imputer(tokenizer) if imputer is None else with_tokenizer(find_imputer(imputer), tokenizer)
    if isinstance(imputer, TokenImputer) and words:
        return find_word_segments(everything, imputer.segments)
    if isinstance(imputer, TokenImputer):
        return Segments(identity=f"tokens but {list(imputer.special)}", of=lambda _, inputs: imputer.segments(inputs))
    return None


def _check_fit(model: LoadedModel, samples: Samples, inputs: Tensor, options: ModelDataOptions) -> tuple[str, float]:
    """Call the model, refuse labels that do not fit it and answers that vary, and return where its logits are."""
    try:
        with refusing_exit("model"):
            answer = model.call(inputs[:1])
    except Exception as error:
        images = " Images are (samples, channels, height, width)." if inputs.dim() == 3 else ""
        raise ValueError(
            f"`model` {model.name} fails on an input of shape {tuple(inputs[:1].shape)}: {first_line(error)} Check "
            f"the size and the channels that it expects.{images}"
        ) from error

    def read(answer: Any, count: int) -> Tensor:
        with blaming("target"):
            scores = find_logits(answer)[0] if options.target is None else score_of(answer, options.target, count)
        return check_real(scores).double()

    def ask(batch: Tensor) -> Tensor:
        with blaming("model"):
            answer = model.call(batch)
        return read(answer, len(batch))

    output = SCORE if options.target is not None else _check_output(answer, model, samples, options)
    first = read(answer, 1)
    if options.output == "auto" and model.scale == "logits" and output != SCORE:
        warn_of_softmax(first)

    half = find_device(model.module, None)[1] in (torch.float16, torch.bfloat16)
    return output, check_steady(ask, inputs, coarse=half)


def _check_output(answer: Any, model: LoadedModel, samples: Samples, options: ModelDataOptions) -> str:
    """Refuse an output without logits, or labels that do not fit them; return where the logits are."""
    logits, output = find_logits(answer)
    single, values = output.endswith(SINGLE), task_of(samples.labels) == REGRESSION
    if not isinstance(logits, Tensor) or not (single or logits.dim() == 2):
        what = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else "something else"
        advice = advise_on_shape(logits) or " For other outputs pass `target`, a function to one score per sample."
        raise TypeError(
            f"`model` {model.name} must return logits (samples, classes), or have them as `logits` or as its first "
            f"item; it returned {what}.{advice}"
        )
    if values and not single:
        raise DataError(
            f"`data` has floating-point labels, which mean regression, and the model returns {logits.shape[1]} values "
            "per sample. For classification convert the labels to integers."
        )
    if not values:
        model.check_order(samples.classes)
        _check_classes(samples, 2 if single else logits.shape[1], options.classes)
    return output


def _check_classes(samples: Samples, outputs: int, classes: str | None) -> None:
    """Refuse labels that are not among the model's classes."""
    folders = samples.classes
    if samples.name.startswith("folder:") and classes is None and folders is not None and len(folders) != outputs:
        raise DataError(
            f"`data` holds {len(folders)} class folders and the model knows {outputs} classes, so their indices are "
            "unclear. Map folders to classes with `classes`, a file of names and indices."
        )
    if (largest := int(samples.labels.max())) >= outputs:
        name = samples.ids[int(samples.labels.argmax())]
        raise DataError(f"`data` has label {largest} (sample '{name}'), and the model knows 0 to {outputs - 1}.")


def _check_performance(options: Options, task: str) -> None:
    """Refuse performance measures that the task does not have."""
    for metric in options.metric_values.values():
        if not metric.needs_performance:
            continue
        try:
            check_measure(metric.performance, task)
        except ValueError as error:
            why = "labels are floating-point" if options.target is None else "`target` makes scores"
            raise ValueError(
                f"{error} The model is one for {task} because {why}." if task == REGRESSION else f"{error}"
            ) from None
