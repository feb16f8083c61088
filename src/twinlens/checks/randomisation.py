"""Does a map depend on what the model has learned? Randomisation of the model, and of the labels it learned from.

Layers get random weights, one after the other, from the output down to the input; or a network is trained on permuted
labels (Adebayo et al. 2018, Sanity checks for saliency maps). A method whose maps stay as they were explains something
else than the model. The efficient variant (Hedström et al. 2023, Sanity checks revisited) compares no pixels: all
layers are randomised at once, and the complexity of a map has to rise.

Shapes: N samples, K steps of the cascade or networks, F features.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import entropy
from torch import Tensor, nn

from twinlens.integrations.explanations import attribute
from twinlens.models.training import USUAL, Training, accuracy, train
from twinlens.probing.maps import check_maps, spatial_shape
from twinlens.probing.model_call import Labels, blaming, check_inputs, evaluating, find_device
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats, as_tensor
from twinlens.support.correlation import pearson, spearman
from twinlens.support.estimate import Estimate
from twinlens.support.randomness import stream

_MOST_BINS = 10**6
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

    def intervals(self, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> list[Estimate]:
        """Return the mean similarity after each step with its bootstrap interval."""
        return [Estimate.of_mean(row, self.ids, confidence, resamples=resamples, seed=seed) for row in self.values]

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
    check_similarity(similarity)
    given, names = check_inputs(inputs, ids)
    copied = copy.deepcopy(model)
    steps = _steps(copied, given[:1])
    if layers is not None:
        steps = _chosen(copied, steps, layers)

    explain = _explainer(given, targets, method, names, seed, options)
    first, rows = explain(copied), []
    for name, parts in steps.items():
        _randomise(name, parts, seed)
        rows.append(SIMILARITIES[similarity](first, explain(copied)))
    return Randomisation(layers=tuple(steps), values=np.stack(rows), similarity=similarity, ids=names)


@checked
def data_randomisation(
    model: nn.Module,
    networks: Mapping[str, nn.Module],
    inputs: ArrayLike,
    targets: Labels,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    similarity: str = "spearman",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    **options: Any,
) -> Randomisation:
    """Compare a model's maps with those of networks that learned something else (Adebayo et al. 2018).

    One network was trained on permuted labels, `train_on_permuted_labels`. A second one, trained again on the true
    labels, shows how much of a difference is due to training alone.

    Args:
        model: a module that returns logits.
        networks: the networks to compare with, by name.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        method: a name in `METHODS`, or a function of the same signature.
        similarity: a name in `SIMILARITIES`.
        ids: one name per sample.
        seed: seed of a method with random draws.
        **options: options of the method.

    Returns:
        The similarity for each network, whose names stand for layers.

    Example:
        >>> x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        >>> model, other = (nn.Sequential(nn.Linear(4, 2)) for _ in range(2))
        >>> data_randomisation(model, {"itself": model, "other": other}, x, [1] * 64).layers
        ('itself', 'other')
    """
    check_similarity(similarity)
    if not networks:
        raise ValueError("`networks` must hold at least one network to compare with; got none.")
    given, names = check_inputs(inputs, ids)
    explain = _explainer(given, targets, method, names, seed, options)
    first = explain(model)
    rows = [SIMILARITIES[similarity](first, explain(network)) for network in networks.values()]
    return Randomisation(layers=tuple(networks), values=np.stack(rows), similarity=similarity, ids=names)


@checked
def train_on_permuted_labels(
    build: Callable[[], nn.Module],
    inputs: ArrayLike,
    labels: Labels,
    *,
    training: Training = USUAL,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> tuple[nn.Module, float]:
    """Train a network on labels that are permuted between the inputs; return it and the share of them that it learned.

    Adebayo et al. train until nearly all of them are learned: what a network has not learned cannot change its maps.
    Arguments as for `twinlens.models.training.train`.
    """
    targets = as_tensor(labels, "labels")
    order = torch.from_numpy(np.random.default_rng(stream(seed, "permuted labels")).permutation(len(targets)))
    network = train(build, inputs, targets[order], training=training, seed=seed, device=device)
    return network, accuracy(network, inputs, targets[order])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ComplexityRise:
    """Complexity of each map, for the trained model and for one of random weights."""

    before: Floats
    """(N,) entropy of the map of the trained model, in nats."""

    after: Floats
    """(N,) the same of the random model."""

    ids: tuple[str, ...]
    """One name per sample."""

    def __repr__(self) -> str:
        return f"ComplexityRise({self.interval()}, {len(self.ids)} samples)"

    @property
    def values(self) -> Floats:
        """(N,) relative rise, (after - before) / before; NaN where the trained model's map is constant."""
        rise = np.full(len(self.ids), np.nan)
        np.divide(self.after - self.before, self.before, out=rise, where=self.before > 0)
        return rise

    def interval(self, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> Estimate:
        """Return the mean rise with its bootstrap interval."""
        return Estimate.of_mean(self.values, self.ids, confidence, resamples=resamples, seed=seed)


@checked
def efficient_randomisation(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    bins: int = 100,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    **options: Any,
) -> ComplexityRise:
    """Measure how much more complex maps become when all weights are random: eMPRT (Hedström et al. 2023).

    Complexity is the entropy of the histogram of a map's values, with bins of equal width between its least and its
    largest, as in Quantus.

    Args:
        model: a module that returns logits; it is not changed.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        method: a name in `METHODS`, or a function of the same signature.
        bins: number of bins.
        ids: one name per sample.
        seed: seed of the weights, and of a method with random draws.
        **options: options of the method.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> efficient_randomisation(model, torch.randn(20, 8), [0] * 20, "saliency").before.shape
        (20,)
    """
    if not 2 <= bins <= _MOST_BINS:
        raise ValueError(f"`bins` must lie within [2, {_MOST_BINS}]; got {bins}.")
    given, names = check_inputs(inputs, ids)
    explain = _explainer(given, targets, method, names, seed, options)
    copied = copy.deepcopy(model)
    before = explain(copied)
    for name, parts in _steps(copied, given[:1]).items():
        _randomise(name, parts, seed)
    return ComplexityRise(before=_entropy(before, bins), after=_entropy(explain(copied), bins), ids=names)


def _entropy(maps: Floats, bins: int) -> Floats:
    return np.array([entropy(np.histogram(row, bins=bins)[0]) for row in maps])


def check_similarity(similarity: str) -> None:
    """Refuse a measure of similarity that there is not."""
    if similarity not in SIMILARITIES:
        raise ValueError(f"`similarity` must be one of {', '.join(SIMILARITIES)}; got {similarity!r}.")


def _explainer(
    inputs: Tensor,
    targets: Labels,
    method: str | Callable[..., Tensor],
    ids: tuple[str, ...],
    seed: int,
    options: Mapping[str, Any],
) -> Callable[[nn.Module], Floats]:
    """Return a function from a model to its maps of the inputs, (N, F)."""

    def explain(model: nn.Module) -> Floats:
        maps = attribute(model, inputs, targets, method, ids=ids, seed=seed, **options)
        return check_maps(maps, spatial_shape(inputs.shape), ids=ids).flatten(1).double().cpu().numpy()

    return explain


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


def _randomise(name: str, parts: Sequence[nn.Module], seed: int) -> None:
    """Draw the parameters of one step's modules anew."""
    for place, part in enumerate(parts):
        _draw_anew(part, stream(seed, "randomised layer", name, place))


def _draw_anew(part: nn.Module, seed: int) -> None:
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
