"""Pictures of inputs and maps, for the page and the contact sheet.

Shapes: C channels, S = spatial shape, H × W pixels. Pictures are (H, W, 3) uint8.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

Picture = NDArray[np.uint8]

EXACT = 100  # a quality at which pictures are stored exactly
_SMALL = 64  # pictures up to this side are stored exactly and shown with square pixels
_GREY = 0.5
_HEAT = np.array([[13, 8, 45], [86, 15, 110], [187, 55, 84], [249, 142, 9], [252, 255, 164]], dtype=np.float64)
_TRUE, _FALSE = np.array([0, 114, 178]), np.array([230, 80, 0])  # after Okabe and Ito: blue and vermilion


def flat(values: Tensor) -> Tensor:
    """Return a map or channel (*S) as an image (H, W): rows and signals as one line, the middle slice of volumes."""
    if values.dim() == 1:
        return values[None]
    while values.dim() > 2:
        values = values[values.shape[0] // 2]
    return values


@dataclass(frozen=True, kw_only=True, eq=False)
class Shades:
    """Conversion of inputs to shades from 0 (dark) to 1 (light): scale * number + shift, per channel."""

    scale: Tensor
    """(C, 1, …), or a single number, as the shift."""
    shift: Tensor

    @staticmethod
    def before_preprocessing(mean: Sequence[float], std: Sequence[float]) -> Shades:
        """Undo the model's normalisation of images (C, H, W)."""
        return Shades(scale=torch.tensor(std).reshape(-1, 1, 1), shift=torch.tensor(mean).reshape(-1, 1, 1))

    @staticmethod
    def between_extremes(original: Tensor) -> Shades:
        """Map the range of an input that is not an image to all shades."""
        low, high = original.min(), original.max()
        scale = 1 / (high - low).clamp(min=1e-12)
        return Shades(scale=scale, shift=-low * scale)

    @property
    def grey(self) -> Tensor:
        """The number that is shown as medium grey."""
        return (_GREY - self.shift) / self.scale


def input_pictures(inputs: Tensor, shades: Shades) -> list[Picture]:
    """Draw inputs (B, C, *S) or (B, D): three channels as colours, others as their mean."""
    values = inputs.mul(shades.scale * 255).add_(shades.shift * 255)
    if values.dim() == 4 and values.shape[1] == 3:
        planes = values
    else:
        grey = values if values.dim() == 2 else values.mean(dim=1)
        planes = torch.stack([flat(one) for one in grey]).unsqueeze(1)
    # Adding a half and truncating rounds, with one pass less over the memory.
    levels = planes.add_(0.5).clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    return list(levels.expand(-1, -1, -1, 3).contiguous().numpy())


def map_picture(values: Tensor) -> Picture:
    """Draw a map (*S) from dark (nothing) to light (its maximum)."""
    position = _scaled(values) * (len(_HEAT) - 1)
    return _bytes(np.stack([np.interp(position, range(len(_HEAT)), channel) for channel in _HEAT.T], axis=-1))


def false_picture(values: Tensor, false: Tensor, under: Picture) -> Picture:
    """Draw a map over a faint input: blue, and vermilion where features were judged false."""
    grey = 255 - (255 - under.mean(axis=2, keepdims=True)) * 0.35
    strength = np.sqrt(_scaled(values))[..., None]  # the root makes weak attribution visible
    colour = np.where(flat(false).numpy()[..., None], _FALSE, _TRUE)
    return _bytes(grey * (1 - strength) + colour * strength)


def data_uri(picture: Picture, *, side: int, quality: int) -> str:
    """Encode a picture as a data URI: exact where it is small, otherwise WebP with its longer side at most `side`."""
    grey = (picture == picture[..., :1]).all()
    image = Image.fromarray(np.ascontiguousarray(picture[..., 0]) if grey else picture)
    exact = max(image.size) <= _SMALL or quality == EXACT
    if max(image.size) > side and not exact:
        ratio = side / max(image.size)
        image = image.resize((round(image.width * ratio), round(image.height * ratio)), Image.Resampling.BOX)
    buffer, kind = io.BytesIO(), "png" if exact else "webp"
    options = {"optimize": True} if exact else {"quality": quality, "method": 0}
    image.save(buffer, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _scaled(values: Tensor) -> NDArray[np.float64]:
    plane = flat(values).double().numpy()
    peak = plane.max()
    return np.asarray(plane / peak if peak > 0 else plane)


def _bytes(values: NDArray[np.float64]) -> Picture:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
