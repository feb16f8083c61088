"""Imputers: what stands in the place of a removed feature.

An imputer is called as `imputer(inputs, keep, streams)` and returns inputs of the same shape in which the kept
features are untouched. It is the only part of twinlens that may know what a neighbour is.

Shapes: B rows, each a (sample, level) pair; C channels; S = spatial shape. Inputs are (B, C, *S), or (B, D) for
tabular rows, and keep is (B, *S), True where a feature stays.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from twinlens.maps import ArrayLike, as_tensor
from twinlens.multigrid import solve


class Imputer(Protocol):
    """Anything that fills removed features."""

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:
        """Fills the removed features of each row; `streams` seeds whatever a row draws at random."""
        ...


def impute_linear(images: Tensor, keep: Tensor, *, tolerance: float = 1e-3, method: str = "auto") -> Tensor:
    """Fills removed features with the weighted mean of their neighbours, without noise (Rong et al. 2022).

    `twinlens.multigrid.solve` takes the same arguments and also tells how each image was solved.

    Args:
        images: (N, C, H, W), or (N, C, T) for signals and (N, C, D, H, W) for volumes, floating-point.
        keep: (N, H, W) bool, or as the spatial shape is; at least one feature of every image has to be kept.
        tolerance: largest absolute error against the exact solution, in the units of the images.
        method: "auto", "multigrid", "torch" or "direct"; see `twinlens.multigrid.solve`.

    Returns:
        Images of the same shape, in which kept features are as they were.

    Example:
        >>> image, keep = torch.zeros(1, 1, 3, 3), torch.ones(1, 3, 3, dtype=torch.bool)
        >>> image[0, 0, 0, 1], keep[0, 1, 1] = 6.0, False
        >>> impute_linear(image, keep)[0, 0, 1, 1]
        tensor(1.)
    """
    return solve(images, keep, tolerance=tolerance, method=method).values


@dataclass(frozen=True, kw_only=True)
class LinearImputer:
    """Noisy linear imputation (Rong et al. 2022): a removed feature is the weighted mean of its neighbours.

    Needs neighbours: images (B, C, H, W), signals (B, C, T) or volumes.

    Example:
        >>> imputer = LinearImputer(noise=0.0)
        >>> signal, keep = torch.tensor([[[0.0, 9.0, 9.0, 3.0]]]), torch.tensor([[True, False, False, True]])
        >>> imputer(signal, keep, streams=[0])
        tensor([[[0., 1., 2., 3.]]])
    """

    noise: float = 0.01
    """Standard deviation of the Gaussian noise added to what was filled, in the model's normalised units."""

    tolerance: float = 1e-3
    """Largest absolute error of the linear solve."""

    method: str = "auto"
    """How the system is solved; see `impute_linear`."""

    empty: float = 0.0
    """Stands everywhere where nothing is kept, so that there is nothing to interpolate from: with normalised
    inputs, 0 is the mean of the data. A constant map comes to this under removal by value."""

    def __post_init__(self) -> None:
        if not self.noise >= 0 or not self.tolerance > 0:
            raise ValueError(
                f"`noise` must be >= 0 and `tolerance` > 0; got noise={self.noise!r}, tolerance={self.tolerance!r}."
            )

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:
        """Solves for the removed features, then adds the noise of each row's stream to them."""
        if inputs.dim() == keep.dim():
            raise ValueError(
                f"`imputer`: linear imputation needs neighbours, and inputs of shape {tuple(inputs.shape)} have none. "
                "For tabular rows pass tl.MeanImputer(mean) or tl.ConstantImputer(value)."
            )
        some_kept = keep.flatten(1).any(dim=1)
        if bool(some_kept.all()):
            filled = impute_linear(inputs, keep, tolerance=self.tolerance, method=self.method)
        else:
            filled = torch.full_like(inputs, self.empty)
            if bool(some_kept.any()):
                filled[some_kept] = impute_linear(
                    inputs[some_kept], keep[some_kept], tolerance=self.tolerance, method=self.method
                )
        if self.noise == 0:
            return filled
        removed = (~keep.unsqueeze(1)).to(filled.dtype)
        return torch.addcmul(filled, _noise_like(filled, streams), removed, value=self.noise)


def _noise_like(inputs: Tensor, streams: Sequence[int]) -> Tensor:
    noise = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    generator = torch.Generator(inputs.device)
    for row, seed in zip(noise, streams, strict=True):
        row.normal_(generator=generator.manual_seed(seed))
    return noise


@dataclass(frozen=True)
class ConstantImputer:
    """Puts one value in the place of removed features.

    Example:
        >>> ConstantImputer(7.0)(torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]]), streams=[0])
        tensor([[1., 7.]])
    """

    value: float = 0.0
    """The value, in the units that the model is given."""

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Replaces what is not kept."""
        return torch.where(_over_channels(keep, inputs), inputs, self.value)


@dataclass(frozen=True, eq=False, repr=False)
class MeanImputer:
    """Puts the mean of the data in the place of removed features.

    Example:
        >>> MeanImputer([0.5, 4.0])(torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]]), streams=[0])
        tensor([[1., 4.]])
    """

    mean: float | Sequence[float] | ArrayLike
    """One number, one per channel (C,), one per channel and feature (C, *S); for tabular rows one per
    feature (D,). Take it from training data, so that it tells nothing about the sample."""

    def __repr__(self) -> str:
        # Probe tables compare imputers by what they print, so the numbers have to show, however many there are.
        mean = (
            as_tensor(np.asarray(self.mean) if not isinstance(self.mean, Tensor) else self.mean, "mean").cpu().numpy()
        )
        if mean.size <= 4:
            return f"MeanImputer({mean.tolist()})"
        digest = hashlib.blake2b(np.ascontiguousarray(mean, dtype=np.float64).tobytes(), digest_size=8).hexdigest()
        return f"MeanImputer({mean.shape} values {digest})"

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Replaces what is not kept."""
        mean = torch.as_tensor(self.mean, dtype=inputs.dtype, device=inputs.device)
        if mean.dim() == 1 and inputs.dim() > 2 and mean.shape == inputs.shape[1:2]:
            mean = mean.reshape(-1, *[1] * (inputs.dim() - 2))
        elif mean.dim() > 0 and mean.shape != inputs.shape[1:]:
            raise ValueError(
                f"`mean` must be one number, one per channel, or shaped like one input {tuple(inputs.shape[1:])}; "
                f"got shape {tuple(mean.shape)}."
            )
        return torch.where(_over_channels(keep, inputs), inputs, mean)


@dataclass(frozen=True, kw_only=True)
class BlurImputer:
    """Puts a blurred copy of the input in the place of removed features (Petsiuk et al. 2018, for insertion).

    Example:
        >>> spike, nothing = torch.tensor([[[0.0, 0.0, 4.0, 0.0, 0.0]]]), torch.zeros(1, 5, dtype=torch.bool)
        >>> BlurImputer(sigma=0.5)(spike, nothing, streams=[0]).round(decimals=2)
        tensor([[[0.0000, 0.4300, 3.1500, 0.4300, 0.0000]]])
    """

    sigma: float = 5.0
    """Standard deviation of the Gaussian, in features; the kernel ends at three standard deviations, and the
    border value continues outside."""

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise ValueError(f"`sigma` must be > 0; got {self.sigma!r}.")

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Replaces what is not kept."""
        if inputs.dim() == keep.dim():
            raise ValueError(
                f"`imputer`: a blur needs neighbours, and inputs of shape {tuple(inputs.shape)} have none. "
                "For tabular rows pass tl.MeanImputer(mean) or tl.ConstantImputer(value)."
            )
        radius = max(1, math.ceil(3 * self.sigma))
        distance = torch.arange(-radius, radius + 1, dtype=inputs.dtype, device=inputs.device)
        kernel = torch.exp(-(distance**2) / (2 * self.sigma**2))
        blurred = inputs
        for axis in range(2, inputs.dim()):
            blurred = _convolve(blurred, kernel / kernel.sum(), axis)
        return torch.where(_over_channels(keep, inputs), inputs, blurred)


def _convolve(inputs: Tensor, kernel: Tensor, axis: int) -> Tensor:
    lines = inputs.movedim(axis, -1)
    flat = lines.reshape(-1, 1, lines.shape[-1])
    radius = len(kernel) // 2
    padded = torch.nn.functional.pad(flat, (radius, radius), mode="replicate")
    smooth = torch.nn.functional.conv1d(padded, kernel.reshape(1, 1, -1))
    return smooth.reshape(lines.shape).movedim(-1, axis)


def _over_channels(keep: Tensor, inputs: Tensor) -> Tensor:
    return keep if keep.dim() == inputs.dim() else keep.unsqueeze(1)
