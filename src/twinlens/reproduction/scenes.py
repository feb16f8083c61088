"""Digits in drawn scenes: a data set for smoke runs that is drawn from its seed, with nothing to download.

Shapes: N images of H × W pixels, uint8; B images that are drawn at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twinlens.models.mnist_cnn import mnist_digits
from twinlens.reproduction.watermarks import Images
from twinlens.support.randomness import stream

DIGITS = "digits in drawn scenes"
_BRIGHTNESS = 0.75  # of a scene; white digits stand out against it
_LEAVES = 24  # ellipses of a scene
_TOGETHER = 200  # images that are drawn at a time


def digits_in_scenes(kind: Literal["train", "test"], seed: int) -> tuple[Images, NDArray[np.int64]]:
    """Draw handwritten digits into scenes: (N, 32, 32, 3) images and (N,) labels."""
    digits, labels = mnist_digits(held_out=kind == "test")
    ink = np.pad(digits, ((0, 0), (2, 2), (2, 2)))[..., None].astype(np.float32) / 255
    # Drawing is slow: each scene is drawn once and used in its eight orientations, which look like other scenes.
    scenes = drawn_images(-(-len(digits) // 8), 32, seed=stream(seed, "scenes", kind))
    turned = [np.rot90(flipped, k, (1, 2)) for flipped in (scenes, scenes[:, :, ::-1]) for k in range(4)]
    ground = np.concatenate(turned)[: len(digits)]
    # Digits are sorted by class, and scenes by orientation.
    ground = ground[np.random.default_rng(stream(seed, "places", kind)).permutation(len(digits))]
    return (_BRIGHTNESS * ground * (1 - ink) + 255 * ink).astype(np.uint8), labels


def drawn_images(count: int, size: int, *, seed: int = 0) -> Images:
    """Draw colour images with the statistics of natural ones, (N, size, size, 3): "dead leaves" with a fine texture.

    Ellipses of all sizes cover each other, as objects in the world do (Lee et al. 2001). Each image depends on the seed
    and its number.
    """
    texture = _textures(size, 16, seed)
    images = np.empty((count, size, size, 3), dtype=np.uint8)
    for start in range(0, count, _TOGETHER):
        numbers = range(start, min(start + _TOGETHER, count))
        draws = [np.random.default_rng(stream(seed, "drawn image", k)) for k in numbers]
        images[start : start + _TOGETHER] = _dead_leaves(draws, size, texture)
    return images


def _dead_leaves(draws: Sequence[np.random.Generator], size: int, texture: NDArray[np.float32]) -> NDArray[np.float32]:
    """Draw one image (size, size, 3) from each generator, (B, size, size, 3)."""
    # The last leaf is the ground that the others lie on.
    even = np.stack([draw.random((_LEAVES + 1, 5), dtype=np.float32) for draw in draws])
    bell = np.stack([draw.standard_normal((_LEAVES + 1, 4), dtype=np.float32) for draw in draws])
    light, chosen = bell[:, -1, :2], (even[:, -1, 0] * len(texture)).astype(int)
    # The colours of one image are related: leaves differ from its tone more in brightness than in hue.
    tone = 128 + 40 * bell[:, :1, 3:] + 25 * bell[:, 1:2, :3]
    colour = tone + 18 * bell[..., :3] + 45 * bell[..., 3:]
    # Radii by a power law look alike at every scale; large leaves first, or they would hide the rest.
    radius = 0.06 / (0.12 + 0.88 * np.sort(even[:, :_LEAVES, 0], axis=1))
    x, y = np.meshgrid(*[(np.arange(size, dtype=np.float32) + 0.5) / size] * 2)
    images = np.broadcast_to(colour[:, -1, None, None], (len(draws), size, size, 3)).copy()
    for k in range(_LEAVES):
        across, down, turn, length = even[:, k, 1:, None, None].swapaxes(0, 1)
        cosine, sine = np.cos(np.pi * turn), np.sin(np.pi * turn)
        u = (x - across) * cosine + (y - down) * sine
        v = (y - down) * cosine - (x - across) * sine
        inside = (u / (1 + length)) ** 2 + v**2 < radius[:, k, None, None] ** 2
        images = np.where(inside[..., None], colour[:, k, None, None], images)
    shade = 1 + 0.25 * (light[:, :1, None] * (x - 0.5) + light[:, 1:, None] * (y - 0.5))
    return np.asarray(np.clip(images * shade[..., None] + 10 * texture[chosen][..., None], 0, 255))


def _textures(size: int, count: int, seed: int) -> NDArray[np.float32]:
    """Draw noise (count, size, size) whose amplitude falls with its frequency, as in photographs."""
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size)[None, :])
    noise = np.random.default_rng(stream(seed, "texture")).normal(size=(count, size, size))
    smooth = np.fft.ifft2(np.fft.fft2(noise) / np.maximum(frequency, 1 / size)).real
    return np.asarray((smooth - smooth.mean()) / smooth.std(axis=(1, 2), keepdims=True), dtype=np.float32)
