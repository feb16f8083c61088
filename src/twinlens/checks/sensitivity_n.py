"""Sensitivity-n (Ancona et al. 2018): does the attribution of a set of features say how much the output needs them?

Random sets of n features are removed. A method satisfies sensitivity-n where the sum of a set's attribution equals the
drop of the target's output, and is judged by how the two correlate over the sets of a sample.

What the model answers does not depend on the maps: `random_removals` asks it once, for any number of methods.

Shapes: N samples, L sizes n, M random sets of each size, F features.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from twinlens.imputation.imputers import ConstantImputer, Imputer, find_imputer
from twinlens.probing.maps import check_maps
from twinlens.probing.model_call import Labels, Model, check_inputs, check_labels
from twinlens.probing.probe import ProbeOptions, Prober
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule, check_levels
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats, as_tensor
from twinlens.support.correlation import pearson
from twinlens.support.estimate import Estimate
from twinlens.support.randomness import stream
from twinlens.support.signatures import lists_options

_MOST_SUBSETS = 10**6
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Sizes n as shares of all features: in the paper, from one feature to about 80%."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SensitivityN:
    """How well sums of attribution tell drops of the output."""

    sizes: tuple[int, ...]
    """(L,) numbers n of features removed."""

    values: Floats
    """(L, N) correlation over the random sets; NaN where all sums, or all drops, of a sample are equal."""

    positive: bool
    """Whether the maps had no negative values: evidence against the target is then missing from the sums."""

    ids: tuple[str, ...]
    """One name per sample."""

    def __repr__(self) -> str:
        mean = Estimate.of_mean(self.mean_values, self.ids)
        return f"SensitivityN({mean} over n of {self.sizes[0]} to {self.sizes[-1]}, {len(self.ids)} samples)"

    @property
    def mean_values(self) -> Floats:
        """(N,) mean of a sample's correlations over the sizes that have one; NaN where none has."""
        known = np.isfinite(self.values)
        total, count = np.where(known, self.values, 0.0).sum(axis=0), known.sum(axis=0)
        return np.asarray(np.divide(total, count, out=np.full(len(self.ids), np.nan), where=count > 0))

    def intervals(self, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> list[Estimate]:
        """Return the mean correlation for each n with its bootstrap interval."""
        return [Estimate.of_mean(row, self.ids, confidence, resamples=resamples, seed=seed) for row in self.values]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RandomRemovals:
    """What a model answers when random sets of features are removed."""

    sizes: tuple[int, ...]
    """(L,) numbers n of features in a set."""

    drops: Floats
    """(L, N, M) drop of the target's logit."""

    spatial: tuple[int, ...]
    """Shape of a map."""

    ids: tuple[str, ...]
    """One name per sample."""

    seed: int
    """Seed of the sets."""

    def correlate(self, maps: ArrayLike) -> SensitivityN:
        """Correlate the drops with the attribution that was removed.

        Args:
            maps: (N, *S), with or without negative values.
        """
        magnitudes = check_maps(maps, self.spatial, ids=self.ids, sign="absolute")
        values = as_tensor(maps, "maps").reshape(magnitudes.shape).double().cpu().flatten(1)
        sums = np.empty_like(self.drops)
        for number in range(self.drops.shape[2]):
            order = _draw_orders(self.ids, values.shape[1], number, self.seed).argsort(dim=1, descending=True)
            removed = values.gather(1, order).cumsum(dim=1)[:, [size - 1 for size in self.sizes]]
            sums[:, :, number] = removed.T.numpy()
        found = np.stack([pearson(*both) for both in zip(sums, self.drops, strict=True)])
        return SensitivityN(sizes=self.sizes, values=found, positive=bool((values >= 0).all()), ids=self.ids)


@checked
@lists_options()
def random_removals(
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    *,
    shares: Sequence[float] = SHARES,
    subsets: int = 100,
    imputer: Imputer = ConstantImputer(0.0),
    **how: Unpack[ProbeOptions],
) -> RandomRemovals:
    """Remove random sets of features, and record the drops of the target's logit.

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) target classes.
        shares: sizes of the sets as shares of all features, increasing.
        subsets: number of sets of each size.
        imputer: fills in removed features; zero, as in the paper, by default.
    """
    if not 3 <= subsets <= _MOST_SUBSETS:
        raise ValueError(f"`subsets` must lie within [3, {_MOST_SUBSETS}], for a correlation; got {subsets}.")
    if how.get("segments") is not None:
        raise ValueError("`segments` are not taken here: sets are drawn of single places. Leave them out.")
    imputer = find_imputer(imputer)
    levels = check_levels("shares", shares, decreasing=False)
    _, names = check_inputs(inputs, how.get("ids"), tokens=True)
    prober = Prober(model, inputs, check_labels(targets, names, "targets"), **how)
    features, seed = int(np.prod(prober.spatial)), prober.how["seed"]
    sizes = tuple(dict.fromkeys(min(max(1, round(features * level)), features - 1) for level in levels))
    schedule = Schedule(by="area", order="morf", levels=(0.0, *(size / features for size in sizes)))
    drops = np.empty((len(sizes), len(prober.ids), subsets))
    untouched: ProbeTable | None = None
    for number in range(subsets):
        noise = _draw_orders(prober.ids, features, number, seed).reshape(-1, *prober.spatial)
        table = prober.sweep(prober.rank(noise), schedule, imputer, untouched=untouched)
        untouched = untouched or table
        drops[:, :, number] = (table.logit[:, :1] - table.logit[:, 1:]).T
    if not np.ptp(drops, axis=2).any():
        warnings.warn(
            "`imputer` and `model` leave every removal without an effect: no drop correlates with anything.",
            stacklevel=4,
        )
    return RandomRemovals(sizes=sizes, drops=drops, spatial=prober.spatial, ids=prober.ids, seed=seed)


@checked
def sensitivity_n(
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    maps: ArrayLike,
    *,
    shares: Sequence[float] = SHARES,
    subsets: int = 100,
    imputer: Imputer = ConstantImputer(0.0),
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
) -> SensitivityN:
    """Measure sensitivity-n (Ancona et al. 2018, Towards better understanding of gradient-based attribution methods).

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) target classes.
        maps: (N, *S), best with negative values where features speak against the target; those of `attribute` have
            none.
        shares: sizes of the sets as shares of all features, increasing.
        subsets: number of sets of each size.
        imputer: fills in removed features; zero, as in the paper, by default.
        ids: one name per sample.
        seed: seed of the sets.

    Example:
        >>> weights = torch.tensor([1.0, -2.0, 3.0, 0.5, 0.0, 4.0, 1.0, -1.0])
        >>> def model(x):
        ...     return torch.stack([x @ weights, -x @ weights], dim=1)
        >>> x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
        >>> sensitivity_n(model, x, [0] * 5, x * weights, shares=(0.25, 0.5)).values.round(6)
        array([[1., 1., 1., 1., 1.],
               [1., 1., 1., 1., 1.]])
    """
    removals = random_removals(
        model, inputs, targets, shares=shares, subsets=subsets, imputer=imputer, ids=ids, seed=seed
    )
    return removals.correlate(maps)


def _draw_orders(ids: Sequence[str], features: int, number: int, seed: int) -> Tensor:
    """Draw numbers (N, F) whose order is that in which features join the sets with one number."""
    streams = [stream(seed, name, "sensitivity-n", number) for name in ids]
    # A permutation, and no ties.
    drawn = [torch.randperm(features, generator=torch.Generator().manual_seed(one)) for one in streams]
    return torch.stack(drawn).double()
