"""Null player and class sensitivity on features that the model itself generates (Khakzar et al. 2022).

"Do explanations explain? Model knows best" asks the model which inputs do what: two patches on a noisy background are
optimised until patch A alone makes the model predict class a, patch B alone class b, and neither changes the other's
class, whether the other one is there or not. What contributes to a class is then known, whatever a person sees:

* null player: B contributes nothing to class a, so that the map of class a must be empty there;
* class sensitivity: classes a and b rest on different patches, so that their maps must not overlap there.

As in the authors' code, a patch has 0.38 of the input's sides, the background is noise, and a pair is taken as soon as
each patch alone is predicted as its class and changes the other's by at most 0.14. Other than there, the pixels of a
patch are optimised themselves, by Adam, and not a network that draws them; background and places stay the same, so that
what is known holds for the very input that is explained; changes are measured in logits, relative to what the class's
own patch adds, with the other patch there and not; noise lies around the median of the data; and a probability of 1/2
is enough by default, where the authors, on ImageNet, ask for 0.94.

Shapes: T pairs, N pairs that were found, C channels, S = spatial shape, P pixels of a patch, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.attribution.harness import at_least_one, undisturbed
from twinlens.integrations.explanations import attribute
from twinlens.probing.maps import check_maps, normalise, spatial_shape
from twinlens.probing.model_call import blaming, check_inputs, find_device
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats
from twinlens.support.estimate import Estimate
from twinlens.support.randomness import check_seed, stream

SIDE, CHANGE = 0.38, 0.14
"""Side of a patch as share of the input's, and the most that a patch may change the other's class."""

_RATE, _APART = 0.2, 10.0  # learning rate, and weight of what must not change
_FIRST = 100  # steps in which patches only have to be predicted
_NOISE = 0.05  # deviation of a background from the median of the examples, as share of their range
_TOGETHER = 100_000  # input values that are optimised at a time


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GeneratedFeatures:
    """Inputs with two patches, each of which contributes to one class alone."""

    inputs: Tensor
    """(N, C, *S), both patches on their background."""

    classes: NDArray[np.int64]
    """(N, 2) the class that each patch stands for."""

    patches: Tensor
    """(N, 2, *S) bool, True where each patch is."""

    change: Floats
    """(N, 2) largest change that the other patch makes to a class's logit, relative to what its own patch adds."""

    tried: int
    """Number of pairs that were tried; those that were not found are not among the inputs."""

    ids: tuple[str, ...]
    """One name per pair."""

    def __repr__(self) -> str:
        return f"GeneratedFeatures({len(self.ids)} of {self.tried} pairs)"

    def maps(self, model: nn.Module, method: str | Callable[..., Tensor], *, seed: int = 0, **options: Any) -> Tensor:
        """Explain both classes of each input, (N, 2, *S)."""
        spatial = spatial_shape(self.inputs.shape)
        both = []
        for column in self.classes.T:
            try:
                maps = attribute(model, self.inputs, column, method, ids=self.ids, seed=seed, **options)
            except ValueError as error:
                if not str(error).startswith("`targets`"):
                    raise
                raise ValueError(f"`model` must be the one that `features` were generated for. {error}") from None
            both.append(check_maps(maps, spatial, ids=self.ids).double().cpu())
        return torch.stack(both, dim=1)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AxiomTest:
    """How far the maps of generated features break an axiom."""

    axiom: str
    """"null player" or "class sensitivity"."""

    values: Floats
    """(N,) from 0, which conforms, to 1; NaN where a map is zero on both patches."""

    ids: tuple[str, ...]
    """One name per pair."""

    def __repr__(self) -> str:
        return f"AxiomTest({self.axiom} {self.interval()}, {len(self.ids)} pairs)"

    def interval(self, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> Estimate:
        """Return the mean with its bootstrap interval."""
        return Estimate.of_mean(self.values, self.ids, confidence, resamples=resamples, seed=seed)


@checked
def null_player(
    model: nn.Module,
    features: GeneratedFeatures,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    seed: int = 0,
    **options: Any,
) -> AxiomTest:
    """Measure the share of attribution on the patch that contributes nothing (Khakzar et al. 2022).

    Of a class's attribution on the two patches, the share on the other class's patch, mean of both classes: 0 where the
    method obeys the axiom, 1/2 where it cannot tell the patches apart. The authors report null / own, which has no
    upper end; the share is null / (null + own).

    Args:
        model: the module that the features were generated for.
        features: see `generate_features`.
        method: a name in `METHODS`, or a function of the same signature.
        seed: seed of a method with random draws.
        **options: options of the method.
    """
    mass = _mass_on_patches(features, features.maps(model, method, seed=seed, **options))
    total, null = mass.sum(axis=2), np.stack([mass[:, 0, 1], mass[:, 1, 0]], axis=1)
    shares = np.divide(null, total, out=np.full_like(total, np.nan), where=total > 0)
    return AxiomTest(axiom="null player", values=_row_means(shares), ids=features.ids)


@checked
def class_sensitivity(
    model: nn.Module,
    features: GeneratedFeatures,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    seed: int = 0,
    **options: Any,
) -> AxiomTest:
    """Measure how far the maps of two classes that rest on different patches overlap (Khakzar et al. 2022).

    Each map is scaled to a maximum of 1. The sum over both patches of the smaller of the two maps, divided by what the
    maps have on their own patches, as in the authors' code: 0 where they have nothing in common; 1, which is also the
    most that is counted, for a method that shows the same map for every class.

    Arguments as for `null_player`.
    """
    both = features.maps(model, method, seed=seed, **options).flatten(0, 1)
    maps = normalise(both).reshape(-1, 2, *both.shape[1:])
    mass = _mass_on_patches(features, maps)
    smaller = maps.amin(dim=1, keepdim=True).expand_as(maps)
    common, own = np.trace(_mass_on_patches(features, smaller), axis1=1, axis2=2), mass[:, 0, 0] + mass[:, 1, 1]
    overlap = np.divide(common, own, out=np.full_like(own, np.nan), where=own > 0)
    nothing = (own == 0) & (mass.sum(axis=(1, 2)) > 0)  # all of it on the wrong patches
    return AxiomTest(axiom="class sensitivity", values=np.where(nothing, 1.0, overlap), ids=features.ids)


def _mass_on_patches(features: GeneratedFeatures, maps: Tensor) -> Floats:
    """Sum the attribution (N, 2 classes, 2 patches)."""
    inside = features.patches.flatten(2).double()
    return np.asarray(torch.einsum("ncf,npf->ncp", maps.flatten(2), inside).numpy())


def _row_means(values: Floats) -> Floats:
    known = np.isfinite(values)
    total = np.where(known, values, 0.0).sum(axis=1)
    return np.asarray(np.divide(total, known.sum(axis=1), out=np.full(len(values), np.nan), where=known.any(axis=1)))


@checked
def generate_features(
    model: nn.Module,
    inputs: ArrayLike,
    *,
    count: int = 100,
    steps: int = 600,
    probability: float = 0.5,
    seed: int = 0,
) -> GeneratedFeatures:
    """Generate inputs with two patches, each of which contributes to one class alone.

    Args:
        model: a module that returns logits; it is not changed.
        inputs: (N, C, *S) examples, which give the size and the range of each channel.
        count: number of pairs to try, each with two classes drawn by the seed.
        steps: most steps of the optimiser for a pair; one that is not found by then is given up.
        probability: that each patch alone must give its class, at least.
        seed: seed of classes, backgrounds and places. A pair does not depend on how many others there are.

    Raises:
        ValueError: if not a single pair was found.
    """
    check_seed(seed)
    given, _ = check_inputs(inputs, None)
    if given.dim() < 3:
        raise ValueError(
            f"`inputs` must have space for patches, (samples, channels, *spatial); got {tuple(given.shape)}."
        )
    at_least_one(count=count, steps=steps)
    if not 0 <= probability < 1:
        raise ValueError(f"`probability` must lie within [0, 1); got {probability!r}.")
    device, dtype = find_device(model, None)
    examples = given.to(dtype or given.dtype)
    found: list[_Pair] = []
    with undisturbed(model), blaming("model"):
        search = _Search(model, examples, device, probability, seed)
        together = max(1, _TOGETHER // examples[0].numel())
        for start in range(0, count, together):
            found += search.run(range(start, min(start + together, count)), steps)
    if not found:
        raise ValueError(
            f"`model` found none of {count} pairs of features in {steps} steps: no patch reached a probability of "
            f"{probability:g} for one class without changing another by more than {CHANGE:.0%}. Allow more steps, or a "
            "lower probability."
        )
    found.sort(key=lambda pair: pair.number)
    return GeneratedFeatures(
        inputs=torch.stack([pair.picture for pair in found]).cpu(),
        classes=np.array([pair.classes for pair in found]),
        patches=torch.stack([pair.patches for pair in found]).cpu(),
        change=np.array([pair.change for pair in found]),
        tried=count,
        ids=tuple(f"generated-{pair.number}" for pair in found),
    )


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Two patches that were found."""

    number: int
    classes: list[int]
    picture: Tensor
    patches: Tensor
    change: list[float]


class _Search:
    """Optimises the patches of some pairs at a time."""

    def __init__(self, model: nn.Module, examples: Tensor, device: torch.device, probability: float, seed: int) -> None:
        self.model, self.seed, self.device, self.probability = model, seed, device, probability
        self.spatial = tuple(examples.shape[2:])
        self.side = [max(1, min(round(SIDE * length), length // 2)) for length in self.spatial]
        values = examples.transpose(0, 1).flatten(1)
        low, high, middle = (v.to(device)[:, None] for v in (values.amin(1), values.amax(1), values.median(1).values))
        self.low, self.range, self.middle = low, high - low, middle
        with torch.no_grad(), blaming("model"):
            self.outputs = int(model(examples[:1].to(device)).shape[1])
        steps = [math.prod(self.spatial[axis + 1 :]) for axis in range(len(self.spatial))]
        self.stride = torch.tensor(steps)
        self.offsets = (torch.cartesian_prod(*map(torch.arange, self.side)).reshape(-1, len(steps)) * self.stride).sum(
            1
        )

    def run(self, numbers: range, steps: int) -> list[_Pair]:
        """Optimise the pairs with these numbers, and return those that were found."""
        draws = {number: torch.Generator().manual_seed(stream(self.seed, "generated", number)) for number in numbers}
        active, found = list(numbers), list[_Pair]()
        classes = {k: torch.randperm(self.outputs, generator=draws[k])[:2].tolist() for k in active}
        shape = len(self.low), math.prod(self.side)
        values = {k: torch.zeros(2, *shape, device=self.device, requires_grad=True) for k in active}
        optimisers = {k: torch.optim.Adam([values[k]], lr=_RATE) for k in active}
        scenes = {k: self._scene(draws[k]) for k in active}
        for step in range(steps):
            background, place = (torch.stack([scenes[k][part] for k in active]) for part in (0, 1))
            chosen = torch.tensor([classes[k] for k in active], device=self.device)
            with torch.enable_grad():
                patches = self.low + self.range * torch.stack([values[k] for k in active]).sigmoid()
                picture, loss, probability, change = self._ask(background, place, patches, chosen, step >= _FIRST)
                gradients = torch.autograd.grad(loss, [values[k] for k in active])
            good = ((probability > self.probability) & (change < CHANGE)).all(dim=1).tolist()
            for row, k in enumerate(list(active)):
                if good[row]:
                    found.append(self._pair(k, classes[k], picture[row].detach(), place[row], change[row].tolist()))
                    active.remove(k)
                else:
                    values[k].grad = gradients[row]
                    optimisers[k].step()
            if not active:
                break
        return found

    def _scene(self, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw a background (C, F), and the flattened places (2, P) of two patches that do not overlap."""
        noise = torch.randn(len(self.low), math.prod(self.spatial), generator=draws).to(self.low)
        background = (self.middle + _NOISE * self.range * noise).clamp(self.low, self.low + self.range)
        corners = torch.stack(
            [
                torch.randint(length - side + 1, (2,), generator=draws)
                for length, side in zip(self.spatial, self.side, strict=True)
            ],
            dim=1,
        )
        axis = int(torch.randint(len(self.spatial), (1,), generator=draws))
        length, side = self.spatial[axis], self.side[axis]
        first = int(torch.randint(length - 2 * side + 1, (1,), generator=draws))
        second = first + side + int(torch.randint(length - 2 * side - first + 1, (1,), generator=draws))
        order = torch.randperm(2, generator=draws)
        corners[:, axis] = torch.tensor([first, second])[order]
        place = (corners * self.stride).sum(dim=1)[:, None] + self.offsets
        return background, place.to(self.device)

    def _ask(
        self, background: Tensor, place: Tensor, patches: Tensor, classes: Tensor, apart: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return pictures (T, C, *S), the loss, probabilities (T, 2) and changes (T, 2)."""
        index = place.unsqueeze(2).expand(-1, -1, len(self.low), -1)
        alone = [background.scatter(2, index[:, k], patches[:, k]) for k in (0, 1)]
        both = alone[0].scatter(2, index[:, 1], patches[:, 1])
        pictures = torch.cat([background, *alone, both]).reshape(-1, len(self.low), *self.spatial)
        nothing, first, second, together = self.model(pictures).chunk(4)
        bare, joint = nothing.gather(1, classes), together.gather(1, classes)
        own = torch.stack([first.gather(1, classes[:, :1]), second.gather(1, classes[:, 1:])], dim=1)[..., 0]
        other = torch.stack([second.gather(1, classes[:, :1]), first.gather(1, classes[:, 1:])], dim=1)[..., 0]
        logs = torch.stack(
            [first.log_softmax(1).gather(1, classes[:, :1]), second.log_softmax(1).gather(1, classes[:, 1:])]
        )
        # What the other patch does to a class: beside its own patch, and on the bare background.
        gain = (own - bare).detach()
        beside, on_bare = ((one - other) / gain.clamp(min=1.0) for one, other in ((joint, own), (other, bare)))
        beyond = sum((relative.abs() - CHANGE / 2).clamp(min=0).square().sum() for relative in (beside, on_bare))
        loss = -logs.sum() + _APART * float(apart) * beyond
        change = torch.where(gain > 1, torch.maximum(beside.abs(), on_bare.abs()), math.inf).detach()
        return pictures.chunk(4)[3], loss, logs[..., 0].T.detach().exp(), change

    def _pair(self, number: int, classes: list[int], picture: Tensor, place: Tensor, change: list[float]) -> _Pair:
        mask = torch.zeros(2, math.prod(self.spatial), dtype=torch.bool, device=place.device)
        mask.scatter_(1, place, torch.ones_like(place, dtype=torch.bool))
        return _Pair(
            number=number,
            classes=classes,
            picture=picture,
            patches=mask.reshape(2, *self.spatial),
            change=change,
        )
