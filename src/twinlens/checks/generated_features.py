"""Null player and class sensitivity on features that the model itself generates (Khakzar et al. 2022).

"Do explanations explain? Model knows best": two patches on a noisy background are optimised until patch A alone makes
the model predict class a, patch B alone class b, and neither changes the other's class, with or without the other
patch. What contributes to a class is then known:

* null player: B contributes nothing to class a, and the map of class a should be empty there;
* class sensitivity: classes a and b rest on different patches, and their maps should not overlap there.

As in the authors' code, a patch has 0.38 of the input's sides, the background is noise, and a pair is accepted once
each patch alone is predicted as its class and changes the other's by at most 0.14. Differences from it: Adam optimises
the pixels of a patch instead of a network that draws them; background and positions are fixed, and the result holds for
the very input that is explained; changes are measured in logits, relative to what the class's own patch adds, with and
without the other patch; noise lies around the median of the data; and the default probability is 1/2, where the authors
require 0.94 on ImageNet.

Shapes: T pairs, N pairs that succeeded, C channels, S = spatial shape, P pixels of a patch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.attribution.harness import at_least_one, undisturbed
from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.sample_scores import SampleScores, mean_of_defined
from twinlens.integrations.explanations import attribute
from twinlens.probing.maps import check_maps, normalise, spatial_shape
from twinlens.probing.model_call import blaming, check_inputs, find_device
from twinlens.run.check_records import CheckColumn, MethodCheck
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats
from twinlens.support.randomness import stream

SIDE, CHANGE = 0.38, 0.14
"""Side of a patch as a share of the input's, and the largest relative change of the other patch's class."""

_RATE, _PENALTY = 0.2, 10.0  # learning rate, and weight of changes to the other class
_WARM_UP = 100  # steps without this penalty
_NOISE = 0.05  # deviation of a background from the median of the examples, as a share of their range
_BATCH = 100_000  # input values that are optimised at once
_Pair = tuple[Tensor, list[int], Tensor, list[float]]  # picture, classes, patches, change


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GeneratedFeatures:
    """Inputs with two patches, each of which contributes to one class only."""

    inputs: Tensor
    """(N, C, *S), both patches on their background."""

    classes: NDArray[np.int64]
    """(N, 2) the class of each patch."""

    patches: Tensor
    """(N, 2, *S) bool, True where each patch is."""

    change: Floats
    """(N, 2) largest change of a class's logit by the other patch, relative to what its own patch adds."""

    tried: int
    """Number of pairs tried, including those that failed."""

    ids: tuple[str, ...]
    """Ids of the pairs."""

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


@checked
def null_player(
    model: nn.Module,
    features: GeneratedFeatures,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    seed: int = 0,
    **options: Any,
) -> SampleScores:
    """Measure the share of attribution on the patch that contributes nothing (Khakzar et al. 2022).

    The share null / (null + own) of a class's attribution on the two patches, averaged over both classes: 0 if the
    method obeys the axiom, 1/2 if it cannot tell the patches apart, NaN if a map is zero on both. The authors report
    null / own, which has no upper limit.

    Args:
        model: the module that the features were generated for.
        features: see `generate_features`.
        method: a name in `METHODS`, or a function of the same signature.
        seed: seed of the method.
        **options: options of the method.
    """
    mass = _mass_on_patches(features, features.maps(model, method, seed=seed, **options))
    total, null = mass.sum(axis=2), np.stack([mass[:, 0, 1], mass[:, 1, 0]], axis=1)
    shares = np.divide(null, total, out=np.full_like(total, np.nan), where=total > 0)
    return SampleScores(name="null player", values=mean_of_defined(shares.T), ids=features.ids)


@checked
def class_sensitivity(
    model: nn.Module,
    features: GeneratedFeatures,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    seed: int = 0,
    **options: Any,
) -> SampleScores:
    """Measure the overlap of the maps of two classes that rest on different patches (Khakzar et al. 2022).

    Each map is scaled to a maximum of 1. As in the authors' code, the overlap is the sum over both patches of the
    smaller of the two maps, divided by the maps' values on their own patches: 0 if they have nothing in common, 1 if
    the map is the same for every class, NaN if a map is zero on both patches. Arguments as for `null_player`.
    """
    both = features.maps(model, method, seed=seed, **options).flatten(0, 1)
    maps = normalise(both).reshape(-1, 2, *both.shape[1:])
    mass = _mass_on_patches(features, maps)
    smaller = maps.amin(dim=1, keepdim=True).expand_as(maps)
    common, own = np.trace(_mass_on_patches(features, smaller), axis1=1, axis2=2), mass[:, 0, 0] + mass[:, 1, 1]
    overlap = np.divide(common, own, out=np.full_like(own, np.nan), where=own > 0)
    wrong = (own == 0) & (mass.sum(axis=(1, 2)) > 0)  # all attribution is on the other class's patch
    return SampleScores(name="class sensitivity", values=np.where(wrong, 1.0, overlap), ids=features.ids)


def _mass_on_patches(features: GeneratedFeatures, maps: Tensor) -> Floats:
    """Sum the attribution (N, 2 classes, 2 patches)."""
    inside = features.patches.flatten(2).double()
    return np.asarray(torch.einsum("ncf,npf->ncp", maps.flatten(2), inside).numpy())


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
    """Generate inputs with two patches, each of which contributes to one class only.

    Args:
        model: a module that returns logits; it is not changed.
        inputs: (N, C, *S) examples, for the shape and the range of each channel.
        count: number of pairs to try, each with two classes drawn by the seed.
        steps: largest number of optimiser steps for a pair, after which it is given up.
        probability: smallest probability of its class that each patch alone must reach.
        seed: seed of classes, backgrounds and positions. A pair does not depend on the number of other pairs.

    Raises:
        ValueError: if no pair succeeded.
    """
    examples, _ = check_inputs(inputs, None)
    if examples.dim() < 3:
        raise ValueError(
            f"`inputs` must have space for patches, (samples, channels, *spatial); got {tuple(examples.shape)}."
        )
    at_least_one(count=count, steps=steps)
    if not 0 <= probability < 1:
        raise ValueError(f"`probability` must lie within [0, 1); got {probability!r}.")
    device, dtype = find_device(model, None)
    examples = examples.to(dtype or examples.dtype)
    pairs: dict[int, _Pair] = {}
    with undisturbed(model), blaming("model"):
        search = _PatchSearch(model, examples, device, probability, seed)
        batch = max(1, _BATCH // examples[0].numel())
        for start in range(0, count, batch):
            pairs |= search.run(range(start, min(start + batch, count)), steps)
    if not pairs:
        raise ValueError(
            f"`model` generated none of {count} pairs of features in {steps} steps: no patch reached a probability of "
            f"{probability:g} for one class without changing another by more than {CHANGE:.0%}. Allow more steps, or a "
            "lower probability."
        )
    pictures, classes, patches, changes = zip(*(pairs[number] for number in sorted(pairs)), strict=True)
    return GeneratedFeatures(
        inputs=torch.stack(pictures).cpu(),
        classes=np.array(classes),
        patches=torch.stack(patches).cpu(),
        change=np.array(changes),
        tried=count,
        ids=tuple(f"generated-{number}" for number in sorted(pairs)),
    )


class _PatchSearch:
    """Optimises the patches of several pairs at once."""

    def __init__(self, model: nn.Module, examples: Tensor, device: torch.device, probability: float, seed: int) -> None:
        self.model, self.seed, self.device, self.probability = model, seed, device, probability
        self.spatial = tuple(examples.shape[2:])
        self.side = [max(1, min(round(SIDE * length), length // 2)) for length in self.spatial]
        values = examples.transpose(0, 1).flatten(1)
        low, high, middle = (v.to(device)[:, None] for v in (values.amin(1), values.amax(1), values.median(1).values))
        self.low, self.range, self.middle = low, high - low, middle
        with torch.no_grad(), blaming("model"):
            self.outputs = int(model(examples[:1].to(device)).shape[1])
        self.stride = torch.tensor([math.prod(self.spatial[axis + 1 :]) for axis in range(len(self.spatial))])
        offsets = torch.cartesian_prod(*map(torch.arange, self.side)).reshape(-1, len(self.side))
        self.offsets = (offsets * self.stride).sum(1)

    def run(self, numbers: range, steps: int) -> dict[int, _Pair]:
        """Optimise the pairs with these numbers and return those that succeeded, by number."""
        draws = {number: torch.Generator().manual_seed(stream(self.seed, "generated", number)) for number in numbers}
        active, pairs = list(numbers), dict[int, _Pair]()
        classes = {k: torch.randperm(self.outputs, generator=draws[k])[:2].tolist() for k in active}
        shape = len(self.low), math.prod(self.side)
        values = {k: torch.zeros(2, *shape, device=self.device, requires_grad=True) for k in active}
        optimisers = {k: torch.optim.Adam([values[k]], lr=_RATE) for k in active}
        scenes = {k: self._scene(draws[k]) for k in active}
        for step in range(steps):
            background, position = (torch.stack([scenes[k][part] for k in active]) for part in (0, 1))
            targets = torch.tensor([classes[k] for k in active], device=self.device)
            with torch.enable_grad():
                patches = self.low + self.range * torch.stack([values[k] for k in active]).sigmoid()
                picture, loss, probability, change = self._evaluate(
                    background, position, patches, targets, step >= _WARM_UP
                )
                gradients = torch.autograd.grad(loss, [values[k] for k in active])
            good = ((probability > self.probability) & (change < CHANGE)).all(dim=1).tolist()
            for row, k in enumerate(list(active)):
                if good[row]:
                    inside = torch.zeros(2, math.prod(self.spatial), dtype=torch.bool, device=self.device)
                    inside = inside.scatter(1, position[row], True).reshape(2, *self.spatial)
                    pairs[k] = picture[row].detach(), classes[k], inside, change[row].tolist()
                    active.remove(k)
                else:
                    values[k].grad = gradients[row]
                    optimisers[k].step()
            if not active:
                break
        return pairs

    def _scene(self, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw a background (C, F) and the flat positions (2, P) of two patches that do not overlap."""
        noise = torch.randn(len(self.low), math.prod(self.spatial), generator=draws).to(self.low)
        background = (self.middle + _NOISE * self.range * noise).clamp(self.low, self.low + self.range)
        room = [length - side + 1 for length, side in zip(self.spatial, self.side, strict=True)]
        corners = torch.stack([torch.randint(each, (2,), generator=draws) for each in room], dim=1)
        axis = int(torch.randint(len(self.spatial), (1,), generator=draws))
        length, side = self.spatial[axis], self.side[axis]
        first = int(torch.randint(length - 2 * side + 1, (1,), generator=draws))
        second = first + side + int(torch.randint(length - 2 * side - first + 1, (1,), generator=draws))
        order = torch.randperm(2, generator=draws)
        corners[:, axis] = torch.tensor([first, second])[order]
        position = (corners * self.stride).sum(dim=1)[:, None] + self.offsets
        return background, position.to(self.device)

    def _evaluate(
        self, background: Tensor, position: Tensor, patches: Tensor, classes: Tensor, penalised: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return pictures (T, C, *S), the loss, probabilities (T, 2) and changes (T, 2)."""
        index = position.unsqueeze(2).expand(-1, -1, len(self.low), -1)
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
        # Effect of the other patch on a class: next to its own patch, and on the bare background.
        gain = (own - bare).detach()
        beside, on_bare = ((one - other) / gain.clamp(min=1.0) for one, other in ((joint, own), (other, bare)))
        beyond = sum((relative.abs() - CHANGE / 2).clamp(min=0).square().sum() for relative in (beside, on_bare))
        loss = -logs.sum() + _PENALTY * float(penalised) * beyond
        change = torch.where(gain > 1, torch.maximum(beside.abs(), on_bare.abs()), math.inf).detach()
        return pictures.chunk(4)[3], loss, logs[..., 0].T.detach().exp(), change


def _check_generated_features(run: CheckedRun, test: Callable[..., SampleScores]) -> CheckResult:
    features = generate_features(run.model, run.inputs, count=run.options.limit, seed=run.seed)

    def measure(name: str) -> MethodCheck:
        method, options = run.method(name)
        return MethodCheck(values=run.estimates([test(run.model, features, method, seed=run.seed, **options)]))

    note = f"{len(features.ids)} of {features.tried} pairs of features succeeded."
    return run.each_method(measure, samples=len(features.ids), notes=[note])


@partial(
    CheckDefinition,
    title="Null player",
    source="Khakzar et al. 2022, Do explanations explain? Model knows best",
    columns=(CheckColumn(title="share on the null feature", better="lower"),),
    options=("limit",),
)
def null_player_check(run: CheckedRun) -> CheckResult:
    """Do features that contribute nothing get no attribution?

    The model itself generates inputs with two patches, one of which contributes nothing to the class that is explained.
    The value is the share of the attribution on both that lies on this one: 0 obeys the axiom, 0.5 cannot tell them
    apart. Maps without negative values cannot cancel out, which counts against methods that do.
    """
    return _check_generated_features(run, null_player)


@partial(
    CheckDefinition,
    title="Class sensitivity",
    source="Khakzar et al. 2022, Do explanations explain? Model knows best",
    columns=(CheckColumn(title="overlap", better="lower"),),
    options=("limit",),
)
def class_sensitivity_check(run: CheckedRun) -> CheckResult:
    """Do maps of two classes with different evidence differ?

    The model itself generates inputs with two patches, each of which contributes to one class only. The value is the
    overlap of the two classes' maps on them: 0 if they have nothing in common, 1 for a method that shows every class
    the same map.
    """
    return _check_generated_features(run, class_sensitivity)
