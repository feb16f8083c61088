"""Bounding boxes or masks of the objects in images, from a CSV file, Pascal VOC's XML or images, and as regions.

Shapes: N samples; inputs are H × W.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.data.images import opened_image, reading
from twinlens.data.sources import IMAGE_SUFFIXES, read_table
from twinlens.errors import DataError
from twinlens.models.preprocessing import Preprocessing
from twinlens.support.files import check_regular

_EDGES = ("xmin", "ymin", "xmax", "ymax")
_LARGEST_XML = 2**20  # bytes; an annotation has a few hundred
_VOID = 255  # the colour of pixels of no class in Pascal VOC's masks


@dataclass(frozen=True, kw_only=True)
class Box:
    """One box in one image."""

    image: str
    """The id of a sample, or its last parts, with or without extension."""
    edges: tuple[float, float, float, float]
    """Left, top, right and bottom, in pixels from the upper left corner of the original image."""
    label: str | None
    """Class of the object, where it is known."""
    origin: str
    """File and line, or number of the object, for errors."""
    mask: Path | None = None
    """An image as large as the original, in which the object is not black; the box is then all of it."""


def read_boxes(path: str) -> list[Box]:
    """Read bounding boxes.

    Args:
        path: FILE.csv with the columns image (or id), xmin, ymin, xmax, ymax and optionally label, edges counted from
            0 at the upper left corner (0, 0, width, height is the whole image); or a folder with one file per image and
            with its name: Pascal VOC's XML, pixels counted from 1 and the last included, or masks, images in which the
            object is not black. In masks with a palette, colour 255 is no object, as in Pascal VOC's.
    """
    if os.path.isdir(path):
        files = [(file, file.relative_to(path).with_suffix("").as_posix()) for file in sorted(Path(path).rglob("*"))]
        boxes = [box for file, image in files if file.suffix.lower() == ".xml" for box in _read_voc(file, image)]
        # Next to XML files, images are those that it describes.
        boxes = boxes or [_open_mask(file, image) for file, image in files if file.suffix.lower() in IMAGE_SUFFIXES]
    elif path.lower().endswith(".csv"):
        boxes = _read_csv(path)
    else:
        raise DataError(
            f"`boxes` must be a .csv file, or a folder of Pascal VOC XML files or of masks; '{path}' is neither."
        )
    if not boxes:
        raise DataError(f"`boxes` must hold at least one box; '{path}' holds none.")
    return boxes


def _read_csv(path: str) -> list[Box]:
    boxes = []
    for line, (*edges, image, name, label) in read_table(path, _EDGES, ("image", "id", "label")):
        origin = f"'{path}', line {line}"
        if not (image or name):
            raise DataError(f"{origin}: a box needs the name of its image, in a column image or id. Fill it in.")
        boxes.append(Box(image=image or name, edges=_edges(edges, origin), label=label or None, origin=origin))
    return boxes


def _edges(texts: Sequence[str], origin: str, *, from_one: bool = False) -> tuple[float, float, float, float]:
    try:
        left, top, right, bottom = map(float, texts)
    except ValueError:
        left = top = right = bottom = math.nan
    if from_one:
        left, top = left - 1, top - 1
    if not (math.isfinite(left + top + right + bottom) and left < right and top < bottom):
        raise DataError(
            f"{origin}: a box needs numbers xmin < xmax and ymin < ymax; got {', '.join(texts)}. Correct it."
        )
    return left, top, right, bottom


def _read_voc(file: Path, image: str) -> list[Box]:
    with reading(file, "`boxes` must be XML as Pascal VOC's; remove other files."):
        if file.stat().st_size > _LARGEST_XML:
            raise ValueError(f"it has more than {_LARGEST_XML} bytes")
        check_regular(file)
        parser = ElementTree.XMLParser(target=_Builder())
        objects = ElementTree.fromstring(file.read_bytes(), parser).findall("object")
    boxes = []
    for number, one in enumerate(objects, start=1):
        origin = f"'{file}', object {number}"
        edges = [(one.findtext(f"bndbox/{name}") or "nothing").strip() for name in _EDGES]
        label = (one.findtext("name") or "").strip() or None
        boxes.append(Box(image=image, edges=_edges(edges, origin, from_one=True), label=label, origin=origin))
    return boxes


def _open_mask(file: Path, image: str) -> Box:
    with opened_image(str(file), str(file)) as mask:
        width, height = mask.size
    return Box(image=image, edges=(0.0, 0.0, float(width), float(height)), label=None, origin=f"'{file}'", mask=file)


def _read_mask(file: Path) -> NDArray[np.bool_]:
    """Read where the object is in an image (H, W)."""
    with opened_image(str(file), str(file)) as mask:
        palette = mask.mode == "P"
        values = np.array(mask if palette else mask.convert("L"))
    inside: NDArray[np.bool_] = (values > 0) & ~(palette & (values == _VOID))
    return inside


class _Builder(ElementTree.TreeBuilder):
    def doctype(self, *_: object) -> None:
        # Entities, which a document type can declare, may expand to gigabytes or name other files.
        raise ValueError("it declares a document type, which annotations do not need and attacks do")


def boxes_of_samples(boxes: Sequence[Box], ids: Sequence[str]) -> dict[int, list[Box]]:
    """Find the sample of each box, by position; boxes of images that are not among the samples are left out.

    An image is that of a sample if one path ends in the other: "dog/1", "1.png" and "1" are "dog/1.png", and "cat/1" is
    not.
    """
    by_name: dict[str, list[int]] = {}
    for position, name in enumerate(ids):
        for last in {PurePosixPath(name).name, PurePosixPath(name).stem}:
            by_name.setdefault(last, []).append(position)
    by_sample: dict[int, list[Box]] = {}
    for box in boxes:
        folders = PurePosixPath(box.image).parts[:-1]
        near = by_name.get(PurePosixPath(box.image).name, [])
        matches = [k for k in near if _ends_alike(folders, PurePosixPath(ids[k]).parts[:-1])]
        matches = [k for k in matches if ids[k] == box.image] or matches
        if len(matches) > 1:
            raise DataError(
                f"{box.origin}: {box.image!r} may be {ids[matches[0]]!r} or {ids[matches[1]]!r}. Name its folder, too."
            )
        for position in matches:
            by_sample.setdefault(position, []).append(box)
    if not by_sample:
        raise DataError(
            f"`boxes` must name images of the run, such as {ids[0]!r}; none of {len(boxes)} does, the first is "
            f"{boxes[0].image!r} ({boxes[0].origin})."
        )
    return by_sample


def _ends_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    return all(a == b for a, b in zip(reversed(one), reversed(other), strict=False))


def draw_regions(
    boxes: Mapping[int, Sequence[Box]],
    sizes: Sequence[tuple[int, int]],
    preprocessing: Preprocessing,
    spatial: tuple[int, int],
) -> Tensor:
    """Draw the boxes or masks of each sample as the model sees them: (N, H, W), True for pixels whose centre is in one.

    `sizes` are width and height of the original images, `spatial` height and width of an input.
    """
    region = np.zeros((len(sizes), *spatial), dtype=bool)
    y, x = (axis + 0.5 for axis in np.ogrid[: spatial[0], : spatial[1]])
    for position, own in boxes.items():
        width, height = sizes[position]
        for box in own:
            left, top, right, bottom = box.edges
            if box.mask is not None and (right, bottom) != (width, height):
                raise DataError(
                    f"{box.origin}: a mask must be as large as its image of {width} × {height} pixels; it has "
                    f"{right:g} × {bottom:g}."
                )
            if min(left, top) < -1 or right > width + 1 or bottom > height + 1:  # some count from 0, others from 1
                raise DataError(
                    f"{box.origin}: the box {left:g}, {top:g} to {right:g}, {bottom:g} is not inside of its image of "
                    f"{width} × {height} pixels. Give boxes in pixels of the original image."
                )
            (x1, y1), (x2, y2) = preprocessing.moved(np.array([[left, top], [right, bottom]]), (width, height))
            inside = (y1 <= y) & (y < y2) & (x1 <= x) & (x < x2)
            if box.mask is not None:  # the pixel of the original in which the centre of each pixel of the input lies
                row, column = (y - y1) / (y2 - y1) * height, (x - x1) / (x2 - x1) * width
                mask = _read_mask(box.mask)
                inside &= mask[row.astype(int).clip(0, height - 1), column.astype(int).clip(0, width - 1)]
            region[position] |= inside
    return torch.from_numpy(region)
