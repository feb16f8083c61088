"""Pictures: from inputs and maps to images that a page can hold.

Shapes: C channels, S = spatial shape, H × W pixels. Pictures are (H, W, 3) uint8.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

Picture = NDArray[np.uint8]

_SMALL = 64  # pictures up to this side are stored exactly, and shown with their pixels as squares
_GREY = 0.5
_HEAT = np.array([[13, 8, 45], [86, 15, 110], [187, 55, 84], [249, 142, 9], [252, 255, 164]], dtype=np.float64)
_TRUE, _FALSE = np.array([0, 114, 178]), np.array([230, 80, 0])  # after Okabe and Ito: blue and vermilion


def flat(values: Tensor) -> Tensor:
    """Gives a map or channel (*S) as a plane (H, W): rows and signals as one line, volumes by their middle slice."""
    if values.dim() == 1:
        return values[None]
    while values.dim() > 2:
        values = values[values.shape[0] // 2]
    return values


def undo_preprocessing(inputs: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Gives images (B, C, H, W) on a scale of 0 to 1, as they were before the model's normalisation."""
    shape = (-1, 1, 1)
    return inputs * torch.tensor(std).reshape(shape) + torch.tensor(mean).reshape(shape)


def scale_arrays(inputs: Tensor, reference: Tensor) -> Tensor:
    """Gives inputs on a scale of 0 to 1, from the least to the largest value of the untouched one."""
    low, high = reference.min(), reference.max()
    return (inputs - low) / (high - low).clamp(min=1e-12)


def input_pictures(values: Tensor) -> list[Picture]:
    """Draws inputs (B, C, *S) or (B, D) on a scale of 0 to 1: three channels as colours, others as their mean."""
    if values.dim() == 4 and values.shape[1] == 3:
        planes = values
    else:
        grey = values if values.dim() == 2 else values.mean(dim=1)
        planes = torch.stack([flat(one) for one in grey]).unsqueeze(1).expand(-1, 3, -1, -1)
    levels = planes.mul(255).round_().clamp_(0, 255).to(torch.uint8)
    return list(levels.permute(0, 2, 3, 1).contiguous().numpy())


def map_picture(values: Tensor) -> Picture:
    """Draws a map (*S) from dark (nothing) to light (its maximum)."""
    scaled = _scaled(values)
    place = scaled * (len(_HEAT) - 1)
    return _bytes(np.stack([np.interp(place, range(len(_HEAT)), _HEAT[:, channel]) for channel in range(3)], axis=-1))


def false_picture(values: Tensor, false: Tensor, under: Picture) -> Picture:
    """Draws over a faint input what a map marks: blue, and vermilion where it was judged false."""
    grey = 255 - (255 - under.mean(axis=2, keepdims=True)) * 0.35
    strength = np.sqrt(_scaled(values))[..., None]  # the root, so that weak attribution shows too
    colour = np.where(flat(false).numpy()[..., None], _FALSE, _TRUE)
    return _bytes(grey * (1 - strength) + colour * strength)


def grey_out(values: Tensor, keep: Tensor) -> Tensor:
    """Gives inputs (B, C, *S) on a scale of 0 to 1 with grey in the place of what is not kept (B, *S)."""
    return torch.where(keep if keep.dim() == values.dim() else keep.unsqueeze(1), values, _GREY)


def data_uri(picture: Picture, *, side: int, quality: int) -> str:
    """Gives a picture as a data URI: exact where it is small, otherwise WebP with its longer side at most `side`.

    Example:
        >>> data_uri(np.zeros((2, 2, 3), np.uint8), side=100, quality=60)[:22]
        'data:image/png;base64,'
    """
    image = Image.fromarray(picture)
    exact = max(image.size) <= _SMALL or image.height == 1
    if max(image.size) > side and not exact:
        ratio = side / max(image.size)
        image = image.resize((round(image.width * ratio), round(image.height * ratio)), Image.Resampling.BOX)
    buffer = io.BytesIO()
    if exact:
        image.save(buffer, "PNG", optimize=True)
    else:
        image.save(buffer, "WEBP", quality=quality, method=2)
    kind = "png" if exact else "webp"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _scaled(values: Tensor) -> NDArray[np.float64]:
    plane = flat(values).double().numpy()
    peak = plane.max()
    return np.asarray(plane / peak if peak > 0 else plane)


def _bytes(values: NDArray[np.float64]) -> Picture:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
