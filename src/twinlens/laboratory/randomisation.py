"""Does a map depend on what the model has learned? The model-randomisation test of Adebayo et al. (2018).

Layers get random weights, one after the other, from the output down to the input. A method whose maps stay as they were
explains something else than the model.

Shapes: N samples, K steps of the cascade, F features.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from twinlens.attribution import attribute
from twinlens.core.arguments import checked
from twinlens.core.arrays import ArrayLike, Floats
from twinlens.core.calling import Labels, blaming, check_inputs, evaluating, find_device
from twinlens.core.correlation import pearson, spearman
from twinlens.core.maps import check_maps, spatial_shape
from twinlens.core.randomness import stream
from twinlens.core.resampling import Interval
from twinlens.laboratory.localisation import interval_of_mean

SIMILARITIES: dict[str, Callable[[Floats, Floats], Floats]] = {"spearman": spearman, "pearson": pearson}
"""Measures of similarity of two maps: 1 for alike, 0 for unrelated, -1 for opposite."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Randomisation:
    """Similarity of maps to those of the trained model as ever more of the model is random."""

    layers: tuple[str, ...]
    """(K,) the layer randomised in each step, the output's first."""

    values: Floats
    """(K, N) similarity of each sample's map to that of the trained model; NaN where one of the two is constant."""

    similarity: str
    """The measure: a name in `SIMILARITIES`."""

    ids: tuple[str, ...]
    """One name per sample."""

    def __repr__(self) -> str:
        return (
            f"Randomisation({self.similarity}, {len(self.layers)} layers, {len(self.ids)} samples, in the end "
            f"{self.intervals()[-1]})"
        )

    def intervals(self, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> list[Interval[float]]:
        """Return the mean similarity after each step with its bootstrap interval."""
        return [interval_of_mean(row, self.ids, confidence, resamples=resamples, seed=seed) for row in self.values]

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """Return one row per step: layer, mean similarity, its interval, and the number of samples with a value."""
        found = self.intervals(confidence)
        return pd.DataFrame(
            {
                "layer": self.layers,
                "similarity": [np.nan if each.value is None else each.value for each in found],
                "low": [each.low for each in found],
                "high": [each.high for each in found],
                "defined": np.isfinite(self.values).sum(axis=1),
            }
        )


@checked
def model_randomisation(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    similarity: str = "spearman",
    layers: Sequence[str] | None = None,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    **options: Any,
) -> Randomisation:
    """Randomise a copy of the model layer by layer, from the output down, and compare its maps with the original's.

    A step is a layer with weights, together with what normalises its output. Weights are drawn anew as the layer was
    initialised; parameters of a module that does not know how are drawn with their own mean and deviation.

    Args:
        model: a module that returns logits; it is not changed.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        method: a name in `METHODS`, or a function of the same signature.
        similarity: a name in `SIMILARITIES`.
        layers: dotted names of the layers to randomise, in this order; by default all of them, from the output down.
        ids: one name per sample.
        seed: seed of the weights, and of a method with random draws.
        **options: options of the method.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> check = model_randomisation(model, torch.randn(20, 8), [0] * 20, "saliency")
        >>> check.layers
        ('2', '0')
    """
    if similarity not in SIMILARITIES:
        raise ValueError(f"`similarity` must be one of {', '.join(SIMILARITIES)}; got {similarity!r}.")
    given, names = check_inputs(inputs, ids)
    copied = copy.deepcopy(model)
    steps = _steps(copied, given[:1])
    if layers is not None:
        steps = _chosen(copied, steps, layers)

    def explain() -> Floats:
        maps = attribute(copied, given, targets, method, ids=names, seed=seed, **options)
        return check_maps(maps, spatial_shape(given.shape), ids=names).flatten(1).double().cpu().numpy()

    first, rows = explain(), []
    for name, parts in steps.items():
        for place, part in enumerate(parts):
            _randomise(part, stream(seed, "randomised layer", name, place))
        rows.append(SIMILARITIES[similarity](first, explain()))
    return Randomisation(layers=tuple(steps), values=np.stack(rows), similarity=similarity, ids=names)


def _steps(model: nn.Module, example: Tensor) -> dict[str, list[nn.Module]]:
    """List the modules of each step by the name of its layer with weights, the last one called first."""
    called: dict[str, nn.Module] = {}

    def note(name: str) -> Callable[[nn.Module, Any], None]:
        return lambda part, _: called.update({name: called.get(name, part)})

    handles = [
        part.register_forward_pre_hook(note(name))
        for name, part in model.named_modules()
        if any(True for _ in part.parameters(recurse=False))
    ]
    device, dtype = find_device(model, None)
    try:
        with evaluating(model), torch.no_grad(), blaming("model"):
            model(example.to(device=device, dtype=dtype or example.dtype))
    finally:
        for handle in handles:
            handle.remove()
    steps: dict[str, list[nn.Module]] = {}
    waiting: list[nn.Module] = []
    for name, part in reversed(called.items()):
        waiting.append(part)
        # Scale and shift alone, as of batch normalisation, belong to the layer before.
        if any(weight.dim() > 1 for weight in part.parameters(recurse=False)):
            steps[name], waiting = waiting, []
    if not steps:
        raise ValueError("`model` must have layers with weights to randomise; it has none.")
    steps[next(reversed(steps))].extend(waiting)
    return steps


def _chosen(model: nn.Module, steps: dict[str, list[nn.Module]], layers: Sequence[str]) -> dict[str, list[nn.Module]]:
    if not layers:
        raise ValueError("`layers` must name at least one layer; got none.")
    known = dict(model.named_modules())
    chosen = {}
    for name in layers:
        inside = list(known[name].modules()) if name in known else []
        found = [part for part in inside if any(True for _ in part.parameters(recurse=False))]
        if not found:
            raise ValueError(f"`layers` must name layers with weights, such as {next(iter(steps))!r}; got {name!r}.")
        chosen[name] = steps.get(name, found)
    return chosen


def _randomise(part: nn.Module, seed: int) -> None:
    """Draw the parameters of one module anew, leaving torch's own generator as it was."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        # A module with parts may reset these as well, before it is their turn.
        if callable(reset := getattr(part, "reset_parameters", None)) and not any(True for _ in part.children()):
            device = next(part.parameters()).device
            part.cpu()  # so that weights are the same on every device
            reset()
            part.to(device)
            return
        for weight in part.parameters(recurse=False):
            values = weight.float()
            drawn = torch.randn(weight.shape) * values.std(correction=0).cpu() + values.mean().cpu()
            weight.copy_(drawn.to(weight))
