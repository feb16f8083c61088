"""Tasks whose predictive features are known.

The model of each task is set by hand, and the effect of every feature is known: its Shapley value for the model's score
of the label, with removed features set to zero. The information φ is the effect, and 0 where that is negative: as in
the paper's synthetic set, evidence against the label is not predictive information. Predictive features have φ > 0.

Shapes: N samples, F features, S = spatial shape of a map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.imputation.imputers import ConstantImputer, Imputer, LinearImputer
from twinlens.support.arrays import Floats
from twinlens.support.randomness import stream


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Task:
    """A model, its data, and what the model uses."""

    name: str
    """Name of the task."""

    model: Callable[[Tensor], Tensor]
    """From inputs to the float64 logits of three classes: no, yes, undecided."""

    inputs: Tensor
    """(N, F), or (N, C, H, W) for images; float64."""

    labels: NDArray[np.int64]
    """(N,) classes by the sign of the model's score."""

    effects: Floats
    """(N, *S) what each feature does for the score of the label: its Shapley value, negative if it speaks against."""

    imputer: Imputer
    """Fills in removed features."""

    @property
    def information(self) -> Floats:
        """(N, *S) φ, the predictive information of each feature."""
        return np.maximum(self.effects, 0.0)

    @property
    def predictive(self) -> NDArray[np.bool_]:
        """(N, *S) whether a feature is truly predictive."""
        return self.information > 0

    def __repr__(self) -> str:
        return f"Task({self.name}, {len(self.labels)} samples, {self.effects[0].size} features)"


_AGREEMENT = 0.7  # shift of a feature towards its label, in standard deviations: most evidence agrees


def _either(rng: np.random.Generator, samples: int) -> Floats:
    return rng.choice([-1.0, 1.0], size=(samples, 1))


def labelled_task(
    name: str,
    score: Callable[[Tensor], Tensor],
    inputs: Floats,
    shapley: Callable[[Floats], Floats],
    imputer: Imputer = ConstantImputer(0.0),
) -> Task:
    """Build a task that labels inputs by the sign of the score; `shapley` computes each feature's share of it."""
    batch = torch.from_numpy(inputs)
    scores = score(batch)
    # Scale the score to log-odds of the size that networks have.
    unit = 4 / scores.std().item()
    labels = (scores > 0).numpy().astype(np.int64)
    values = shapley(inputs)
    towards = np.where(labels == 1, 1.0, -1.0).reshape(-1, *[1] * (values.ndim - 1))
    # A third class wins until there is enough evidence, and accuracy grows with what is kept: with two classes a
    # single feature would be enough. It is predicted for one in ten of the original inputs.
    undecided = scores.abs().quantile(0.1).item()

    def model(x: Tensor) -> Tensor:
        yes = score(x.to(batch.dtype))  # a run passes float32
        return unit / 2 * torch.stack([-yes, yes, torch.full_like(yes, undecided)], dim=1)

    return Task(
        name=name,
        model=model,
        inputs=batch,
        labels=labels,
        effects=towards * values,
        imputer=imputer,
    )


def linear(samples: int = 300, *, features: int = 200, seed: int = 0) -> Task:
    """Build the paper's synthetic set: the sign of a sum of independent features.

    About half of a sample's features count against its label; attribution on these is false.

    Example:
        >>> linear(3, features=10).predictive.shape
        (3, 10)
    """
    inputs = np.random.default_rng(stream(seed, "linear")).normal(size=(samples, features))
    return labelled_task("linear", lambda x: x.sum(dim=1), inputs, lambda x: x)


def sparse_linear(samples: int = 300, *, features: int = 200, seed: int = 0) -> Task:
    """Build a linear model with every second weight zero.

    Example:
        >>> sparse_linear(4, features=10).predictive[:, 1::2].any()
        np.False_
    """
    rng = np.random.default_rng(stream(seed, "sparse_linear"))
    weights = rng.normal(size=features) * (np.arange(features) % 2 == 0)
    inputs = rng.normal(size=(samples, features)) + _AGREEMENT * _either(rng, samples) * np.sign(weights)
    tensor = torch.from_numpy(weights)
    return labelled_task("sparse linear", lambda x: x @ tensor, inputs, lambda x: x * weights)


def interaction(samples: int = 300, *, features: int = 200, groups: int = 50, partners: int = 2, seed: int = 0) -> Task:
    """Build an XOR-like model: a sum of `groups` products of `partners` features, none of which is predictive alone.

    Example:
        >>> interaction(4, features=10, groups=2).predictive[:, 4:].any()
        np.False_
    """
    rng = np.random.default_rng(stream(seed, "interaction"))
    inputs, read = rng.normal(size=(samples, features)), groups * partners
    others = inputs[:, groups:read].reshape(samples, partners - 1, groups).prod(axis=1)
    inputs[:, :groups] += _AGREEMENT * _either(rng, samples) * np.sign(others)

    def score(x: Tensor) -> Tensor:
        return x[:, :read].reshape(-1, partners, groups).prod(dim=1).sum(dim=1)

    def shapley(x: Floats) -> Floats:
        product = x[:, :read].reshape(-1, partners, groups).prod(axis=1)
        return np.pad(np.tile(product / partners, (1, partners)), ((0, 0), (0, features - read)))

    return labelled_task("interaction", score, inputs, shapley)


def network(samples: int = 300, *, features: int = 100, planted: int = 12, depth: int = 1, seed: int = 0) -> Task:
    """Build a multilayer perceptron with random weights that reads the first `planted` features.

    It has `depth` hidden layers of 32 units. The Shapley values are exact, from all 2^planted sets of these features.

    Example:
        >>> network(4, features=20, planted=3).predictive[:, 3:].any()
        np.False_
    """
    rng = np.random.default_rng(stream(seed, "network"))
    first, last = rng.normal(size=(planted, 32)) / 2, rng.normal(size=32)
    inputs = rng.normal(size=(samples, features))
    sign = _either(rng, samples)
    between = [rng.normal(size=(32, 32)) / np.sqrt(32) for _ in range(depth - 1)]
    together = np.linalg.multi_dot([first, *between, last])
    inputs[:, :planted] += _AGREEMENT * sign * np.sign(together)

    def score(x: Tensor) -> Tensor:
        hidden = x[:, :planted]
        for weights in (first, *between):
            hidden = torch.tanh(hidden @ torch.from_numpy(weights))
        return hidden @ torch.from_numpy(last)

    def shapley(x: Floats) -> Floats:
        read = _shapley(lambda part: score(torch.from_numpy(part)).numpy(), x[:, :planted])
        return np.pad(read, ((0, 0), (0, features - planted)))

    return labelled_task("network", score, inputs, shapley)


def suppressor(samples: int = 300, *, features: int = 200, informative: int = 50, seed: int = 0) -> Task:
    """Build a linear model that reads suppressors, as in XAI-TRIS (Clark et al. 2024).

    Informative features carry the label and noise. Each shares its noise with a suppressor, which is independent of
    the label, and which the model subtracts to cancel that noise. Other features are not read. A suppressor is
    predictive for a sample if the noise that it cancels counts against the label, for about every second one, although
    it says nothing about the label by itself.

    Example:
        >>> suppressor(4, features=10, informative=3).predictive[:, 6:].any()
        np.False_
    """
    rng = np.random.default_rng(stream(seed, "suppressor"))
    weights, inputs = rng.normal(size=informative), rng.normal(size=(samples, features))
    noise, own = inputs[:, informative : 2 * informative], inputs[:, :informative].copy()
    inputs[:, :informative] = _AGREEMENT * _either(rng, samples) * np.sign(weights) + noise + own / 2
    signed = np.concatenate([weights, -weights, np.zeros(features - 2 * informative)])
    return labelled_task("suppressor", lambda x: x @ torch.from_numpy(signed), inputs, lambda x: x * signed)


def _shapley(score: Callable[[Floats], Floats], inputs: Floats) -> Floats:
    """Compute exact Shapley values (N, P) of few features P, where an absent feature is zero."""
    count = inputs.shape[1]
    present = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    size = present.sum(axis=1)
    worth = np.stack([score(inputs * row) for row in present], axis=1)
    # A set of s features without the feature in question comes before it in s! (P - s - 1)! of the P! orders.
    factorial = np.cumprod(np.r_[1.0, np.arange(1, count + 1)])
    values = np.empty_like(inputs)
    for feature in range(count):
        without = np.flatnonzero(present[:, feature] == 0)
        share = factorial[size[without]] * factorial[count - size[without] - 1] / factorial[count]
        values[:, feature] = (worth[:, without + 2**feature] - worth[:, without]) @ share
    return values


def patch(samples: int = 200, *, side: int = 20, patch: int = 6, seed: int = 0) -> Task:
    """Build images with a pattern at a fixed position, and a network that reads only this position.

    Removed pixels are interpolated from their neighbours, which leaks some information.

    Example:
        >>> patch(2, side=10, patch=3).predictive.sum(axis=(1, 2))
        array([9, 9])
    """
    rng = np.random.default_rng(stream(seed, "patch"))
    start = (side - patch) // 2
    template = np.zeros((side, side))
    template[start : start + patch, start : start + patch] = rng.choice([-1.0, 1.0], size=(patch, patch))
    sign = rng.choice([-1.0, 1.0], size=(samples, 1, 1, 1))
    background = 0.5 * rng.normal(size=(samples, 1, side, side)) * (template == 0)
    # Contrast differs between images: they are recognised at different levels.
    contrast = sign * rng.lognormal(sigma=0.6, size=(samples, 1, 1, 1))
    inputs = background + contrast * template * rng.uniform(0.2, 1.0, size=(samples, 1, side, side))
    weights = torch.from_numpy(template)

    def score(x: Tensor) -> Tensor:
        read = (x[:, 0] * weights).sum(dim=(1, 2))
        return torch.relu(read) - torch.relu(-read)

    return labelled_task("patch", score, inputs, lambda x: x[:, 0] * template, LinearImputer())


TASKS: dict[str, Callable[..., Task]] = {
    "linear": linear,
    "sparse linear": sparse_linear,
    "interaction": interaction,
    "network": network,
    "suppressor": suppressor,
    "patch": patch,
}
"""Tasks by name; each takes a number of samples and a seed."""


def map_grid(task: Task, *, seed: int = 0) -> dict[str, Floats]:
    """Derive maps (N, *S) from the truth that are wrong in a known way.

    Removing attribution lowers completeness only; introducing it on features that are not predictive lowers soundness
    only.

    Example:
        >>> list(map_grid(linear(4)))[:3]
        ['truth', 'removed 0.25', 'removed 0.5']
    """
    rng = np.random.default_rng(stream(seed, "maps", task.name))
    truth = task.information
    peak = truth.max(axis=tuple(range(1, truth.ndim)), keepdims=True)
    maps = {"truth": truth}
    for share in (0.25, 0.5, 0.75):
        maps[f"removed {share:g}"] = truth * (rng.random(truth.shape) >= share)
    for strength in (0.25, 0.5, 1.0):
        maps[f"introduced {strength:g}"] = truth + strength * peak * rng.random(truth.shape) * ~task.predictive
    return maps | {"random": rng.random(truth.shape), "inverted": peak - truth}
