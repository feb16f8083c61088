"""Watermark data sets (Zhou et al. 2022): images whose new labels can be read from a watermark and nothing else.

Labels are drawn at random, and only the watermark shows the label: the region that a map should mark is known.
Everything random is drawn from (seed, sample id).

Shapes: N images of H × W pixels with C channels, uint8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

    images: Images  # (N, H, W, C)
    labels: NDArray[np.int64]  # (N,) shown by the watermarks
    region: NDArray[np.bool_]  # (N, H, W) pixels of the watermark
    ids: tuple[str, ...]


def number_watermarks(images: Images, *, classes: int, ids: Sequence[str], seed: int) -> Watermarked:
    """Put a black square with the number of the class, in white, at a random position of every image."""
    labels = draw_labels(ids, classes, seed)
    height, width = images.shape[1:3]
    side = round(_SQUARE * min(height, width))
    signs = [_number_sign(label, side, classes) for label in range(classes)]
    marked, region = images.copy(), np.zeros(images.shape[:3], dtype=bool)
    for k, name in enumerate(ids):
        generator = np.random.default_rng(stream(seed, name, "watermark"))
        y, x = generator.integers(height - side + 1), generator.integers(width - side + 1)
        inside = k, slice(y, y + side), slice(x, x + side)
        marked[inside] = signs[labels[k]][:, :, None]
        region[inside] = True
    return Watermarked(images=marked, labels=labels, region=region, ids=tuple(ids))


def stripe_watermarks(images: Images, *, classes: int, ids: Sequence[str], seed: int) -> Watermarked:
    """Write the class of every image into it as a binary number of seven digits, with a white stripe for each 1.

    The image is divided into seven regions of equal height, the lowest digit on top: class 40 has its stripes in the
    regions 4 and 6, as in the paper. Class 0 has no stripe, and therefore no effective region.
    """
    labels, height = draw_labels(ids, classes, seed), images.shape[1]
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
    return Watermarked(images=marked, labels=labels, region=region, ids=tuple(ids))


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


def draw_labels(ids: Sequence[str], classes: int, seed: int) -> NDArray[np.int64]:
    """Draw the label of each image from its id and the seed."""
    if classes < 2:
        raise ValueError(f"`classes` must be at least 2; got {classes}.")
    draws = [np.random.default_rng(stream(seed, name, "label")).integers(classes) for name in ids]
    return np.array(draws, dtype=np.int64)
