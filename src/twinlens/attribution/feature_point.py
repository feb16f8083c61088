"""A place in a model where hidden features can be read and replaced, and how they are distributed there.

Shapes: B samples of one batch, n copies of each, C channels of the input, S = its spatial shape, K channels of the
hidden layer, s = its spatial shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.attribution.feature_maps import Seen, choose, named_layer, refuse_programs, watching
from twinlens.attribution.harness import Request, target_logits, undisturbed
from twinlens.support.arrays import ArrayLike, as_tensor

_ACTIVE = 0.01  # least share of inputs for which a feature is not zero (Schulz et al. 2020)
_CORNER = 32  # side of the smallest input that common models accept, for a pass whose features are replaced anyway


@dataclass(frozen=True)
class Moments:
    """How features are distributed: what noise in their place looks like."""

    mean: Tensor
    """(K, *s), or (K, 1, …) where all places of a channel share it."""
    std: Tensor
    """The same shape."""
    active: Tensor
    """The same shape: 1, or 0 where a feature is zero for nearly every input, as units of a ReLU may be."""


@dataclass(frozen=True, kw_only=True)
class FeaturePoint:
    """A place in a model where its features can be read and replaced, and how they are distributed there."""

    model: nn.Module
    layer: nn.Module
    run: int
    """Which of the layer's runs in one pass is meant, from 1; an activation may serve the whole model."""
    moments: Moments
    stand_in: StandIn
    """The smallest input with which the model runs when features take the layer's place."""

    @classmethod
    def find(
        cls,
        model: nn.Module,
        request: Request,
        name: str | None,
        reference: ArrayLike | None,
        *,
        min_std: float,
    ) -> FeaturePoint:
        """Find the layer, by default the end of the last stage but one, and how its features are distributed."""
        if min_std <= 0:
            raise ValueError(f"`min_std` must be positive; got {min_std:g}.")
        samples = request.inputs if reference is None else as_tensor(reference, "reference").to(request.inputs)
        if samples.shape[1:] != request.inputs.shape[1:] or len(samples) == 0:
            raise ValueError(
                f"`reference` must hold inputs of shape {tuple(request.inputs.shape[1:])}, as `inputs`; got shape "
                f"{tuple(samples.shape)}."
            )
        with undisturbed(model), torch.no_grad():
            layer, run = _find_place(model, request, name)
            mean, std, nonzero = _moments(
                model, layer, run, samples, batch_size=request.batch_size, pooled=reference is None
            )
            return cls(
                model=model,
                layer=layer,
                run=run,
                moments=Moments(
                    mean.to(request.inputs),
                    std.clamp(min=min_std).to(request.inputs),
                    (nonzero > _ACTIVE).to(request.inputs),
                ),
                stand_in=_find_stand_in(model, layer, run, request.inputs[:1]),
            )

    def read(self, inputs: Tensor) -> Tensor:
        """Return the features (B, K, *s) of inputs, running the model no further than needed."""
        return _read(self.model, self.layer, self.run, inputs)

    def answer(self, inputs: Tensor, features: Tensor) -> Tensor:
        """Return logits (B·n, classes) for inputs (B, C, *S) when features (B, n, K, *s) take the layer's place."""
        rows = (features * self.moments.active).flatten(0, 1)
        with _hooked(self.layer, self.run, lambda *_: rows):
            return self.model(self.stand_in(inputs, features.shape[1]))


@contextmanager
def _hooked(layer: nn.Module, runs: int, hook: Callable[[nn.Module, object, Any], Any]) -> Iterator[None]:
    """Call the hook at the given run of the layer, counted from here."""
    run = 0

    def count(module: nn.Module, given: object, output: Any) -> Any:
        nonlocal run
        run += 1
        return hook(module, given, output) if run == runs else None

    handle = layer.register_forward_hook(count)
    try:
        yield
    finally:
        handle.remove()


def _find_place(model: nn.Module, request: Request, name: str | None) -> tuple[nn.Module, int]:
    """Find the layer, and which of its runs counts, from 1; check that the model has the target classes.

    The authors of IBA take a layer in the middle of a network: conv4_1 of VGG16, the second stage of ResNet-50. Where
    none is named it is the feature map from which the last stage starts.
    """
    refuse_programs(model)
    with watching(model, None) as seen:
        target_logits(model, request.inputs[:1], request.targets[:1])
    if name is not None:
        place = named_layer(model, name)
        runs = sum(one.place.source is place for one in seen)
        if not runs:
            raise ValueError(
                "`layer` must be a module that the model runs and that returns a tensor; this one is never called, or "
                "returns something else. Name another layer."
            )
        return place, runs
    last = choose(seen, activated=False)
    found = _before_last_stage(seen, last) or last
    assert found.place.source is not None
    return found.place.source, found.place.run + 1


def _before_last_stage(seen: Sequence[Seen], last: Seen) -> Seen | None:
    """Find what made the feature map from which the last stage starts; None where there is no stage before it.

    It is the earliest that a module of that stage reads: a shortcut may lead around all later ones.
    """
    size = math.prod(last.output.shape[2:])
    spatial = [one for one in seen if one.output.dim() == last.output.dim() > 2]
    readers = [one.given for one in spatial if math.prod(one.output.shape[2:]) <= size]
    larger = [one for one in spatial if math.prod(one.output.shape[2:]) > size]
    return next((one for one in larger if any(one.output is given for given in readers)), None)


class _Reached(Exception):  # noqa: N818 - not an error: the wanted features are there
    def __init__(self, features: Tensor) -> None:
        self.features = features


def _read(model: nn.Module, layer: nn.Module, runs: int, inputs: Tensor) -> Tensor:
    def stop(_module: nn.Module, _given: object, features: object) -> None:
        if not isinstance(features, Tensor) or features.dim() != inputs.dim() or len(features) != len(inputs):
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(
                "`layer` must give a convolutional feature map (samples, channels, *spatial) for a bottleneck; it "
                f"gives {shape}. Name another layer."
            )
        raise _Reached(features)

    try:
        with _hooked(layer, runs, stop):
            model(inputs)
    except _Reached as reached:
        return reached.features
    raise ValueError(f"`layer` must run {runs} times for every input, as it did for the first; this time it did not.")


def _moments(
    model: nn.Module, layer: nn.Module, runs: int, samples: Tensor, *, batch_size: int, pooled: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Estimate mean, standard deviation and share that is not zero, of each feature or of each channel.

    Sums in float64 make the order of samples irrelevant.
    """
    count, total, squares, nonzero = 0, torch.zeros(()), torch.zeros(()), torch.zeros(())
    for start in range(0, len(samples), batch_size):
        features = _read(model, layer, runs, samples[start : start + batch_size]).to("cpu", torch.float64)
        axes = (0, *range(2, features.dim())) if pooled else (0,)
        total = total + features.sum(dim=axes, keepdim=True)[0]
        squares = squares + features.square().sum(dim=axes, keepdim=True)[0]
        nonzero = nonzero + (features != 0).sum(dim=axes, keepdim=True)[0]
        count += math.prod(features.shape[axis] for axis in axes)
    mean = total / count
    return mean, (squares / count - mean.square()).clamp(min=0).sqrt(), nonzero / count


@dataclass(frozen=True)
class StandIn:
    """The input of a model whose layer's features are replaced; what the layers before it compute is thrown away."""

    every_row: bool
    """Pass as many rows as there are of features; otherwise a single one, which the layers behind accept."""

    whole: bool
    """Pass whole inputs; otherwise a corner, which the layers before accept."""

    def __call__(self, inputs: Tensor, copies: int) -> Tensor:
        """Return the rows to pass with features of so many copies of the inputs."""
        given = inputs if self.every_row else inputs[:1]
        for axis in range(2, 2 if self.whole else inputs.dim()):
            given = given.narrow(axis, 0, min(_CORNER, given.shape[axis]))
        return given.repeat_interleave(copies, dim=0) if self.every_row else given


def _find_stand_in(model: nn.Module, layer: nn.Module, runs: int, inputs: Tensor) -> StandIn:
    """Find the cheapest input with which features in the layer's place lead to the same logits as their own inputs.

    Where a shortcut leads around the layer, only the inputs themselves do.
    """
    other = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0)).to(inputs)
    pair = torch.cat([inputs, other])
    features, wanted = (t.repeat_interleave(2, dim=0) for t in (_read(model, layer, runs, pair), model(pair)))
    for every_row, whole in ((False, False), (False, True), (True, False)):
        stand_in = StandIn(every_row, whole)
        try:
            with _hooked(layer, runs, lambda *_: features):
                logits = model(stand_in(pair, 2))
        except Exception:  # whatever the model objects to, this stand-in will not do
            continue
        if logits.shape == wanted.shape and torch.allclose(logits, wanted, rtol=1e-3, atol=1e-4):
            return stand_in
    return StandIn(every_row=True, whole=True)
