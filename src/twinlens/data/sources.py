"""Sources of samples: folders, tables, arrays and built-in data sets, opened by a spec on the command line.

Shapes: N samples; images are H × W.
"""

from __future__ import annotations

import csv
import dataclasses
import importlib
import importlib.util
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from twinlens.data.images import reading
from twinlens.data.samples import LARGEST_LABEL, ImageFiles, Samples, from_arrays, is_text, make_samples, printable
from twinlens.data.texts import TEXT_NAMES, from_texts
from twinlens.errors import DataError, install_hint
from twinlens.models.mnist_cnn import mnist_digits
from twinlens.support.arguments import checked
from twinlens.support.files import check_regular, check_unpacked_size

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif"})

_MOST_CLASSES = 1_000_000
_DEEPEST, _MOST_LINKS = 100, 3  # folders in folders, and links to folders on the way to one of them


@checked
def open_data(spec: str, *, classes: str | None = None) -> Samples:
    """Open labelled data by name or path; nothing is decoded yet.

    Args:
        spec: one of
            a directory with one folder per class, images directly inside or deeper; hidden files and files that are
            not images by their extension are ignored;
            FILE.csv with the columns path (relative to the file) and label (an index, or a name of `classes`), or
            with numbers: each line a sample, each column a feature except label and, optionally, id; or with texts in a
            column called text, sentence, review or prompt, or in the only one beside label and id;
            FILE.npz with the arrays inputs and labels (or x and y, or x_test and y_test), optionally ids, classes and
            feature_names;
            "mnist" or "imagenet20"; "cifar10:DIR" or "cifar100:DIR" for the test images of the published binary files
            in DIR. To open a directory called "mnist", write "./mnist".
        classes: a file that maps each class name to its index: .json ({"name": index} or ["name", …]), .txt (one name
            per line, counted from 0) or .csv (columns name and index). By default, the folders in sorted order.

    Returns:
        The samples, sorted by name for a directory and in the order of the file otherwise.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("ant", "bee"):
        ...         Path(folder, name).mkdir()
        ...         Image.new("RGB", (8, 8)).save(Path(folder, name, "1.png"))
        ...     samples = open_data(folder)
        >>> samples.ids, samples.labels.tolist(), samples.classes
        (('ant/1.png', 'bee/1.png'), [0, 1], ('ant', 'bee'))
    """
    return open_labelled(spec, classes=classes)


def open_labelled(spec: str, *, classes: str | None, index_of: Callable[[str], int] | None = None) -> Samples:
    """Open data as `open_data` does; `index_of` finds the class of a label that is a name."""
    indices = None if classes is None else _read_classes(classes)
    kind = os.path.splitext(spec)[1].lower()
    if spec in DATA_SETS:
        samples = DATA_SETS[spec]()
    elif spec.startswith(("cifar10:", "cifar100:")):
        images, labels, names = cifar_images(spec, held_out=True)
        samples = from_arrays(images, labels, classes=names, name=spec.split(":", 1)[0])
    elif os.path.isdir(spec):
        return _folder(spec, indices)
    elif kind == ".csv":
        return _table(spec, indices, index_of)
    elif kind == ".npz":
        samples = _archive(spec)
    else:
        raise DataError(
            "`data` must be a directory, a .csv or .npz file, cifar10:DIR, cifar100:DIR, or one of "
            f"{', '.join(DATA_SETS)}; '{spec}' is none of them. Check the spelling of the path."
        )
    if indices is None:
        return samples
    renamed = make_samples(samples.name, samples.ids, samples.labels, _names(indices), samples)
    return dataclasses.replace(renamed, naming=samples.naming)


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
    with_images = {name.split("/", 1)[0] for name in names}
    for folder in folders:
        if not is_text(folder):
            raise DataError(f"`data`: the class folder '{printable(folder)}' must have a name in UTF-8. Rename it.")
        if folder not in with_images:
            raise DataError(
                f"`data`: the class folder '{folder}' of '{spec}' must hold images "
                f"({' '.join(sorted(IMAGE_SUFFIXES))}); it holds none. Fill or remove it."
            )
        if indices is not None and folder not in indices:
            raise DataError(
                f"`classes` must name every folder; '{folder}' is missing. Add it with its index, or remove the folder."
            )
    if indices is None:
        indices = {folder: index for index, folder in enumerate(folders)}
    files, labels = ImageFiles(root, names), [indices[name.split("/", 1)[0]] for name in names]
    return make_samples(_label_of("folder", spec), files.ids, labels, _names(indices), files)


def _listed(folder: str) -> list[str]:
    """List the names in a folder that are not hidden, sorted by their bytes."""
    with reading(folder, "Allow reading it, or remove it."):
        return sorted((name for name in os.listdir(folder) if name[0] != "."), key=os.fsencode)


def _walk(folder: str, inside: str = "", above: tuple[tuple[int, int], ...] = (), links: int = 0) -> Iterator[str]:
    """Yield the images in a folder and deeper, relative to it, each folder sorted by the bytes of its names."""
    if len(above) > _DEEPEST:
        raise DataError(f"`data` must have at most {_DEEPEST} folders in each other; '{inside[:60]}…' has more.")
    if links > _MOST_LINKS:  # folders that are linked in circles would be listed again and again under other names
        raise DataError(f"`data` must lead to each folder by at most {_MOST_LINKS} links; '{inside}' has more.")
    status = os.stat(folder)
    here = (status.st_dev, status.st_ino)
    if here in above:  # a link that leads back up is an endless loop
        return
    for name in _listed(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            yield from _walk(path, f"{inside}{name}/", (*above, here), links + os.path.islink(path))
        elif os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
            yield inside + name


def _table(spec: str, indices: dict[str, int] | None, index_of: Callable[[str], int] | None) -> Samples:
    with reading(spec, "Save it as CSV in UTF-8."):
        lines = csv.reader(io.StringIO(_read_text(spec), newline=""), skipinitialspace=True)
        header, first = next(lines, []), next(lines, [])
    if "path" in header:
        return _files(spec, indices)
    if (column := _text_column(header, first)) is not None:
        return _texts(spec, column, header, index_of if indices is None else _index_in(indices))
    return _files(spec, indices) if "label" not in header else _rows(spec, header, indices)


def _text_column(header: Sequence[str], first: Sequence[str]) -> str | None:
    """Return the column of texts: by its name, or the only one if it starts with several words."""
    named = [name for name in header if name.lower() in TEXT_NAMES]
    if named:
        return named[0]
    others = [k for k, name in enumerate(header) if name not in ("label", "id")]
    if len(others) != 1 or "label" not in header or len(first) != len(header):
        return None
    return header[others[0]] if " " in first[others[0]].strip() else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _index_in(indices: dict[str, int]) -> Callable[[str], int]:
    def index(name: str) -> int:
        if name not in indices:
            raise DataError(f"`classes` must name every label; {name!r} is missing. Add it with its index.")
        return indices[name]

    return index


def _texts(spec: str, column: str, header: Sequence[str], index_of: Callable[[str], int] | None) -> Samples:
    """Open a table of texts; without labels, a language model finds its own."""
    labelled = "label" in header
    lines = read_table(spec, (column, "label") if labelled else (column,), ("id",))
    cells = [row[1] for _, row in lines] if labelled else []
    labels: NDArray[Any] | None = None
    if labelled and all(re.fullmatch("[0-9]{1,15}", cell) for cell in cells):
        labels = np.array(cells, dtype=np.int64)
    elif labelled and all(map(_is_number, cells)):
        labels = np.array(cells, dtype=np.float64)
    elif labelled:
        if index_of is None:
            raise DataError(
                f"'{spec}' has labels that are names, such as '{cells[0]}'. Name them with `classes`, or use a model "
                "that knows its classes."
            )
        numbers = {cell: index_of(cell) for cell in dict.fromkeys(cells)}
        labels = np.array([numbers[cell] for cell in cells], dtype=np.int64)
    if not lines:
        raise DataError(f"'{spec}' must list at least one text; it lists none.")
    for line, row in lines:
        if not row[0]:
            raise DataError(f"'{spec}' must have a text in each line; line {line} has none. Leave it out.")
    ids = [row[-1] for _, row in lines] if "id" in header else None
    return from_texts([row[0] for _, row in lines], labels, ids=ids, name=_label_of("csv", spec))


def _rows(spec: str, header: Sequence[str], indices: dict[str, int] | None) -> Samples:
    """Open a table of numbers."""
    columns = tuple(name for name in header if name not in ("label", "id"))
    if "" in columns or len(set(header)) < len(header):
        raise DataError(f"'{spec}' must name each column, and each once. Write data frames with index=False.")
    lines = read_table(spec, (*columns, "label"), ("id",))
    if not lines or not columns:
        raise DataError(f"'{spec}' must have columns of numbers beside the label, and lines below them; it has none.")
    values = np.empty((len(lines), len(columns) + 1))
    for k, (line, cells) in enumerate(lines):
        texts = [*cells[:-2], cells[-2] if indices is None else str(indices.get(cells[-2], cells[-2]))]
        for column, (name, text) in enumerate(zip((*columns, "label"), texts, strict=True)):
            try:
                values[k, column] = float(text)
            except ValueError:
                remedy = "Name the classes with `classes`." if name == "label" else "A column of images is called path."
                raise DataError(
                    f"'{spec}' must hold numbers; line {line} has '{text}' in the column {name}. {remedy}"
                ) from None
    labels = values[:, -1]
    whole = indices is not None or all(re.fullmatch("-?[0-9]{1,15}", cells[-2]) for _, cells in lines)
    return from_arrays(
        values[:, :-1],
        labels.astype(np.int64) if whole else labels,
        ids=[cells[-1] for _, cells in lines] if "id" in header else None,
        classes=None if indices is None else _names(indices),
        name=_label_of("csv", spec),
        feature_names=columns,
    )


def _files(spec: str, indices: dict[str, int] | None) -> Samples:
    """Open a table of images and their labels."""
    rows = read_table(spec, ("path", "label"))
    by_name = indices is not None and any(label in indices for _, (_, label) in rows)
    labels: dict[str, int] = {}
    for line, (path, label) in rows:
        name = os.path.normpath(path).replace(os.sep, "/")
        if not path:
            raise DataError(f"'{spec}' must give the path of an image in each line; line {line} has none. Add it.")
        if name in labels:
            raise DataError(f"'{spec}' must list each path once; line {line} repeats '{name}'. Remove one of the two.")
        index = int(label) if re.fullmatch("[0-9]{1,19}", label) else -1
        if by_name and indices is not None:
            index = indices.get(label, -1)
        if not 0 <= index <= LARGEST_LABEL:
            raise DataError(
                f"'{spec}' must give as label {'a name of `classes`' if by_name else 'an index from 0'}; line {line} "
                f"has '{label}'. Correct it{'' if by_name else ', or pass `classes` where labels are names'}."
            )
        labels[name] = index
    if not labels:
        raise DataError(f"'{spec}' must list at least one image; it lists none. Add rows of path,label.")
    files = ImageFiles(os.path.dirname(os.path.abspath(spec)), list(labels), _short_ids(list(labels)))
    names = None if indices is None else _names(indices)
    return make_samples(_label_of("csv", spec), files.ids, list(labels.values()), names, files)


def _short_ids(paths: Sequence[str]) -> list[str]:
    """Name absolute paths relative to the folder that holds all of them: ids are short and the same elsewhere."""
    absolute = [os.path.dirname(path) for path in paths if os.path.isabs(path)]
    root = os.path.commonpath(absolute) if absolute else ""
    return [printable(os.path.relpath(path, root) if os.path.isabs(path) else path) for path in paths]


def read_table(path: str, columns: tuple[str, ...], optional: tuple[str, ...] = ()) -> list[tuple[int, list[str]]]:
    """Read the number and the named columns of each line of a CSV file; missing optional columns are empty."""
    with reading(path, "Save it as CSV in UTF-8."):
        rows = csv.DictReader(io.StringIO(_read_text(path), newline=""), strict=True, skipinitialspace=True)
        header = list(rows.fieldnames or ())
        for column in columns:
            if column not in header:
                raise DataError(
                    f"'{path}' must begin with the line {','.join(columns)}; the column {column} is missing. "
                    f"Its columns are: {', '.join(header) or 'none'}."
                )
        table = []
        for row in rows:
            if None in row or None in row.values():
                raise DataError(
                    f"'{path}' must have {len(header)} columns in each line; line {rows.line_num} has not. "
                    "Put values that contain a comma in quotation marks."
                )
            table.append((rows.line_num, [row.get(column, "").strip() for column in (*columns, *optional)]))
    return table


def _read_text(path: str) -> str:
    check_regular(path)
    return Path(path).read_text(encoding="utf-8-sig")


def _read_classes(path: str) -> dict[str, int]:
    """Read the index of each class name."""
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
            rows = [row for _, row in read_table(path, ("name", "index"))]
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
                        f"'{path}' must give each class one name and one index; '{name}' or its index {index} occurs "
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
    with reading(spec, remedy):
        check_unpacked_size(spec)
    with reading(spec, remedy), open(spec, "rb") as file, NpzFile(file, allow_pickle=False) as archive:
        pair = next((pair for pair in pairs if set(pair) <= set(archive.files)), None)
        if pair is None:
            raise DataError(
                f"'{spec}' must hold the arrays {', or '.join(' and '.join(pair) for pair in pairs)}; it holds "
                f"{', '.join(archive.files) or 'none'}. Rename them."
            )
        inputs, labels = (archive[key] for key in pair)
        ids, classes, feature_names = (
            archive[key].astype(str).ravel().tolist() if key in archive.files else None
            for key in ("ids", "classes", "feature_names")
        )
    try:
        return from_arrays(
            inputs, labels, ids=ids, classes=classes, name=_label_of("npz", spec), feature_names=feature_names
        )
    except DataError as error:
        raise DataError(f"'{spec}': {error}") from None


def _mnist() -> Samples:
    # The model "mnist-cnn" is trained on the other four fifths.
    images, labels = mnist_digits(held_out=True)
    return from_arrays(images, labels, classes=[str(digit) for digit in range(10)], name="mnist")


def cifar_images(spec: str, *, held_out: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]:
    """Load images (N, 32, 32, 3), labels and class names of the published binary files, for testing or training.

    Args:
        spec: "cifar10:DIR", or "cifar100:DIR" for its hundred fine classes.
        held_out: load the images for testing; otherwise those for training.
    """
    kind, folder = spec.split(":", 1)
    files = _CIFAR[kind]
    remedy = f"Unpack {files.archive} there."
    parts = []
    for name in files.test if held_out else files.train:
        with reading(path := os.path.join(folder, name), remedy):
            check_regular(path)
            parts.append(np.fromfile(path, np.uint8).reshape(-1, files.labels + 3 * 32 * 32))
    with reading(names := os.path.join(folder, files.classes), remedy):
        classes = _read_text(names).split()
    records = np.concatenate(parts)
    images = records[:, files.labels :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, files.labels - 1].astype(np.int64), classes


class _CifarFiles(NamedTuple):
    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    classes: str
    labels: int  # bytes before each image; the last of them is the class


_CIFAR = {
    "cifar10": _CifarFiles(
        "cifar-10-binary.tar.gz",
        tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
        ("test_batch.bin",),
        "batches.meta.txt",
        1,
    ),
    "cifar100": _CifarFiles("cifar-100-binary.tar.gz", ("train.bin",), ("test.bin",), "fine_label_names.txt", 2),
}


def _imagenet20() -> Samples:
    package = importlib.util.find_spec("foolbox")
    if package is None or not package.submodule_search_locations:
        raise DataError(f"imagenet20 comes with a package that is not installed. Run: {install_hint('demo')}")
    folder = os.path.join(package.submodule_search_locations[0], "data")
    names = [name for name in _listed(folder) if name.startswith("imagenet_")]
    files = ImageFiles(folder, names, [os.path.splitext(name)[0] for name in names])
    labels = [int(sample.rsplit("_", 1)[1]) for sample in files.ids]
    return make_samples("imagenet20", files.ids, labels, None, files)


DATA_SETS: dict[str, Callable[[], Samples]] = {
    "mnist": _mnist,
    "imagenet20": _imagenet20,
}
"""Data sets that open by name alone."""
