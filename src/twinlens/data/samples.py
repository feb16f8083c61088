"""Samples: labelled inputs with stable ids, read one at a time.

Shapes: N samples, C channels, S = spatial shape, D features of a tabular row; images are H × W.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from twinlens.data.images import read_image, reading
from twinlens.data.naming import NAMELESS, Naming, column_names
from twinlens.errors import DataError
from twinlens.probing.answers import REGRESSION, task_of
from twinlens.probing.label_advice import label_advice
from twinlens.probing.maps import check_ids
from twinlens.probing.model_call import Labels
from twinlens.probing.tokens import pack_tokens
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats, as_array
from twinlens.support.files import read_whole
from twinlens.support.randomness import drawn_order

LARGEST_LABEL = 2**63 - 1
FINGERPRINT = 16  # bytes of the fingerprint of a sample
_CACHED_BYTES = 2**30  # of decoded images: 1,900 photographs of 500 × 375 pixels
_WINDOW = 256  # samples that the pool reads ahead


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Labelled samples, read one at a time.

    Example:
        >>> samples = from_arrays(np.zeros((3, 8, 8), np.uint8), [4, 5, 6])
        >>> samples.take([2, 0]).ids, samples.read(0).size
        (('00002', '00000'), (8, 8))
    """

    name: str
    """The data set as requested, such as "mnist" or "folder:birds"."""

    ids: tuple[str, ...]
    """One stable name per sample: the path relative to the data set, a stored id, or the position."""

    labels: NDArray[Any]
    """(N,) class of each sample as int64, or its value as float64 for regression."""

    classes: tuple[str, ...] | None
    """Names of the classes by index, where they are known."""

    positions: NDArray[np.int64]
    """(N,) position of each sample in the whole data set."""

    reader: Callable[[int], Image.Image | NDArray[Any] | str]
    """From a position in the whole set to one sample."""

    fingerprint: Callable[[int], bytes]
    """From a position in the whole set to a hash of the sample's content."""

    prints: Mapping[str, bytes] | None = None
    """The fingerprint of each sample by its id, which it must still have when it is read."""

    naming: Naming = NAMELESS
    """Names of features, for those who read the samples."""

    tokenized: bool = False
    """Whether inputs are token ids with an attention mask (2, T), which a model takes by their names."""

    text: bool = False
    """Whether samples are texts, which a tokenizer has to turn into token ids first."""

    unlabelled: bool = False
    """Whether labels are missing, and a language model has to find its own: the tokens that it expects next."""

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, index: int) -> Any:
        """Read one sample: an 8-bit image (mode "RGB" or "L"), an input as the model expects it, or a text."""
        sample = self.reader(position := int(self.positions[index]))
        if self.prints is not None:
            content = self.identify(index, self.fingerprint(position))
            if hashlib.blake2b(content, digest_size=FINGERPRINT).digest() != self.prints[self.ids[index]]:
                raise DataError(
                    f"Sample '{self.ids[index]}' of {self.name} is not what it was when it was first read. Restore it, "
                    "or start a new run; a data set must return the same input each time."
                )
        return sample

    def identify(self, index: int, content: bytes) -> bytes:
        """Return the id and label of a sample with a hash of its content."""
        return json.dumps([self.ids[index], self.labels[index].item()]).encode() + content

    def take(self, indices: Sequence[int] | NDArray[np.integer]) -> Samples:
        """Return the samples at these indices, in this order."""
        index = np.asarray(indices, dtype=np.int64)
        return dataclasses.replace(
            self,
            ids=tuple(self.ids[i] for i in index),
            labels=self.labels[index],
            positions=self.positions[index],
        )


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A sample left out because it cannot be read."""

    id: str
    reason: str


@checked
def from_arrays(
    inputs: ArrayLike | Mapping[str, Any],
    labels: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
    feature_names: Sequence[str] | None = None,
    tokenizer: Any = None,
    sampling_rate: float | None = None,
) -> Samples:
    """Open arrays as samples.

    Args:
        inputs: uint8 (N, H, W) or (N, H, W, 1 or 3) are images; floating-point (N, C, *S) or (N, D) are inputs as the
            model expects them, normalised; integers (N, T) are token ids. The output of a tokenizer is accepted, too.
        labels: (N,) classes as integers; floating-point labels are the values of a regression.
        ids: one name per sample; by default its position, such as "00017".
        classes: names of the classes by index.
        name: name of the data set.
        feature_names: names of the columns of tabular rows, by default those of a data frame, or of the channels of
            other inputs. Only reports use them, and the next two.
        tokenizer: turns token ids into words: a tokenizer with `convert_ids_to_tokens`, a function from the ids of a
            sample to one string each, or a vocabulary, words by id.
        sampling_rate: time steps of a signal per second.

    Example:
        >>> from_arrays(np.eye(2), [0, 1], ids=["a", "b"]).read(1)
        array([0., 1.], dtype=float32)
    """
    array = as_array(pack_tokens(inputs) if isinstance(inputs, Mapping) else inputs, "inputs")
    shape = array.shape
    if array.dtype == np.uint8:
        usable = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
    else:
        usable = (array.dtype.kind == "f" and len(shape) >= 2) or (array.dtype.kind == "i" and len(shape) in (2, 3))
    if not usable or 0 in shape:
        raise DataError(
            "`inputs` must be images, uint8 (N, H, W) or (N, H, W, 1 or 3), or what the model expects, floating-point "
            f"(N, C, *S) or (N, D), or token ids (N, T), none of them empty; got {array.dtype} of shape {shape}. "
            + (
                "Of a single sample, add the batch dimension: inputs[None]."
                if len(shape) == 1 or (array.dtype == np.uint8 and len(shape) == 2)
                else "Of uint8 images move the channels last; convert other numbers to float32 and normalise them."
            )
        )
    names = [f"{i:05d}" for i in range(len(array))] if ids is None else ids
    targets = as_array(labels, "labels")
    if targets.shape not in ((len(array),), (len(array), 1)) or targets.dtype.kind not in "iuf":
        wrong_type = targets.shape == (len(array),)
        advice = " Convert class numbers to int64." if wrong_type else label_advice(labels, len(array))
        raise DataError(
            f"`labels` must hold one number for each of the {len(array)} samples; got {targets.dtype} of shape "
            f"{targets.shape}.{advice}"
        )
    class_names = None if classes is None else tuple(str(c) for c in classes)
    naming = Naming.of(feature_names or column_names(inputs), tokenizer, sampling_rate)
    samples = make_samples(name, names, targets.reshape(-1), class_names, ArrayInputs(array, names))
    return dataclasses.replace(samples, naming=naming, tokenized=isinstance(inputs, Mapping))


def cached(samples: Samples, budget: int = _CACHED_BYTES) -> Samples:
    """Return samples that keep decoded images in memory, up to `budget` bytes; further images are decoded each time."""
    return dataclasses.replace(samples, reader=_CachedReader(samples.reader, budget))


class _CachedReader:
    """Keeps decoded images until the budget is used up; arrays are in memory anyway."""

    def __init__(self, read: Callable[[int], Image.Image | NDArray[Any] | str], budget: int) -> None:
        self.read, self.budget = read, budget
        self.images: dict[int, Image.Image] = {}

    def __call__(self, position: int) -> Image.Image | NDArray[Any] | str:
        if (image := self.images.get(position)) is not None:
            return image
        sample = self.read(position)
        if isinstance(sample, Image.Image):
            size = sample.width * sample.height * len(sample.getbands())
            if size <= self.budget:
                self.budget -= size
                self.images[position] = sample
        return sample

    def __reduce__(self) -> tuple[object, ...]:
        return _CachedReader, (self.read, self.budget)  # other processes read for themselves


def subset(samples: Samples, limit: int, seed: int) -> Samples:
    """Draw samples at random, in their original order; a larger limit with the same seed only adds samples."""
    if limit < 1:
        raise ValueError(f"`limit` must be at least 1; got {limit}.")
    return samples.take(sorted(drawn_order(samples.ids, seed=seed)[:limit]))


def check(
    samples: Samples, *, skip_bad: bool, workers: int = 2, check_size: Callable[[tuple[int, int]], None] | None = None
) -> tuple[Samples, tuple[Skipped, ...], str, tuple[bytes, ...]]:
    """Read every sample once, before anything expensive starts.

    `check_size` raises `ValueError` for an image whose width and height the model's preprocessing cannot handle.

    Returns:
        The samples that can be read; those left out if `skip_bad`, otherwise the first of them is an error; a digest of
        the ids, labels and content of the former; and a fingerprint of each, the same in every data set.
    """
    digest, good, skipped, prints, seen = hashlib.blake2b(digest_size=32), [], [], [], set[tuple[bytes, float]]()
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(samples), _WINDOW):
            window = range(start, min(start + _WINDOW, len(samples)))
            for index, outcome in zip(window, pool.map(partial(_visit, samples, check_size), window), strict=True):
                name = samples.ids[index]
                if isinstance(outcome, bytes):
                    good.append(index)
                    content = samples.identify(index, outcome)
                    seen.add((outcome, samples.labels[index].item()))
                    digest.update(content)
                    prints.append(hashlib.blake2b(content, digest_size=FINGERPRINT).digest())
                elif skip_bad:
                    skipped.append(Skipped(id=name, reason=str(outcome)))
                else:
                    raise DataError(f"{outcome} To leave out unreadable samples, choose skip_bad.") from outcome
    if not good:
        reason = f"; the first: {skipped[0].reason}" if skipped else "."
        raise DataError(f"None of the {len(samples)} samples of {samples.name} can be read{reason}")
    if copies := len(good) - len({content for content, _ in seen}):
        several = len(good) == len(seen)  # one row for each class of a sample
        what = "repeat the input of another with another label" if several else "are copies of others"
        warnings.warn(
            f"{copies} of the {len(good)} samples of {samples.name} {what}. Intervals assume different samples, and "
            f"are too narrow.{'' if several else ' Remove the copies.'}",
            stacklevel=2,
        )
    checked = samples.take(good)
    checked = dataclasses.replace(checked, prints=dict(zip(checked.ids, prints, strict=True)))
    return checked, tuple(skipped), digest.hexdigest(), tuple(prints)


def _visit(samples: Samples, check_size: Callable[[tuple[int, int]], None] | None, index: int) -> bytes | DataError:
    try:
        sample = samples.read(index)
        if check_size is not None and isinstance(sample, Image.Image):
            try:
                check_size(sample.size)
            except ValueError as error:
                raise DataError(f"'{samples.ids[index]}': {error}") from None
        return samples.fingerprint(int(samples.positions[index]))
    except DataError as error:
        return error


class ImageFiles:
    """Image files under one folder, by position."""

    def __init__(self, root: str, names: Sequence[str], ids: Sequence[str] | None = None) -> None:
        self.root, self.names = root, tuple(names)
        self.ids = tuple(printable(name) for name in names) if ids is None else tuple(ids)

    def reader(self, position: int) -> Image.Image:
        """Read one image."""
        if not is_text(self.names[position]):
            raise DataError(f"'{self.ids[position]}' must have a name in UTF-8; some bytes are not. Rename the file.")
        return read_image(os.path.join(self.root, self.names[position]), self.ids[position])

    def fingerprint(self, position: int) -> bytes:
        """Hash the content of one sample."""
        with reading(self.ids[position], "Replace or remove the file."):
            return hashlib.blake2b(read_whole(Path(self.root, self.names[position])), digest_size=32).digest()


class ArrayInputs:
    """Images (N, H, W) or (N, H, W, 1 or 3) as uint8, or inputs (N, …) as floating-point numbers, by position."""

    def __init__(self, inputs: NDArray[Any], ids: Sequence[str | int]) -> None:
        self.inputs, self.ids = inputs, ids

    def reader(self, position: int) -> Image.Image | NDArray[Any]:
        """Return one image or input."""
        sample = self.inputs[position]
        if sample.dtype == np.uint8:
            return Image.fromarray(np.ascontiguousarray(sample[..., 0] if sample.shape[2:] == (1,) else sample))
        with np.errstate(over="ignore"):
            values: NDArray[Any] = sample.astype(np.int64 if sample.dtype.kind == "i" else np.float32)
        if not np.isfinite(values).all():
            raise DataError(
                f"Sample '{self.ids[position]}' must be finite in float32; it contains NaN or infinity. "
                "Repair it or leave it out."
            )
        return values

    def fingerprint(self, position: int) -> bytes:
        """Hash the content of one sample."""
        return hash_array(self.inputs[position])


def hash_array(values: NDArray[Any]) -> bytes:
    """Hash an array by type, shape and values."""
    return hashlib.blake2b(f"{values.dtype.str}{values.shape}".encode() + values.tobytes(), digest_size=32).digest()


class Source(Protocol):
    """Reads samples by position."""

    def reader(self, position: int) -> Image.Image | NDArray[Any] | str:
        """Read one image, input or text."""

    def fingerprint(self, position: int) -> bytes:
        """Hash the content of one sample."""


def make_samples(
    name: str,
    ids: Sequence[str | int],
    labels: Sequence[int] | NDArray[Any],
    classes: tuple[str, ...] | None,
    source: Source,
) -> Samples:
    """Build samples from a source; ids and labels are checked here and nowhere else."""
    try:
        names = check_ids(ids, len(labels))
    except (ValueError, TypeError) as error:
        raise DataError(str(error)) from None
    for text in (*names, *(classes or ())):
        if not is_text(text):
            raise DataError(f"Ids and class names must be text that UTF-8 can encode; '{text}' is not. Rename it.")
    targets = np.asarray(labels)
    regression = task_of(targets) == REGRESSION
    return Samples(
        name=printable(name),
        ids=names,
        labels=_check_values(targets, names) if regression else _check_classes(targets, names, classes),
        classes=None if regression else classes,
        positions=np.arange(len(names)),
        reader=source.reader,
        fingerprint=source.fingerprint,
    )


def _check_classes(labels: NDArray[Any], ids: Sequence[str], classes: tuple[str, ...] | None) -> NDArray[np.int64]:
    largest = LARGEST_LABEL if classes is None else len(classes) - 1
    for k in np.flatnonzero((labels < 0) | (labels > largest)).tolist():
        highest = "" if classes is None else f" to {largest}, since {len(classes)} classes are named"
        raise DataError(
            f"`labels` must be class indices from 0{highest}; that of sample '{ids[k]}' is {labels[k]}. Correct it."
        )
    return labels.astype(np.int64)


def _check_values(labels: NDArray[Any], ids: Sequence[str]) -> Floats:
    values: Floats = labels.astype(np.float64)
    for k in np.flatnonzero(~np.isfinite(values)).tolist():
        raise DataError(f"`labels` must be finite; that of sample '{ids[k]}' is {values[k]}. Correct it.")
    return values


def is_text(name: str) -> bool:
    """Return whether a name can be written as UTF-8; file names may hold any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(name: str) -> str:
    """Return a file name as text that can be written anywhere, with escapes for bytes that are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
