"""A point in a model where hidden features can be read and replaced, and how they are distributed there.

Shapes: B samples of one batch, n copies of each, C channels of the input, S = its spatial shape, K channels of the
hidden layer, s = its spatial shape.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.attribution.feature_maps import Output, choose, named_layer, recording, refuse_programs
from twinlens.attribution.harness import Request, check_reference, hooked, target_logits
from twinlens.support.arrays import ArrayLike

_ACTIVE = 0.01  # least share of inputs for which a feature is not zero (Schulz et al. 2020)
_LEAST_STD = 0.01  # of a feature, as in the authors' code
_CORNER = 32  # side of the smallest input that common models accept, for a pass whose features are replaced anyway

StandIn = Callable[[Tensor, int], Tensor]
"""From inputs (B, C, *S) and a number of copies to rows that the model accepts with features of these copies."""


@dataclass(frozen=True)
class Moments:
    """How features, and the noise that replaces them, are distributed."""

    mean: Tensor
    """(K, *s), or (K, 1, …) where all positions of a channel share it."""
    std: Tensor
    """The same shape."""
    active: Tensor
    """The same shape: 1, or 0 where a feature is zero for nearly every input, as units of a ReLU may be."""


@dataclass(frozen=True)
class LayerRun:
    """One run of a layer in a pass of a model; an activation may serve the whole model."""

    model: nn.Module
    layer: nn.Module
    run: int
    """Number of the run, from 1."""

    def read(self, inputs: Tensor) -> Tensor:
        """Return the features (B, K, *s) of inputs; the model runs no further than needed."""

        def stop(features: object) -> None:
            if not isinstance(features, Tensor) or features.dim() != inputs.dim() or len(features) != len(inputs):
                shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
                raise ValueError(
                    "`layer` must return a convolutional feature map (samples, channels, *spatial) for a bottleneck; "
                    f"it returns {shape}. Name another layer."
                )
            raise _Reached(features)

        try:
            self._run(stop, inputs)
        except _Reached as reached:
            return reached.features
        raise ValueError(f"`layer` must run {self.run} times for every input, as for the first; this time it did not.")

    def replace(self, features: Tensor, inputs: Tensor) -> Tensor:
        """Return the logits of inputs when these features replace the layer's."""
        return self._run(lambda _: features, inputs)

    def _run(self, hook: Callable[[Any], Any], inputs: Tensor) -> Tensor:
        runs = itertools.count(1)
        with hooked([self.layer], lambda _, __, output: hook(output) if next(runs) == self.run else None):
            return self.model(inputs)


class _Reached(Exception):  # noqa: N818 - not an error: the features have been read
    def __init__(self, features: Tensor) -> None:
        self.features = features


@dataclass(frozen=True)
class FeaturePoint(LayerRun):
    """A point in a model where its features can be read and replaced, and how they are distributed there."""

    moments: Moments
    stand_in: StandIn
    """The cheapest input to run the model with when the layer's features are replaced."""

    @classmethod
    @torch.no_grad()
    def find(cls, model: nn.Module, request: Request, name: str | None, reference: ArrayLike | None) -> FeaturePoint:
        """Find the layer, by default the end of the last stage but one, and how its features are distributed."""
        samples = request.inputs if reference is None else check_reference(reference, "reference", request.inputs)
        layer, run = _find_layer(model, request, name)
        at = LayerRun(model, layer, run)
        moments = _moments(at, samples.split(request.batch_size), pooled=reference is None)
        return cls(model, layer, run, moments, _find_stand_in(at, request.inputs[:1]))

    def answer(self, inputs: Tensor, features: Tensor) -> Tensor:
        """Return logits (B·n, classes) for inputs (B, C, *S) when features (B, n, K, *s) replace the layer's."""
        rows = (features * self.moments.active).flatten(0, 1)
        return self.replace(rows, self.stand_in(inputs, features.shape[1]))


def _find_layer(model: nn.Module, request: Request, name: str | None) -> tuple[nn.Module, int]:
    """Find the layer and the number of its run, from 1; check that the model has the target classes."""
    refuse_programs(model)
    with recording(model) as outputs:
        target_logits(model, request.inputs[:1], request.targets[:1])
    if name is not None:
        layer = named_layer(model, name)
        runs = sum(one.location.source is layer for one in outputs)
        if not runs:
            raise ValueError(
                "`layer` must be a module that the model runs and that returns a tensor; this one is never called, or "
                "returns something else. Name another layer."
            )
        return layer, runs
    last = choose(outputs, request.inputs.dim(), activated=False)
    location = (_before_last_stage(outputs, last) or last).location
    assert location.source is not None
    return location.source, location.run + 1


def _before_last_stage(outputs: Sequence[Output], last: Output) -> Output | None:
    """Find the earliest feature map that the last stage reads, which no shortcut bypasses; None without such a map."""
    size = math.prod(last.value.shape[2:])
    spatial = [one for one in outputs if one.value.dim() == last.value.dim() > 2]
    arguments = [one.argument for one in spatial if math.prod(one.value.shape[2:]) <= size]
    larger = [one for one in spatial if math.prod(one.value.shape[2:]) > size]
    return next((one for one in larger if any(one.value is each for each in arguments)), None)


def _moments(at: LayerRun, batches: Sequence[Tensor], *, pooled: bool) -> Moments:
    """Estimate mean, standard deviation and activity of each feature, or of each channel if they are pooled."""
    count, total, squares, nonzero = 0, torch.zeros(()), torch.zeros(()), torch.zeros(())
    for batch in batches:
        features = at.read(batch).to("cpu", torch.float64)  # sums do not depend on the order of samples
        axes = (0, *range(2, features.dim())) if pooled else (0,)
        total = total + features.sum(dim=axes, keepdim=True)[0]
        squares = squares + features.square().sum(dim=axes, keepdim=True)[0]
        nonzero = nonzero + (features != 0).sum(dim=axes, keepdim=True)[0]
        count += math.prod(features.shape[axis] for axis in axes)
    mean = total / count
    std = (squares / count - mean.square()).clamp(min=0).sqrt().clamp(min=_LEAST_STD)
    return Moments(*(each.to(batches[0]) for each in (mean, std, nonzero / count > _ACTIVE)))


def whole_inputs(inputs: Tensor, copies: int) -> Tensor:
    """Return the input of each copy."""
    return inputs.repeat_interleave(copies, dim=0)


def corners(inputs: Tensor, copies: int) -> Tensor:
    """Return a corner of the input of each copy."""
    for axis in range(2, inputs.dim()):
        inputs = inputs.narrow(axis, 0, min(_CORNER, inputs.shape[axis]))
    return whole_inputs(inputs, copies)


def one_corner(inputs: Tensor, copies: int) -> Tensor:
    """Return a corner of one input, for models that do not count their inputs."""
    return corners(inputs[:1], 1)


def _find_stand_in(at: LayerRun, inputs: Tensor) -> StandIn:
    """Find the cheapest input with which replaced features lead to the same logits as their own inputs.

    If a shortcut bypasses the layer, only the inputs themselves do.
    """
    other = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0)).to(inputs)
    pair = torch.cat([inputs, other])
    features, expected = (t.repeat_interleave(2, dim=0) for t in (at.read(pair), at.model(pair)))
    for stand_in in (one_corner, corners):
        with suppress(Exception):  # the model may refuse such an input in any way
            logits = at.replace(features, stand_in(pair, 2))
            if logits.shape == expected.shape and torch.allclose(logits, expected, rtol=1e-3, atol=1e-4):
                return stand_in
    return whole_inputs
