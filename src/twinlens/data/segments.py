"""Segments: positions of an input that form one feature, such as superpixels, words, or parts of a signal.

Shapes: N samples, B samples of one shard, C channels, S = spatial shape.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from twinlens.data.samples import Samples
from twinlens.data.word_pieces import number_words
from twinlens.errors import DataError, short_repr
from twinlens.probing.maps import feature_shape, spatial_shape
from twinlens.probing.ranking import check_segments
from twinlens.support.arrays import ArrayLike, as_tensor

SEGMENTS = 49
"""Parts of equal size that an input is divided into by default."""
_SUPERPIXELS = 64
_MOST_SUPERPIXELS = 100_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Segments:
    """Segments of every sample of a run."""

    identity: str
    """Identifies them in a run."""
    of: Callable[[Samples, Tensor], Tensor]
    """From samples and their inputs (B, C, *S) to segments (B, *S), numbered from 0; -1 for what is no feature."""


def find_segments(request: str | ArrayLike, everything: Samples, features: str = "positions") -> Segments:
    """Return the segments of a run.

    Args:
        request: "slic" or "slic:100", superpixels of images; "grid" or "grid:49", parts of equal size, squares of
            images; "words", which texts with a tokenizer have; or (N, *S) integers in the order of the whole data set.
        everything: the whole data set.
        features: "channels" if each channel has features of its own; no segment then has positions of two channels,
            unless the integers say so.
    """
    if not isinstance(request, str):
        return _from_array(as_tensor(request, "segments").cpu(), everything, features)
    if request == "words":
        raise DataError("`segments` 'words' needs token ids and a tokenizer: pass texts with `tokenizer`, or hf:DIR.")
    match = re.fullmatch(r"(slic|grid)(?::([0-9]{1,9}))?", request)
    kind = match[1] if match else ""
    count = int(match[2] or (SEGMENTS if kind == "grid" else _SUPERPIXELS)) if match else 0
    if not 1 <= count <= _MOST_SUPERPIXELS:
        raise ValueError(
            "`segments` must be 'slic', 'slic:K' for about K superpixels, 'grid:K' for about K equal parts, 'words' of "
            f"texts, or integers (N, *S); got {short_repr(request)}."
        )

    def equal(_: Samples, inputs: Tensor) -> Tensor:
        spatial, channels = spatial_shape(inputs.shape), inputs.shape[1] if features == "channels" else 1
        numbers = equal_parts(spatial, max(1, round(count / channels)))
        if features == "channels":
            first = torch.arange(channels) * (int(numbers.max()) + 1)
            numbers = first.reshape(-1, *[1] * numbers.dim()) + numbers
        return numbers.repeat(len(inputs), *[1] * numbers.dim())

    slic = kind == "slic"
    if slic and features == "channels":
        raise ValueError("`segments` 'slic' joins all channels; with features='channels' pass 'grid:K' or integers.")
    return Segments(identity=f"{kind}:{count}", of=(lambda _, inputs: superpixels(inputs, count)) if slic else equal)


def find_word_segments(everything: Samples, features_of: Callable[[Tensor], Tensor]) -> Segments:
    """Return the words of token ids as segments; `features_of` marks the tokens that can be removed, by -1 others."""
    tokens = torch.from_numpy(np.stack([everything.read(k) for k in range(len(everything))]))
    texts = everything.naming.words_of(tokens)
    if texts is None:
        return find_segments("words", everything)
    return _from_array(number_words(texts, features_of(tokens)), everything, "positions")


def _from_array(segments: Tensor, everything: Samples, features: str) -> Segments:
    if segments.dim() < 2 or len(segments) != len(everything):
        raise DataError(
            f"`segments` must hold one array for each of the {len(everything)} samples of the data; got shape "
            f"{tuple(segments.shape)}."
        )
    digest = hashlib.blake2b(np.ascontiguousarray(segments.numpy()).tobytes(), digest_size=16).hexdigest()
    return Segments(
        identity=f"{tuple(segments.shape[1:])} {digest}",
        of=lambda samples, inputs: check_segments(
            segments[samples.positions], feature_shape(inputs.shape, features), samples.ids
        ),
    )


def equal_parts(spatial: Sequence[int], count: int) -> Tensor:
    """Divide a map (*S) into about `count` parts of equal size: squares of images, pieces of signals and rows.

    Example:
        >>> equal_parts((4, 6), 6)
        tensor([[0, 0, 1, 1, 2, 2],
                [0, 0, 1, 1, 2, 2],
                [3, 3, 4, 4, 5, 5],
                [3, 3, 4, 4, 5, 5]])
        >>> equal_parts((5,), 9)
        tensor([0, 1, 2, 3, 4])
    """
    side = (math.prod(spatial) / count) ** (1 / len(spatial))
    numbers = torch.zeros(tuple(spatial), dtype=torch.int64)
    for axis, length in enumerate(spatial):
        parts = min(length, max(1, round(length / side)))
        part = torch.arange(length) * parts // length
        numbers = numbers * parts + part.reshape([-1 if k == axis else 1 for k in range(len(spatial))])
    return numbers


def superpixels(images: Tensor, count: int) -> Tensor:
    """Divide images (B, C, H, W) into about `count` superpixels each (Achanta et al. 2012)."""
    if images.dim() != 4:
        raise ValueError(
            f"`segments` 'slic' needs images (samples, channels, height, width); inputs have shape "
            f"{tuple(images.shape)}. Pass integers instead."
        )
    try:
        segmentation: Any = importlib.import_module("skimage.segmentation")
    except ImportError:
        raise ImportError("`segments` 'slic' needs scikit-image. Run: pip install scikit-image") from None
    parts = []
    for image in images.cpu().float():
        low, high = image.amin(), image.amax()
        pixels = ((image - low) / (high - low).clamp(min=1e-12)).permute(1, 2, 0).double().numpy()
        colour = pixels.shape[2] == 3
        numbers = segmentation.slic(
            pixels if colour else pixels[..., 0], n_segments=count, start_label=0, channel_axis=-1 if colour else None
        )
        parts.append(torch.from_numpy(np.asarray(numbers, dtype=np.int64)))
    return torch.stack(parts)
