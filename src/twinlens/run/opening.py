"""Data as people have them, opened as samples that a model can read.

Shapes: N samples.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinlens.data.datasets import from_bunch, from_dataset, is_bunch, is_dataset
from twinlens.data.naming import Naming
from twinlens.data.samples import Samples, from_arrays
from twinlens.data.sources import open_labelled
from twinlens.data.texts import TEXT_NAMES, are_texts, from_texts, from_token_rows
from twinlens.errors import DataError, short_repr
from twinlens.models.callables import Estimator, find_estimator
from twinlens.models.loading import LoadedModel
from twinlens.options import DataSource, ModelDataOptions, ModelSource
from twinlens.probing.tokens import IDS, MASK


def open_samples(
    data: DataSource, model: ModelSource, options: ModelDataOptions, load: Callable[[], LoadedModel]
) -> Samples:
    """Open the data of a run: a path, samples, a data set or loader, or inputs and labels.

    `load` returns the model, which is needed only for labels that are names or missing.
    """
    if (path := path_of(data)) is not None:
        return open_labelled(path, classes=options.classes, index_of=_index_of(load))
    if options.classes is not None:
        raise ValueError("`classes` belongs to data that is opened by its path; name the classes of your own samples.")
    estimator = find_estimator(model)
    if are_texts(data):  # of a language model, which finds its own labels
        data = (data, None)
    elif hasattr(data, "iloc") and hasattr(data, "columns"):
        data = _lines_of(data)
    if isinstance(data, Samples) or is_dataset(data) or is_bunch(data):
        samples = data if isinstance(data, Samples) else _from_set(data, load)
        names = None if estimator is None else estimator.class_names
        if estimator is None or (samples.classes is not None and names is None):
            return samples
        labels = samples.labels if samples.classes is None else np.array(samples.classes)[samples.labels]
        return dataclasses.replace(samples, labels=estimator.indices(labels), classes=names)
    if isinstance(data, Mapping) and data and all(map(is_dataset, data.values())):
        raise DataError(
            f"`data` holds several data sets, {', '.join(map(str, data))}. Pass one of them, as in "
            f"data[{list(data)[-1]!r}]."
        )
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise TypeError(
            "`data` must be a path, samples, a torch data set or loader, or inputs and labels as two arrays; got "
            f"{short_repr(data)}."
        )
    return _from_pair(data[0], data[1], load, estimator, options)


def path_of(data: object) -> str | None:
    """Return the path or the name by which data are opened; None for data that are Python objects."""
    return str(data) if isinstance(data, (str, os.PathLike)) else None


def _lines_of(frame: Any) -> list[Mapping[str, object]]:
    """Return the lines of a data frame of texts, as of a CSV file."""
    columns = list(map(str, frame.columns))
    if not {*TEXT_NAMES, IDS} & set(columns) or not len(frame):
        raise TypeError(
            f"`data` is a data frame with {len(frame)} rows and the columns {', '.join(columns[:8])}. Pass inputs and "
            "labels apart, as in (frame[columns], frame['label'])."
        )
    lines: list[Mapping[str, object]] = frame.to_dict("records")
    return lines


def _index_of(load: Callable[[], LoadedModel]) -> Callable[[str], int]:
    return lambda name: load().class_index(name)


def _from_set(data: Any, load: Callable[[], LoadedModel]) -> Samples:
    return from_bunch(data) if is_bunch(data) else from_dataset(data, _index_of(load))


def _from_pair(
    inputs: Any, labels: Any, load: Callable[[], LoadedModel], estimator: Estimator | None, options: ModelDataOptions
) -> Samples:
    """Open inputs and labels: arrays, what a tokenizer returns, or texts."""
    if are_texts(inputs):
        if are_texts(labels):
            labels = [load().class_index(str(label)) for label in labels]
        return from_texts([str(text) for text in inputs], labels)
    if isinstance(inputs, Mapping) and _differ_in_length(inputs.get(IDS)):
        parts = [name for name in (IDS, MASK) if name in inputs]
        rows = [dict(zip(parts, row, strict=True)) for row in zip(*(inputs[name] for name in parts), strict=True)]
        return from_token_rows(rows, labels)
    if labels is None and (options.target is not None or load().continues_text):
        zeros = np.zeros(_count(inputs), dtype=np.float64 if options.target else np.int64)
        return dataclasses.replace(from_arrays(inputs, zeros), unlabelled=True)
    if estimator is None or labels is None:
        return from_arrays(inputs, labels)
    return from_arrays(inputs, estimator.indices(labels), classes=estimator.class_names)


def _differ_in_length(rows: Any) -> bool:
    return isinstance(rows, (list, tuple)) and len({len(row) for row in rows if hasattr(row, "__len__")}) > 1


def _count(inputs: Any) -> int:
    """Return the number of samples of arrays, or of what a tokenizer returns."""
    return len(inputs[IDS] if isinstance(inputs, Mapping) else inputs)


def named(samples: Samples, model: ModelSource, options: ModelDataOptions) -> Samples:
    """Return samples with the names of their features: those of the options, their own, or those of the estimator."""
    requested = Naming.of(options.feature_names, options.tokenizer, options.sampling_rate)
    fitted = getattr(find_estimator(model), "feature_names", None)
    naming = requested.over(samples.naming).over(Naming(feature_names=fitted))
    return dataclasses.replace(samples, naming=naming)
