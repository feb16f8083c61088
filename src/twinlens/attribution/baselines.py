"""Controls: maps that ignore the model, and the two that the paper crafted to do well on a particular data set.

A metric that prefers one of them to a real explanation is itself in doubt.

Shapes: N samples, C channels, S = spatial shape.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from twinlens.attribution.gradients import integrating
from twinlens.attribution.harness import Request, to_maps
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.probing.maps import spatial_shape

_BANDS = 7
_ANY = "any module; it is not looked at"


@AttributionMethod(control=True, tokens="places", model=_ANY)
def random(model: nn.Module, request: Request) -> Explain:
    """Random maps: a uniform number for every feature, drawn by sample id."""
    spatial = spatial_shape(request.inputs.shape)

    def explain(part: Request) -> Tensor:
        maps = torch.stack([torch.rand(spatial, generator=g) for g in part.generators("random")])
        return maps.to(part.inputs.device)

    return explain


@AttributionMethod(control=True, inputs="images", model=_ANY)
def sobel(model: nn.Module, request: Request) -> Explain:
    """Edges of the image: the magnitude of its Sobel gradient, averaged over the channels."""
    across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], device=request.inputs.device)
    kernels = torch.stack([across, across.T])[:, None]

    def explain(part: Request) -> Tensor:
        images = part.inputs.float().mean(dim=1, keepdim=True)
        return nn.functional.conv2d(nn.functional.pad(images, (1, 1, 1, 1), mode="replicate"), kernels).norm(dim=1)

    return explain


@AttributionMethod(control=True, inputs="images", model=_ANY)
def centre(model: nn.Module, request: Request, *, sigma: float = 0.25) -> Explain:
    """A Gaussian at the centre of the image.

    Args:
        sigma: its standard deviation as a share of each side.
    """
    if not sigma > 0:
        raise ValueError(f"`sigma` must be > 0; got {sigma!r}.")
    bells = []
    for side in request.inputs.shape[2:]:
        places = (torch.arange(side, device=request.inputs.device) - (side - 1) / 2) / (sigma * side)
        bells.append(torch.exp(-(places**2) / 2))
    return lambda part: torch.outer(*bells).expand(len(part), -1, -1)


@AttributionMethod(control=True, inputs="images")
def rect(model: nn.Module, request: Request, *, size: float = 60 / 224) -> Explain:
    """*Rect*, crafted in the paper for square watermarks: a box at the weighted centre of an IG map.

    Args:
        size: side of the box as a share of the image's sides; 60 of 224 pixels in the paper.
    """
    if not 0 < size <= 1:
        raise ValueError(f"`size` must lie within (0, 1]; got {size!r}.")
    integrate = integrating(model, request)

    def explain(part: Request) -> Tensor:
        base = to_maps(integrate(part), part.inputs)
        mass = base.sum(dim=(1, 2)).clamp(min=torch.finfo(base.dtype).tiny)
        inside = []
        for axis, side in enumerate(base.shape[1:]):
            places = torch.arange(side, device=base.device, dtype=base.dtype)
            middle = (base.sum(dim=2 - axis) * places).sum(dim=1) / mass
            length = max(1, round(size * side))
            first = (middle - (length - 1) / 2).round().clamp(0, side - length)[:, None]
            inside.append((places >= first) & (places < first + length))
        return (inside[0][:, :, None] & inside[1][:, None, :]).float()

    return explain


@AttributionMethod(control=True, inputs="images")
def pooling(model: nn.Module, request: Request, *, bands: int = _BANDS) -> Explain:
    """*Pooling*, crafted in the paper for striped watermarks: an IG map averaged in bands of rows.

    Args:
        bands: how many bands; 7 in the paper.
    """
    rows = request.inputs.shape[2]
    if bands > rows:
        raise ValueError(f"`bands` must lie within 1 … {rows}, the rows of the image; got {bands}.")
    integrate = integrating(model, request)

    def explain(part: Request) -> Tensor:
        bands_of_maps = torch.tensor_split(to_maps(integrate(part), part.inputs), bands, dim=1)
        return torch.cat([band.mean(dim=(1, 2), keepdim=True).expand_as(band) for band in bands_of_maps], dim=1)

    return explain
