"""Watermark data sets (Zhou et al. 2022): images whose new labels can be read from a watermark and nothing else.

Labels are drawn at random, and only the watermark shows the label. The effective region, which is the position of the
watermark, is therefore known. On a blank canvas the set is purely synthetic. Everything random is drawn from (seed,
sample id).

Shapes: N images of H × W pixels with C channels, uint8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.probing.maps import check_ids
from twinlens.support.randomness import stream

Images = NDArray[np.uint8]

STRIPES = 7
"""Digits of the binary code, and regions of equal height."""

# Three columns and five rows for each digit, one digit of this number in base 8 for each row.
_GLYPHS = (0o75557, 0o26227, 0o71747, 0o71717, 0o55711, 0o74717, 0o74757, 0o71122, 0o75757, 0o75717)
_GLYPH_HEIGHT = 5
_SQUARE = 60 / 224  # side of the square that holds a number, as a share of the image's shorter side


@dataclass(frozen=True, kw_only=True, eq=False)
class Watermarked:
    """Images with watermarks."""

    images: Images
    """(N, H, W, C) the images with watermarks."""

    labels: NDArray[np.int64]
    """(N,) the labels that the watermarks show."""

    region: NDArray[np.bool_]
    """(N, H, W) the effective region: pixels of the watermark."""

    ids: tuple[str, ...]
    """One name per image."""


def number_watermarks(
    images: Images, *, classes: int = 100, ids: Sequence[str | int] | None = None, seed: int = 0
) -> Watermarked:
    """Put a black square with the number of the class, in white, at a random position of every image.

    Args:
        images: (N, H, W, C) uint8.
        classes: number of classes.
        ids: one name per image; labels and positions depend on it and the seed.
        seed: random seed.

    Example:
        >>> marked = number_watermarks(blank_canvas(2, 32), classes=10)
        >>> marked.images.shape, marked.region.sum(axis=(1, 2)).tolist(), marked.labels.tolist()
        ((2, 32, 32, 3), [81, 81], [0, 6])
    """
    names, labels = _relabelled(images, classes, ids, seed)
    height, width = images.shape[1:3]
    side = round(_SQUARE * min(height, width))
    signs = [_number_sign(label, side, classes) for label in range(classes)]
    marked, region = images.copy(), np.zeros(images.shape[:3], dtype=bool)
    for k, name in enumerate(names):
        generator = np.random.default_rng(stream(seed, name, "watermark"))
        y, x = generator.integers(height - side + 1), generator.integers(width - side + 1)
        inside = k, slice(y, y + side), slice(x, x + side)
        marked[inside] = signs[labels[k]][:, :, None]
        region[inside] = True
    return Watermarked(images=marked, labels=labels, region=region, ids=names)


def stripe_watermarks(
    images: Images, *, classes: int = 100, ids: Sequence[str | int] | None = None, seed: int = 0
) -> Watermarked:
    """Write the class of every image into it as a binary number of seven digits, with a white stripe for each 1.

    The image is divided into seven regions of equal height, the lowest digit on top: class 40 has its stripes in the
    regions 4 and 6, as in the paper. Class 0 has no stripe, and therefore no effective region.

    Args:
        images: (N, H, W, C) uint8.
        classes: number of classes, at most 128.
        ids: one name per image; labels depend on it and the seed.
        seed: random seed.

    Example:
        >>> marked = stripe_watermarks(blank_canvas(1, 14), classes=100)
        >>> marked.labels[0], f"{marked.labels[0]:07b}"
        (np.int64(4), '0000100')
        >>> marked.region[0, ::2, 0].astype(int)
        array([0, 0, 1, 0, 0, 0, 0])
    """
    names, labels = _relabelled(images, classes, ids, seed)
    height = images.shape[1]
    if classes > 2**STRIPES or height < STRIPES:
        raise ValueError(
            f"`classes` must be at most {2**STRIPES} and `images` at least {STRIPES} pixels high, for {STRIPES} "
            f"stripes; got {classes} classes and {height} pixels."
        )
    digits = (labels[:, None] >> np.arange(STRIPES)) & 1
    # The regions of tensor_split and array_split, which the method "pooling" averages over.
    stripe_of_row = np.repeat(np.arange(STRIPES), [len(part) for part in np.array_split(np.arange(height), STRIPES)])
    region = np.broadcast_to((digits[:, stripe_of_row] == 1)[:, :, None], images.shape[:3]).copy()
    marked = np.where(region[..., None], np.uint8(255), images)
    return Watermarked(images=marked, labels=labels, region=region, ids=names)


def blank_canvas(count: int, size: int, *, channels: int = 3) -> Images:
    """Return images of a single grey, on which both black and white watermarks show.

    Example:
        >>> blank_canvas(2, 32).shape
        (2, 32, 32, 3)
    """
    return np.full((count, size, size, channels), 128, dtype=np.uint8)


def _number_sign(label: int, side: int, classes: int) -> Images:
    """Draw a number (side, side), white on black, as large as it fits with a margin of a pixel."""
    text = str(label)
    columns = 4 * len(str(classes - 1)) - 1
    scale = min((side - 2) // columns, (side - 2) // _GLYPH_HEIGHT)
    if scale < 1:
        raise ValueError(
            f"`images` must leave room for numbers up to {classes - 1}, in a square of "
            f"{max(columns, _GLYPH_HEIGHT) + 2} pixels; it has {side}. Use larger images or fewer classes."
        )
    rows = np.zeros((_GLYPH_HEIGHT, 4 * len(text) - 1), dtype=np.uint8)
    for k, digit in enumerate(text):
        for row in range(_GLYPH_HEIGHT):
            bits = (_GLYPHS[int(digit)] >> 3 * (_GLYPH_HEIGHT - 1 - row)) & 7
            rows[row, 4 * k : 4 * k + 3] = [(bits >> 2) & 1, (bits >> 1) & 1, bits & 1]
    glyphs = 255 * np.kron(rows, np.ones((scale, scale), dtype=np.uint8))
    sign = np.zeros((side, side), dtype=np.uint8)
    top, left = (side - glyphs.shape[0]) // 2, (side - glyphs.shape[1]) // 2
    sign[top : top + glyphs.shape[0], left : left + glyphs.shape[1]] = glyphs
    return sign


def _relabelled(
    images: Images, classes: int, ids: Sequence[str | int] | None, seed: int
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Check the images and draw a label for each."""
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
        got = f"{images.dtype} of shape {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
        raise ValueError(
            f"`images` must be uint8 (samples, height, width, channels), not empty; got {got}. Give grey images a "
            "last axis of 1."
        )
    if classes < 2:
        raise ValueError(f"`classes` must be at least 2; got {classes}.")
    names = check_ids(ids, len(images))
    return names, draw_labels(names, classes, seed)


def draw_labels(ids: Sequence[str], classes: int, seed: int) -> NDArray[np.int64]:
    """Draw the label of each image from its id and the seed.

    Example:
        >>> draw_labels(["0", "1"], 10, seed=0)
        array([0, 6])
    """
    draws = [np.random.default_rng(stream(seed, name, "label")).integers(classes) for name in ids]
    return np.array(draws, dtype=np.int64)
