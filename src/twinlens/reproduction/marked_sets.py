"""Images that are enlarged and marked when they are asked for: CIFAR-100 at 224 × 224 pixels would fill 30 GB at once.

Shapes: N images of H × W pixels with C channels, uint8; B images that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.models.training import Batches
from twinlens.reproduction.watermarks import Images, Watermarked

_TOGETHER = 500


@dataclass(frozen=True, kw_only=True, eq=False)
class MarkedSet:
    """Labelled images of any size, with watermarks or without."""

    images: Images
    """(N, h, w, C) as they were opened."""

    labels: NDArray[np.int64]
    """(N,) their classes, which the watermarks tell."""

    size: int
    """Pixels of each side, as networks see them."""

    mark: Callable[..., Watermarked] | None = None
    """Puts watermarks into images of these `ids`; None leaves images as they are."""

    def __len__(self) -> int:
        return len(self.images)

    def take(self, index: Sequence[int] | NDArray[Any]) -> Watermarked:
        """Return some images, enlarged and marked."""
        some, ids = np.asarray(index), [str(k) for k in index]
        images = enlarge(self.images[some], self.size)
        if self.mark is not None:
            return self.mark(images, ids=ids)
        nowhere = np.zeros(images.shape[:3], dtype=bool)
        return Watermarked(images=images, labels=self.labels[some], region=nowhere, ids=tuple(ids))

    def mean(self) -> NDArray[np.float64]:
        """Return the mean colour (C,)."""
        parts = np.array_split(np.arange(len(self)), -(-len(self) // _TOGETHER))
        sums = [self.take(part).images.sum(axis=(0, 1, 2), dtype=np.float64) for part in parts]
        return np.asarray(np.sum(sums, axis=0) / (len(self) * self.size**2))

    def inputs(self, mean: NDArray[np.float64]) -> Tensor | LazyInputs:
        """Return the images as networks see them; enlarged ones batch by batch."""
        if self.size == self.images.shape[1]:
            return as_inputs(self.take(range(len(self))).images, mean)
        return LazyInputs(images=self, mean=mean)


@dataclass(frozen=True, kw_only=True, eq=False)
class LazyInputs(Batches):
    """Inputs of a network, made when they are asked for; trained and tested on like a tensor (N, C, H, W)."""

    images: MarkedSet
    """The images."""

    mean: NDArray[np.float64]
    """(C,) the colour that becomes zero."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, C, H, W)."""
        return len(self.images), self.images.images.shape[3], self.images.size, self.images.size

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Tensor | NDArray[Any]) -> Tensor:
        return as_inputs(self.images.take(np.asarray(index)).images, self.mean)


def as_inputs(images: Images, mean: NDArray[np.float64]) -> Tensor:
    """Return images as networks see them, (N, C, H, W): without the mean of the training images, at half contrast.

    Zero is the mean colour then, and so is the baseline of integrated gradients.

    Example:
        >>> as_inputs(np.full((1, 8, 8, 1), 200, np.uint8), np.array([72.0])).unique()
        tensor([2.])
    """
    values = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float()
    return (values - torch.from_numpy(mean).float()[:, None, None]) / 64


def enlarge(images: Images, size: int) -> Images:
    """Resize images (B, h, w, C) to `size` pixels each side, bilinearly.

    Example:
        >>> enlarge(np.full((2, 32, 32, 3), 7, np.uint8), 224).shape
        (2, 224, 224, 3)
    """
    if images.shape[1] == size:
        return images
    values = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).float()
    large = torch.nn.functional.interpolate(values, size=(size, size), mode="bilinear", align_corners=False)
    return large.round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
