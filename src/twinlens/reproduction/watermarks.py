"""Watermark data sets (Zhou et al. 2022): images whose new labels can be read from a watermark and from nothing else.

Labels are drawn anew, so that what an image shows says nothing about its class, and a watermark is put in that does.
Where the watermark is, the effective region, is therefore known. Images may be any; on a blank canvas the set is purely
synthetic. Everything random is drawn from (seed, sample id).

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
_TOGETHER = 200  # pictures that are drawn at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class Watermarked:
    """Images with watermarks."""

    images: Images
    """(N, H, W, C) the images, watermarks in them."""

    labels: NDArray[np.int64]
    """(N,) the labels that the watermarks tell."""

    region: NDArray[np.bool_]
    """(N, H, W) the effective region: where pixels belong to the watermark."""

    ids: tuple[str, ...]
    """One name per image."""


def number_watermarks(
    images: Images,
    *,
    classes: int = 100,
    size: float = 60 / 224,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
) -> Watermarked:
    """Put a black square with the number of the class, in white, at a random place of every image.

    Args:
        images: (N, H, W, C) uint8.
        classes: number of classes.
        size: side of the square as a share of the image's shorter side; 60 of 224 pixels in the paper.
        ids: one name per image, from which labels and places are drawn.
        seed: the other half of what they are drawn from.

    Example:
        >>> marked = number_watermarks(blank_canvas(2, 32), classes=10)
        >>> marked.images.shape, marked.region.sum(axis=(1, 2)).tolist(), marked.labels.tolist()
        ((2, 32, 32, 3), [81, 81], [0, 6])
    """
    names, labels = _relabelled(images, classes, ids, seed)
    height, width = images.shape[1:3]
    side = round(size * min(height, width)) if 0 < size <= 1 else 0
    signs = [_number_sign(label, side, classes) for label in range(classes)]
    marked, region = images.copy(), np.zeros(images.shape[:3], dtype=bool)
    for k, name in enumerate(names):
        place = np.random.default_rng(stream(seed, name, "watermark"))
        y, x = place.integers(height - side + 1), place.integers(width - side + 1)
        inside = k, slice(y, y + side), slice(x, x + side)
        marked[inside] = signs[labels[k]][:, :, None]
        region[inside] = True
    return Watermarked(images=marked, labels=labels, region=region, ids=names)


def stripe_watermarks(
    images: Images, *, classes: int = 100, ids: Sequence[str | int] | None = None, seed: int = 0
) -> Watermarked:
    """Write the class of every image into it as a binary number of seven digits, a white stripe for each 1.

    The image is divided into seven regions of equal height, the lowest digit on top: class 40 has its stripes in the
    regions 4 and 6, as in the paper. Class 0 has no stripe, and therefore no effective region.

    Args:
        images: (N, H, W, C) uint8.
        classes: number of classes, at most 128.
        ids: one name per image, from which labels are drawn.
        seed: the other half of what they are drawn from.

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
    # Regions as tensor_split and array_split make them, and so as the method "pooling" sees them.
    stripe_of_row = np.repeat(np.arange(STRIPES), [len(part) for part in np.array_split(np.arange(height), STRIPES)])
    region = np.broadcast_to((digits[:, stripe_of_row] == 1)[:, :, None], images.shape[:3]).copy()
    marked = np.where(region[..., None], np.uint8(255), images)
    return Watermarked(images=marked, labels=labels, region=region, ids=names)


def blank_canvas(count: int, size: int, *, channels: int = 3, grey: int = 128) -> Images:
    """Return images of a single grey, on which both black and white watermarks show.

    Example:
        >>> blank_canvas(2, 32).shape
        (2, 32, 32, 3)
    """
    return np.full((count, size, size, channels), grey, dtype=np.uint8)


def drawn_images(count: int, size: int, *, seed: int = 0, leaves: int = 24) -> Images:
    """Draw colour images with the statistics of natural ones, (N, size, size, 3): "dead leaves" with a fine texture.

    Ellipses of all sizes cover each other, as things in the world do (Lee et al. 2001).

    Args:
        count: number of images.
        size: pixels of each side.
        seed: seed; each image is drawn from it and its number.
        leaves: ellipses per image.

    Example:
        >>> drawn_images(2, 32).std(axis=(1, 2, 3)) > 20
        array([ True,  True])
    """
    if count < 1 or size < 8 or leaves < 1:
        raise ValueError(
            f"`count` and `leaves` must be at least 1 and `size` at least 8; got {count}, {leaves} and {size}."
        )
    texture = _textures(size, 16, seed)
    images = np.empty((count, size, size, 3), dtype=np.uint8)
    for start in range(0, count, _TOGETHER):
        numbers = range(start, min(start + _TOGETHER, count))
        draws = [np.random.default_rng(stream(seed, "drawn image", k)) for k in numbers]
        images[start : start + _TOGETHER] = _dead_leaves(draws, size, leaves, texture)
    return images


def _dead_leaves(
    draws: Sequence[np.random.Generator], size: int, leaves: int, texture: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Draw one picture (size, size, 3) from each generator."""
    # The last leaf is the ground that the others lie on.
    even = np.stack([draw.random((leaves + 1, 5), dtype=np.float32) for draw in draws])
    bell = np.stack([draw.standard_normal((leaves + 1, 4), dtype=np.float32) for draw in draws])
    light, chosen = bell[:, -1, :2], (even[:, -1, 0] * len(texture)).astype(int)
    # Colours of one picture are akin: the leaves stray from its tone, in brightness more than in hue.
    tone = 128 + 40 * bell[:, :1, 3:] + 25 * bell[:, 1:2, :3]
    colour = tone + 18 * bell[..., :3] + 45 * bell[..., 3:]
    # Radii by a power law look alike at every scale; large leaves first, or they would hide the rest.
    radius = 0.06 / (0.12 + 0.88 * np.sort(even[:, :leaves, 0], axis=1))
    x, y = np.meshgrid(*[(np.arange(size, dtype=np.float32) + 0.5) / size] * 2)
    pictures = np.broadcast_to(colour[:, -1, None, None], (len(draws), size, size, 3)).copy()
    for k in range(leaves):
        across, down, turn, length = even[:, k, 1:, None, None].swapaxes(0, 1)
        cosine, sine = np.cos(np.pi * turn), np.sin(np.pi * turn)
        u = (x - across) * cosine + (y - down) * sine
        v = (y - down) * cosine - (x - across) * sine
        inside = (u / (1 + length)) ** 2 + v**2 < radius[:, k, None, None] ** 2
        pictures = np.where(inside[..., None], colour[:, k, None, None], pictures)
    shade = 1 + 0.25 * (light[:, :1, None] * (x - 0.5) + light[:, 1:, None] * (y - 0.5))
    return np.asarray(np.clip(pictures * shade[..., None] + 10 * texture[chosen][..., None], 0, 255))


def _textures(size: int, count: int, seed: int) -> NDArray[np.float32]:
    """Draw noise (count, size, size) whose amplitude falls with its frequency, as in photographs."""
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size)[None, :])
    noise = np.random.default_rng(stream(seed, "texture")).normal(size=(count, size, size))
    smooth = np.fft.ifft2(np.fft.fft2(noise) / np.maximum(frequency, 1 / size)).real
    return np.asarray((smooth - smooth.mean()) / smooth.std(axis=(1, 2), keepdims=True), dtype=np.float32)


def _number_sign(label: int, side: int, classes: int) -> Images:
    """Draw a number (side, side), white on black, as large as it fits with a margin of a pixel."""
    text = str(label)
    columns = 4 * len(str(classes - 1)) - 1
    scale = min((side - 2) // columns, (side - 2) // _GLYPH_HEIGHT)
    if scale < 1:
        raise ValueError(
            f"`size` must leave room for numbers up to {classes - 1}: {max(columns, _GLYPH_HEIGHT) + 2} pixels; got a "
            f"square of {side}. Take a larger share, larger images, or fewer classes."
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
            f"`images` must be uint8 (samples, height, width, channels), none of them empty; got {got}. Give grey "
            "images a last axis of 1."
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
