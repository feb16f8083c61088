"""Baseline methods: maps that ignore the model, and the two that the paper crafted for particular data sets.

A metric that prefers one of them to a real explanation is itself in doubt.

Shapes: N samples, C channels, S = spatial shape.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from twinlens.attribution.gradients import integrating
from twinlens.attribution.harness import Request, to_maps
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.probing.maps import spatial_shape

_ANY = "any module; it is ignored"


@AttributionMethod(title="Random", baseline=True, tokens="positions", model=_ANY)
def random(model: nn.Module, request: Request) -> Explain:
    """Random maps: a uniform number for every feature, drawn by sample id."""
    spatial = spatial_shape(request.inputs.shape)

    def explain(batch: Request) -> Tensor:
        maps = torch.stack([torch.rand(spatial, generator=g) for g in batch.generators("random")])
        return maps.to(batch.inputs.device)

    return explain


@AttributionMethod(title="Sobel", baseline=True, inputs="spatial", model=_ANY)
def sobel(model: nn.Module, request: Request) -> Explain:
    """Edges of the input: the magnitude of its Sobel gradient, averaged over the channels."""
    axes = request.inputs.dim() - 2
    slope, smooth = torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([1.0, 2.0, 1.0])
    kernels = torch.stack(
        [_product([slope if other == axis else smooth for other in range(axes)]) for axis in reversed(range(axes))]
    )[:, None].to(request.inputs.device)
    convolve = (nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d)[axes - 1]

    def explain(batch: Request) -> Tensor:
        images = batch.inputs.float().mean(dim=1, keepdim=True)
        return convolve(nn.functional.pad(images, [1, 1] * axes, mode="replicate"), kernels).norm(dim=1)

    return explain


def _product(lines: list[Tensor]) -> Tensor:
    """Return the outer product of vectors."""
    return functools.reduce(lambda product, line: product[..., None] * line, lines)


@AttributionMethod(title="Centre", baseline=True, inputs="spatial", model=_ANY)
def centre(model: nn.Module, request: Request) -> Explain:
    """A Gaussian at the centre of the input, with a standard deviation of a quarter of each side."""
    bells = []
    for side in request.inputs.shape[2:]:
        distance = (torch.arange(side, device=request.inputs.device) - (side - 1) / 2) / (0.25 * side)
        bells.append(torch.exp(-(distance**2) / 2))
    bell = _product(bells)
    return lambda batch: bell.expand(len(batch), *bell.shape)


@AttributionMethod(title="Rect", baseline=True, inputs="images")
def rect(model: nn.Module, request: Request) -> Explain:
    """*Rect*, crafted in the paper for square watermarks: 60 of 224 pixels at the weighted centre of an IG map."""
    integrate = integrating(model, request)

    def explain(batch: Request) -> Tensor:
        base = to_maps(integrate(batch), batch.inputs)
        mass = base.sum(dim=(1, 2)).clamp(min=torch.finfo(base.dtype).tiny)
        inside = []
        for axis, side in enumerate(base.shape[1:]):
            positions = torch.arange(side, device=base.device, dtype=base.dtype)
            middle = (base.sum(dim=2 - axis) * positions).sum(dim=1) / mass
            length = max(1, round(60 / 224 * side))
            first = (middle - (length - 1) / 2).round().clamp(0, side - length)[:, None]
            inside.append((positions >= first) & (positions < first + length))
        return (inside[0][:, :, None] & inside[1][:, None, :]).float()

    return explain


@AttributionMethod(title="Pooling", baseline=True, inputs="images")
def pooling(model: nn.Module, request: Request) -> Explain:
    """*Pooling*, crafted in the paper for striped watermarks: an IG map averaged in seven bands of rows."""
    integrate = integrating(model, request)

    def explain(batch: Request) -> Tensor:
        parts = torch.tensor_split(to_maps(integrate(batch), batch.inputs), min(7, batch.inputs.shape[2]), dim=1)
        return torch.cat([band.mean(dim=(1, 2), keepdim=True).expand_as(band) for band in parts], dim=1)

    return explain
