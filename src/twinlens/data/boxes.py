"""Bounding boxes: where in an image its object is, from a CSV file or Pascal VOC's XML, and as a region of the input.

Shapes: N samples; inputs are H × W.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from xml.parsers import expat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.data.images import reading
from twinlens.data.sources import read_table
from twinlens.errors import DataError
from twinlens.models.preprocessing import Preprocessing

_EDGES = ("xmin", "ymin", "xmax", "ymax")
_LARGEST_XML = 2**20  # bytes; an annotation has a few hundred


@dataclass(frozen=True, kw_only=True)
class Box:
    """One box in one image."""

    image: str
    """The image: the id of a sample, or its last parts, with or without extension."""

    edges: tuple[float, float, float, float]
    """Left, top, right and bottom, in pixels from the upper left corner of the original image."""

    label: str | None
    """What is in it, where that is known."""

    place: str
    """File and line that it comes from, for errors."""


def read_boxes(path: str) -> list[Box]:
    r"""Read bounding boxes.

    Args:
        path: FILE.csv with the columns image (or id), xmin, ymin, xmax, ymax and perhaps label, the edges counted from
            0 at the upper left corner, so that 0, 0, width, height is the whole image; or a folder with Pascal VOC's
            XML, a file per image with its name, pixels counted from 1 and the last included.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "boxes.csv").write_text("image,xmin,ymin,xmax,ymax\ndog/1.png,0,0,8,4\n")
        ...     read_boxes(f"{folder}/boxes.csv")[0].edges
        (0.0, 0.0, 8.0, 4.0)
    """
    if os.path.isdir(path):
        files = sorted(file for file in Path(path).rglob("*") if file.suffix.lower() == ".xml")
        boxes = [box for file in files for box in _read_voc(file, file.relative_to(path).with_suffix("").as_posix())]
    elif path.lower().endswith(".csv"):
        boxes = _read_csv(path)
    else:
        raise DataError(f"`boxes` must be a .csv file or a folder of Pascal VOC XML files; '{path}' is neither.")
    if not boxes:
        raise DataError(f"`boxes` must hold at least one box; '{path}' holds none.")
    return boxes


def _read_csv(path: str) -> list[Box]:
    boxes = []
    for line, (*edges, image, name, label) in read_table(path, _EDGES, ("image", "id", "label")):
        place = f"'{path}', line {line}"
        if not (image or name):
            raise DataError(f"{place}: a box needs the name of its image, in a column image or id. Fill it in.")
        boxes.append(Box(image=image or name, edges=_edges(edges, place), label=label or None, place=place))
    return boxes


def _edges(texts: Sequence[str], place: str, *, from_one: bool = False) -> tuple[float, float, float, float]:
    try:
        left, top, right, bottom = map(float, texts)
    except ValueError:
        left = top = right = bottom = math.nan
    if from_one:
        left, top = left - 1, top - 1
    if not (math.isfinite(left + top + right + bottom) and left < right and top < bottom):
        raise DataError(
            f"{place}: a box needs numbers xmin < xmax and ymin < ymax; got {', '.join(texts)}. Correct it."
        )
    return left, top, right, bottom


class _Annotation:
    """What a Pascal VOC file says of its objects, gathered while it is parsed."""

    def __init__(self) -> None:
        self.objects: list[tuple[int, dict[str, str]]] = []
        self._path: list[str] = []
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = lambda _: self._path.pop()
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._refuse

    def parse(self, content: bytes) -> None:
        self._parser.Parse(content, True)

    def _refuse(self, *_: object) -> None:
        # Entities, which a document type can declare, may expand to gigabytes or name other files.
        raise ValueError("it declares a document type, which annotations do not need and attacks do")

    def _start(self, tag: str, _: object) -> None:
        self._path.append(tag)
        if self._path[1:] == ["object"]:
            self.objects.append((self._parser.CurrentLineNumber, {}))

    def _text(self, text: str) -> None:
        # Parts of an object, such as a head, have boxes of their own, deeper in the tree.
        if self._path[1:] == ["object", "name"] or (self._path[1:3] == ["object", "bndbox"] and len(self._path) == 4):
            found = self.objects[-1][1]
            found[self._path[-1]] = found.get(self._path[-1], "") + text.strip()


def _read_voc(file: Path, image: str) -> list[Box]:
    annotation = _Annotation()
    with reading(file, "`boxes` must be XML as Pascal VOC's; remove what is not."):
        if file.stat().st_size > _LARGEST_XML:
            raise ValueError(f"it has more than {_LARGEST_XML} bytes")
        annotation.parse(file.read_bytes())
    boxes = []
    for line, found in annotation.objects:
        place = f"'{file}', line {line}"
        edges = _edges([found.get(name, "nothing") for name in _EDGES], place, from_one=True)
        boxes.append(Box(image=image, edges=edges, label=found.get("name") or None, place=place))
    return boxes


def boxes_of_samples(boxes: Sequence[Box], ids: Sequence[str]) -> dict[int, list[Box]]:
    """Find the sample of each box; boxes of images that are not among the samples are left out.

    An image is that of a sample where the parts of one's path end in those of the other's: "dog/1", "1.png" and "1" are
    "dog/1.png", and "cat/1" is not.

    Example:
        >>> box = Box(image="1", edges=(0, 0, 1, 1), label=None, place="line 1")
        >>> boxes_of_samples([box], ["cat/2.png", "dog/1.png"])
        {1: [Box(image='1', edges=(0, 0, 1, 1), label=None, place='line 1')]}
    """
    by_name: dict[str, list[int]] = {}
    for place, name in enumerate(ids):
        for last in {PurePosixPath(name).name, PurePosixPath(name).stem}:
            by_name.setdefault(last, []).append(place)
    found: dict[int, list[Box]] = {}
    for box in boxes:
        folders = PurePosixPath(box.image).parts[:-1]
        near = by_name.get(PurePosixPath(box.image).name, [])
        meant = [k for k in near if _ends_alike(folders, PurePosixPath(ids[k]).parts[:-1])]
        meant = [k for k in meant if ids[k] == box.image] or meant
        if len(meant) > 1:
            raise DataError(
                f"{box.place}: {box.image!r} may be {ids[meant[0]]!r} or {ids[meant[1]]!r}. Name its folder, too."
            )
        for place in meant:
            found.setdefault(place, []).append(box)
    if not found:
        raise DataError(
            f"`boxes` must name images of the run, such as {ids[0]!r}; none of {len(boxes)} does, the first is "
            f"{boxes[0].image!r} ({boxes[0].place})."
        )
    return found


def _ends_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    count = min(len(one), len(other))
    return tuple(one[len(one) - count :]) == tuple(other[len(other) - count :])


def draw_regions(
    boxes: Mapping[int, Sequence[Box]],
    sizes: Sequence[tuple[int, int]],
    preprocessing: Preprocessing,
    spatial: tuple[int, int],
) -> Tensor:
    """Draw the boxes of each sample as the model sees them: (N, H, W), True for pixels whose centre is in one.

    Args:
        boxes: by the place of their sample.
        sizes: width and height of each sample's original image.
        preprocessing: resizes and crops boxes as it does images.
        spatial: height and width of an input.
    """
    region = np.zeros((len(sizes), *spatial), dtype=bool)
    rows, columns = (np.arange(length, dtype=np.float64) + 0.5 for length in spatial)
    for place, own in boxes.items():
        width, height = sizes[place]
        for box in own:
            left, top, right, bottom = box.edges
            if min(left, top) < -1 or right > width + 1 or bottom > height + 1:  # some count from 0, others from 1
                raise DataError(
                    f"{box.place}: the box {left:g}, {top:g} to {right:g}, {bottom:g} is not inside of its image of "
                    f"{width} × {height} pixels. Give boxes in pixels of the original image."
                )
            (x1, y1), (x2, y2) = preprocessing.moved(np.array([[left, top], [right, bottom]]), (width, height))
            region[place] |= _between(rows, y1, y2)[:, None] & _between(columns, x1, x2)
    return torch.from_numpy(region)


def _between(centres: NDArray[np.float64], low: float, high: float) -> NDArray[np.bool_]:
    return (low <= centres) & (centres < high)
