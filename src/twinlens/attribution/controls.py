"""Controls: maps that ignore the model, and the two that the paper crafted to do well on a particular data set.

A metric that prefers one of them to a real explanation is itself in doubt.

Shapes: N samples, C channels, S = spatial shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from twinlens.attribution.gradients import integrated_gradients
from twinlens.attribution.harness import check_images, make_request
from twinlens.core.arrays import ArrayLike
from twinlens.core.calling import Labels
from twinlens.core.maps import spatial_shape

_BANDS = 7


def random(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
) -> Tensor:
    """Random maps: a uniform number for every feature, drawn by sample id."""
    request = make_request(model, inputs, targets, ids=ids, seed=seed)
    spatial = spatial_shape(request.inputs.shape)
    maps = torch.stack([torch.rand(spatial, generator=g) for g in request.generators("random")])
    return maps.to(request.inputs.device)


def _images(model: nn.Module, inputs: ArrayLike, targets: Labels, ids: Sequence[str | int] | None, name: str) -> Tensor:
    images = make_request(model, inputs, targets, ids=ids, seed=0).inputs
    check_images(images, name)
    return images


def sobel(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
) -> Tensor:
    """Edges of the image: the magnitude of its Sobel gradient, averaged over the channels."""
    images = _images(model, inputs, targets, ids, "sobel").float().mean(dim=1, keepdim=True)
    across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], device=images.device)
    kernels = torch.stack([across, across.T])[:, None]
    padded = nn.functional.pad(images, (1, 1, 1, 1), mode="replicate")
    return nn.functional.conv2d(padded, kernels).norm(dim=1)


def centre(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    sigma: float = 0.25,
) -> Tensor:
    """A Gaussian at the centre of the image; `sigma` is its standard deviation as a share of each side."""
    if not sigma > 0:
        raise ValueError(f"`sigma` must be > 0; got {sigma!r}.")
    images = _images(model, inputs, targets, ids, "centre")
    bells = []
    for side in images.shape[2:]:
        places = (torch.arange(side, device=images.device) - (side - 1) / 2) / (sigma * side)
        bells.append(torch.exp(-(places**2) / 2))
    return torch.outer(*bells).expand(len(images), -1, -1).contiguous()


def rect(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    size: float = 60 / 224,
) -> Tensor:
    """*Rect*, crafted in the paper for square watermarks: a box at the weighted centre of an IG map.

    Args:
        model: any differentiable module that returns logits.
        inputs: (N, C, H, W).
        targets: (N,) classes to explain.
        ids: one name per sample.
        seed: unused; the method is deterministic.
        size: side of the box as a share of the image's sides; 60 of 224 pixels in the paper.
    """
    images = _images(model, inputs, targets, ids, "rect")
    if not 0 < size <= 1:
        raise ValueError(f"`size` must lie within (0, 1]; got {size!r}.")
    base = integrated_gradients(model, inputs, targets, ids=ids, seed=seed)
    mass = base.sum(dim=(1, 2)).clamp(min=torch.finfo(base.dtype).tiny)
    inside = []
    for axis, side in enumerate(images.shape[2:]):
        places = torch.arange(side, device=base.device, dtype=base.dtype)
        middle = (base.sum(dim=2 - axis) * places).sum(dim=1) / mass
        length = max(1, round(size * side))
        first = (middle - (length - 1) / 2).round().clamp(0, side - length)[:, None]
        inside.append((places >= first) & (places < first + length))
    return (inside[0][:, :, None] & inside[1][:, None, :]).float()


def pooling(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    bands: int = _BANDS,
) -> Tensor:
    """*Pooling*, crafted in the paper for striped watermarks: an IG map averaged in bands of rows, seven by default."""
    images = _images(model, inputs, targets, ids, "pooling")
    if not 1 <= bands <= images.shape[2]:
        raise ValueError(f"`bands` must lie within 1 … {images.shape[2]}, the rows of the image; got {bands}.")
    base = integrated_gradients(model, inputs, targets, ids=ids, seed=seed)
    parts = torch.tensor_split(base, bands, dim=1)
    return torch.cat([part.mean(dim=(1, 2), keepdim=True).expand_as(part) for part in parts], dim=1)
