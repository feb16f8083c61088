"""Data sets and data loaders of torch and Hugging Face as samples.

Shapes: N samples, C channels, S = spatial shape, D features of a tabular row; images are H × W.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from threading import Lock
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, default_collate

from twinlens.data.images import reading
from twinlens.data.samples import ArrayInputs, Samples, from_arrays, hash_array, make_samples
from twinlens.data.texts import TEXT_NAMES, from_texts, from_token_rows
from twinlens.errors import DataError, short_repr
from twinlens.probing.label_advice import label_advice
from twinlens.probing.tokens import IDS, MASK
from twinlens.support.arrays import as_array

_INPUT_KEYS = ("pixel_values", "image", "img", "inputs", "input", "x")
_LABEL_KEYS = ("labels", "label", "target", "y")
_READ_TWICE = 3  # samples, to see that they stay the same
_LOCK = Lock()


def is_dataset(data: object) -> bool:
    """Return whether an object is a data set, a loader, or behaves like one."""
    if isinstance(data, (DataLoader, IterableDataset)):
        return True
    if isinstance(data, list):
        return bool(data) and all(isinstance(item, Mapping) for item in data)
    plain = (str, bytes, tuple, Mapping, np.ndarray, Tensor)
    return not isinstance(data, plain) and hasattr(data, "__getitem__") and hasattr(data, "__len__")


def is_bunch(data: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether an object holds rows and labels by name, as the data sets of scikit-learn do."""
    return isinstance(data, Mapping) and {"data", "target"} <= data.keys()


def from_bunch(data: Mapping[str, Any]) -> Samples:
    """Open a data set of scikit-learn as samples, with the names of its columns and classes."""
    rows, names = data["data"], data.get("target_names")
    classes = names if getattr(names, "ndim", 1) == 1 and np.asarray(data["target"]).dtype.kind in "iu" else None
    return from_arrays(
        rows,
        data["target"],
        classes=None if classes is None else [str(name) for name in classes],
        name=type(data).__name__,
        feature_names=data.get("feature_names"),
    )


def from_dataset(data: Any, index_of: Callable[[str], int] | None = None) -> Samples:
    """Open a data set or a loader as samples.

    A data set is read one sample at a time, in any order, and never held in memory; so is the data set of a plain
    loader. The items of other loaders and of iterable data sets are read once into a temporary file.

    Items are an input and a label, as a tuple or by name, such as "image" and "label". Inputs are as for `from_arrays`,
    or images of Pillow. Items with "input_ids" are token ids, of any length, and items with a "text" are texts; all of
    them are held in memory, and `index_of` finds the class of a label that is a name.
    """
    if not isinstance(data, DataLoader):
        if isinstance(data, IterableDataset):
            return _from_stream(data, index_of, "stream", None)
        first = None
        with suppress(Exception):  # which are reported where items are read
            first = data[0]
        if _is_text_item(first):
            items = (data[position] for position in range(len(data)))
            return _from_text_items(items, index_of, type(data).__qualname__, _class_names(data))
        return _from_positions(data)
    dataset, sampler = data.dataset, data.sampler
    plain = not isinstance(dataset, IterableDataset) and data.collate_fn is default_collate
    if plain and isinstance(sampler, (SequentialSampler, RandomSampler)):
        return from_dataset(dataset, index_of)
    if isinstance(sampler, RandomSampler):
        raise DataError(
            "`data` is a loader that shuffles and has its own collate_fn; its samples have no order. Pass "
            "shuffle=False."
        )
    items = (sample for batch in data for sample in _unbatched(batch))
    return _from_stream(items, index_of, "stream", _class_names(dataset))


def _from_stream(
    items: Iterable[object], index_of: Callable[[str], int] | None, name: str, classes: tuple[str, ...] | None
) -> Samples:
    """Open items that can be read once; the first decides whether they are text."""
    iterator = iter(items)
    start = list(islice(iterator, 1))
    if start and _is_text_item(start[0]):
        return _from_text_items(chain(start, iterator), index_of, name, classes)
    return _from_items(chain(start, iterator))


def _is_text_item(item: object) -> bool:
    """Return whether an item holds token ids or a text."""
    inner = item[0] if isinstance(item, (tuple, list)) and len(item) == 2 else item
    return isinstance(inner, Mapping) and (IDS in inner or _text_key(inner) is not None)


def _text_key(item: Mapping[str, Any]) -> str | None:
    return next((key for key in TEXT_NAMES if isinstance(item.get(key), str)), None)


def _from_text_items(
    items: Iterable[Any], index_of: Callable[[str], int] | None, name: str, classes: tuple[str, ...] | None
) -> Samples:
    """Open items with token ids or texts, and their labels: by name in the same mapping, or behind it in a tuple."""
    rows, labels = list[Mapping[str, Any]](), list[Any]()
    for position, item in enumerate(items):
        paired = isinstance(item, (tuple, list))
        row = item[0] if paired else item
        if not _is_text_item(row) or (rows and (IDS in row) != (IDS in rows[0])):
            raise DataError(
                f"All items of `data` must hold {IDS!r}, or all a text under {TEXT_NAMES[0]!r}, as the first does; the "
                f"one at {position} is {short_repr(item)}."
            )
        rows.append(row)
        labels.append(item[1] if paired else next((row[key] for key in _LABEL_KEYS if key in row), None))
    ids = [f"{position:05d}" for position in range(len(rows))]
    targets = None
    if any(label is not None for label in labels):
        found = [index_of(label) if isinstance(label, str) and index_of is not None else label for label in labels]
        targets = _as_labels(found, ids)
    if IDS in rows[0]:
        return from_token_rows(rows, targets, classes=classes, name=name)
    return from_texts([row[str(_text_key(row))] for row in rows], targets, classes=classes, name=name)


def _from_positions(dataset: Any) -> Samples:
    ids = [f"{position:05d}" for position in range(len(dataset))]
    source = DatasetInputs(dataset, ids)
    for position in range(min(_READ_TWICE, len(ids))):
        if source.fingerprint(position) != source.fingerprint(position):
            raise DataError(
                f"`data` returns another input each time that sample '{ids[position]}' is read, as with random crops "
                "or flips. Pass the data set with the transforms of evaluation."
            )
    source.labels = _listed_labels(dataset, len(ids))
    if source.labels is None:
        source.labels = _as_labels([source.item(position)[1] for position in range(len(ids))], ids)
    return make_samples(type(dataset).__qualname__, ids, source.labels, _class_names(dataset), source)


def _listed_labels(dataset: Any, count: int) -> NDArray[Any] | None:
    """Return the labels that a data set lists in `targets`, as those of torchvision do."""
    if getattr(dataset, "target_transform", None) is not None or not hasattr(dataset, "targets"):
        return None
    try:
        labels = as_array(dataset.targets, "targets")
    except TypeError:
        return None
    return labels if labels.shape == (count,) and labels.dtype.kind in "iu" else None


def _class_names(dataset: Any) -> tuple[str, ...] | None:
    names = getattr(dataset, "classes", None)
    if isinstance(features := getattr(dataset, "features", None), Mapping):  # of Hugging Face
        names = next((getattr(features[key], "names", None) for key in _LABEL_KEYS if key in features), names)
    if isinstance(names, (list, tuple)) and names and all(isinstance(name, str) for name in names):
        return tuple(names)
    return None


class DatasetInputs:
    """The items of a data set by position, read by one thread at a time: few data sets are known to be thread-safe."""

    def __init__(self, dataset: Any, ids: Sequence[str]) -> None:
        self.dataset, self.ids = dataset, tuple(ids)
        self.labels: NDArray[Any] | None = None
        self._prints: dict[int, bytes] = {}

    def item(self, position: int) -> tuple[Image.Image | NDArray[Any], object]:
        """Read the input and the label of one sample."""
        with _LOCK, reading(f"sample {self.ids[position]}", "Repair the data set or leave it out."):
            return _split(self.dataset[position], self.ids[position])

    def reader(self, position: int) -> Image.Image | NDArray[np.float32]:
        """Read one image or input."""
        (sample, label), ids = self.item(position), self.ids[position : position + 1]
        if self.labels is not None and _as_labels([label], ids)[0] != self.labels[position]:
            raise DataError(
                f"Sample '{ids[0]}' has label {label}, and `targets` of the data set has {self.labels[position]}. "
                "Correct one of them."
            )
        self._prints[position] = hash_array(np.ascontiguousarray(sample))
        return sample if isinstance(sample, Image.Image) else ArrayInputs(sample[None], ids).reader(0)

    def fingerprint(self, position: int) -> bytes:
        """Return a hash of the content of one sample, from when it was last read."""
        if position in self._prints:
            return self._prints[position]
        return hash_array(np.ascontiguousarray(self.item(position)[0]))


def _from_items(items: Iterable[object]) -> Samples:
    """Read a stream of items once, into a file that the system removes."""
    labels: list[object] = []
    first = None
    with tempfile.TemporaryFile() as file:
        for position, item in enumerate(items):
            sample, label = _split(item, name := f"{position:05d}")
            array = np.ascontiguousarray(sample)
            kind = (array.dtype, array.shape)
            if first is not None and kind != first:
                raise DataError(
                    f"All inputs of `data` must be alike; sample '{name}' is {kind[0]} of shape {kind[1]}, the first "
                    f"{first[0]} of shape {first[1]}."
                )
            first = kind
            file.write(array.tobytes())
            labels.append(label)
        if first is None:
            raise DataError("`data` must hold at least one sample; got none.")
        file.flush()
        # The file exists as long as it is mapped.
        stored = np.memmap(file, dtype=first[0], mode="r+", shape=(len(labels), *first[1]))
    return from_arrays(stored, _as_labels(labels, [f"{k:05d}" for k in range(len(labels))]), name="stream")


def _split(item: object, name: str) -> tuple[Image.Image | NDArray[Any], object]:
    """Return the input and the label of an item."""
    pair: list[Any] = list(item[:2]) if isinstance(item, (tuple, list)) else []
    keys = ""
    if isinstance(item, Mapping):
        keys = f" of {sorted(map(str, item))}"
        pair = [next((item[key] for key in names if key in item), None) for names in (_INPUT_KEYS, _LABEL_KEYS)]
    if len(pair) != 2 or pair[0] is None or pair[1] is None:
        raise DataError(
            f"`data` must yield an input and a label, as a tuple or by names such as 'image' and 'label'; sample "
            f"'{name}' is {type(item).__name__}{keys}."
        )
    sample, label = pair
    if isinstance(sample, Image.Image):
        if sample.mode not in ("L", "RGB"):
            raise DataError(f"Sample '{name}' must be an image of mode L or RGB; it is {sample.mode}. Convert it.")
        return sample, label
    array = as_array(sample, "data")
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = array.transpose(1, 2, 0)  # as torchvision reads images
    if array.dtype.kind != "f" and not (array.dtype == np.uint8 and array.ndim in (2, 3)):
        raise DataError(
            f"Inputs of `data` must be floating-point, as the model expects them, or 8-bit images; sample '{name}' is "
            f"{array.dtype} of shape {array.shape}. Convert it."
        )
    return array, label


def _unbatched(batch: object) -> Iterator[object]:
    """Yield the items of a batch."""
    if isinstance(batch, Mapping):
        keys = [key for key in batch if key in (*_INPUT_KEYS, *_LABEL_KEYS, IDS, MASK, *TEXT_NAMES)]
        yield from ({key: batch[key][k] for key in keys} for k in range(len(batch[keys[0]]) if keys else 0))
    elif isinstance(batch, (tuple, list)) and len(batch) >= 2:
        yield from zip(batch[0], batch[1], strict=True)
    else:
        yield batch


def _advice(labels: Sequence[Any]) -> str:
    """Return what to do with labels that are not one number each."""
    try:
        stacked = np.stack([np.asarray(label.cpu() if isinstance(label, Tensor) else label) for label in labels])
        return label_advice(stacked, len(labels), items=True)
    except (ValueError, TypeError):  # of several shapes, or not numbers
        return ""


def _as_labels(labels: Sequence[object], ids: Sequence[str]) -> NDArray[Any]:
    """Return labels as one array of integers, or of floating-point numbers for regression."""
    numbers = []
    for name, label in zip(ids, labels, strict=True):
        array = np.asarray(label.cpu() if isinstance(label, Tensor) else label)
        if array.size != 1 or array.dtype.kind not in "iuf":
            raise DataError(
                f"Labels of `data` must be one number each; that of sample '{name}' is {short_repr(label)}."
                f"{_advice(labels)}"
            )
        numbers.append(array.reshape(-1)[0])
    return np.asarray(numbers)
