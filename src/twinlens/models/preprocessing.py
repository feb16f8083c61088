"""Preprocessing: from an 8-bit image to the input of a model.

Shapes: C channels, H × W pixels, S = spatial shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from twinlens.support.fields import convert, fields_of, replaced

INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
MOST_PIXELS = 2**25
"""Of a resized image: a file of a few bytes, very long and one pixel wide, would become gigabytes."""

_EXTREME = 1e6  # of a normalisation: beyond it, inputs are no longer finite in float32


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """The steps from an image to a model's input: resize, crop the centre, divide by 255, normalise.

    Example:
        >>> grey = Image.fromarray(np.full((4, 6), 51, dtype=np.uint8))
        >>> Preprocessing(crop=2, mean=(0.1,), std=(0.5,))(grey)
        tensor([[[0.2000, 0.2000],
                 [0.2000, 0.2000]]])
    """

    resize: int | None = None
    """Length of the shorter side after resizing; None keeps the size."""

    crop: int | None = None
    """Side of the square that is cut from the centre; None cuts nothing."""

    squash: bool = False
    """Resize an image to a square regardless of its shape, instead of cropping it."""

    interpolation: str = "bilinear"
    """How to resize: nearest, bilinear, bicubic or lanczos."""

    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Subtracted from each channel, on a scale of 0 to 1. One value means that the model reads grey images."""

    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    """Divides each channel after that."""

    def __post_init__(self) -> None:
        for option in fields_of(Preprocessing):
            value = getattr(self, option.name)
            if option.name in ("mean", "std") and isinstance(value, (int, float)):
                value = (value,)
            object.__setattr__(self, option.name, convert(value, option.type, option.name))
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise ValueError(
                f"`mean` and `std` must hold one value for grey images or three for colour; got {len(self.mean)} and "
                f"{len(self.std)}."
            )
        if not all(1 / _EXTREME <= value <= _EXTREME for value in self.std):
            raise ValueError(f"`std` must be > 0, within [{1 / _EXTREME:g}, {_EXTREME:g}]; got {self.std}.")
        if not all(abs(value) <= _EXTREME for value in self.mean):
            raise ValueError(f"`mean` must lie within [-{_EXTREME:g}, {_EXTREME:g}]; got {self.mean}.")
        if self.interpolation not in INTERPOLATIONS:
            raise ValueError(f"`interpolation` must be one of {', '.join(INTERPOLATIONS)}; got {self.interpolation!r}.")
        for name in ("resize", "crop"):
            if (side := getattr(self, name)) is not None and side < 1:
                raise ValueError(f"`{name}` must be at least 1 pixel; got {side}.")

    def changed(self, overrides: Mapping[str, Any]) -> Preprocessing:
        """Return the same preprocessing with some fields replaced."""
        return replaced(self, overrides, "preprocessing")

    def __call__(self, sample: Image.Image | NDArray[Any]) -> Tensor:
        """Turn an image into a tensor (C, H, W); an array is already normalised and only converted."""
        if not isinstance(sample, Image.Image):
            dtype = np.int64 if sample.dtype.kind == "i" else np.float32
            return torch.from_numpy(np.ascontiguousarray(sample, dtype=dtype))
        self.check_size(sample.size)
        image = self._frame(sample.convert("L" if len(self.mean) == 1 else "RGB"), self.interpolation)
        pixels = torch.from_numpy(np.array(image, dtype=np.float32)).reshape(image.height, image.width, -1)
        mean, std = (torch.tensor(values) for values in (self.mean, self.std))
        return ((pixels / 255 - mean) / std).permute(2, 0, 1).contiguous()

    def check_size(self, size: tuple[int, int]) -> None:
        """Refuse an image of this width and height if it would become too large, or is too small to be cropped."""
        width, height = self._resized(size)
        if self.resize is not None and width * height > MOST_PIXELS:
            raise ValueError(
                f"`resize` to {self.resize} would make {width} × {height} pixels of an image of {size[0]} × {size[1]}, "
                f"and at most {MOST_PIXELS} are allowed. Crop the image, or leave it out."
            )
        if self.crop is not None and self.crop > min(width, height):
            raise ValueError(
                f"`crop` of {self.crop} pixels does not fit into an image of {width} × {height}. Resize first, as with "
                f"resize={self.crop}."
            )

    def frame_map(self, values: NDArray[np.float32], interpolation: str = "bilinear") -> NDArray[np.float32]:
        """Resize and crop a map (…, H, W) of the size of an image, as that image is resized and cropped.

        Example:
            >>> Preprocessing(crop=2).frame_map(np.arange(12, dtype=np.float32).reshape(3, 4))
            array([[1., 2.],
                   [5., 6.]], dtype=float32)
        """
        self.check_size((values.shape[-1], values.shape[-2]))
        layers = values.reshape(-1, *values.shape[-2:])
        framed = np.stack([np.asarray(self._frame(Image.fromarray(layer), interpolation)) for layer in layers])
        return framed.reshape(*values.shape[:-2], *framed.shape[1:])

    def keeps(self, size: tuple[int, int]) -> bool:
        """Return whether an image of this width and height is neither resized nor cropped."""
        return self._resized(size) == size and (self.crop is None or size == (self.crop, self.crop))

    def _frame(self, image: Image.Image, interpolation: str) -> Image.Image:
        """Resize and crop an image."""
        if self.resize is not None:
            image = image.resize(self._resized(image.size), INTERPOLATIONS[interpolation])
        if self.crop is not None:
            left, top = self._corner(image.size)
            image = image.crop((left, top, left + self.crop, top + self.crop))
        return image

    def moved(self, points: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64]:
        """Return where points (…, 2), x and y in pixels of an image of this width and height, are in the input."""
        resized = self._resized(size)
        return np.asarray(points * (np.array(resized) / np.array(size)) - np.array(self._corner(resized)))

    def _resized(self, size: tuple[int, int]) -> tuple[int, int]:
        if self.resize is None:
            return size
        if self.squash:
            return self.resize, self.resize
        # The longer side is rounded down, as in torchvision and timm.
        shorter = min(size)
        return int(self.resize * size[0] / shorter), int(self.resize * size[1] / shorter)

    def _corner(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the left and the top of the crop of an image of this width and height."""
        if self.crop is None:
            return 0, 0
        return round((size[0] - self.crop) / 2), round((size[1] - self.crop) / 2)
