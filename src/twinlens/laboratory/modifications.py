"""Modifications of maps that change their values much and their order little, to test whether a metric notices.

The paper removes attribution from maps and introduces attribution into them, by a constant, at random, or in part of
the features (its table of modifications). Maps are scaled to a maximum of 1 first.

Ties would change the order. Values above 1 are therefore not clipped; the metrics scale a map to its maximum anyway.
Values below 0 keep a negligible trace instead of becoming zero. Random modifications of both kinds draw the same
numbers, and differ by a constant.

Shapes: N samples, S = spatial shape of a map, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from twinlens.probing.maps import check_ids, check_maps, normalise
from twinlens.probing.ranking import rank_features
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, as_tensor
from twinlens.support.randomness import stream

Scheme = Literal["constant", "random", "partial"]
SCHEMES = get_args(Scheme)
"""How attribution is removed or introduced."""

_AMOUNT = 0.6
_TRACE = 1e-9
_REMOVED = (0.6, 0.8)  # of the features in ascending order
_INTRODUCED = (0.0, 0.4)
_QUANTILE = 0.8  # of the value that partially introduced attribution gets


@checked
def remove_attribution(
    maps: ArrayLike,
    scheme: Scheme = "constant",
    *,
    amount: float = _AMOUNT,
    trace: float = _TRACE,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
) -> Tensor:
    """Remove attribution from maps, which lowers their completeness.

    Args:
        maps: (N, *S), without negative values.
        scheme: "constant" subtracts `amount` from every feature, "random" a random number between 0 and `amount` from
            each. "partial" sets the features from 60% to 80% of the ascending order to zero.
        amount: for "constant" and "random", as a share of the map's maximum.
        trace: for "constant" and "random", upper limit of features that fall below zero, which keep their order; with 0
            they become zero, and ties are broken at random.
        ids: sample ids, 0 … N-1 by default; random numbers derive from seed and id.
        seed: seed of random modifications and of ties.

    Returns:
        New maps (N, *S), float64. A map may become all zero.

    Example:
        >>> remove_attribution(torch.tensor([[1.0, 4.0, 3.0, 0.0]]), trace=0)
        tensor([[0.0000, 0.4000, 0.1500, 0.0000]], dtype=torch.float64)
    """
    values, names = _checked(maps, amount, ids)
    if scheme == "partial":
        return torch.where(_between(values, _REMOVED, names, seed), 0.0, values)
    left = values - amount + _lift(values, scheme, amount, names, seed)
    # Increases from 0 at -amount to `trace` at 0, and further: the order stays the same.
    return torch.where(left > 0, left + trace, trace * (1 + left / amount))


@checked
def introduce_attribution(
    maps: ArrayLike,
    scheme: Scheme = "constant",
    *,
    amount: float = _AMOUNT,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
) -> Tensor:
    """Introduce attribution into maps, which lowers their soundness.

    Args:
        maps: (N, *S), without negative values.
        scheme: "constant" adds `amount` to every feature, "random" a random number between 0 and `amount` to each.
            "partial" raises the lowest 40% of the features to the value at 80% of the ascending order.
        amount: for "constant" and "random", as a share of the map's maximum.
        ids: sample ids, 0 … N-1 by default; random numbers derive from seed and id.
        seed: seed of random modifications and of ties.

    Returns:
        New maps (N, *S), float64. Their values may exceed 1.

    Example:
        >>> introduce_attribution(torch.tensor([[1.0, 4.0, 3.0, 0.0]]))
        tensor([[0.8500, 1.6000, 1.3500, 0.6000]], dtype=torch.float64)
    """
    values, names = _checked(maps, amount, ids)
    if scheme == "partial":
        level = torch.quantile(values.flatten(1), _QUANTILE, dim=1).reshape(-1, *[1] * (values.dim() - 1))
        return torch.where(_between(values, _INTRODUCED, names, seed), level, values)
    return values + (amount if scheme == "constant" else _lift(values, scheme, amount, names, seed))


MODIFICATIONS: dict[str, Callable[..., Tensor]] = {"remove": remove_attribution, "introduce": introduce_attribution}
"""Modifications by name."""


def _checked(maps: ArrayLike, amount: float, ids: Sequence[str | int] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Return maps scaled to a maximum of 1, and the sample ids."""
    if not 0 < amount <= 1:
        raise ValueError(f"`amount` must lie within (0, 1], as a share of the maximum; got {amount!r}.")
    values = as_tensor(maps, "maps")
    if values.dim() < 2 or 0 in values.shape:
        raise ValueError(f"`maps` must be (samples, *spatial), none of them empty; got shape {tuple(values.shape)}.")
    names = check_ids(ids, len(values))
    return normalise(check_maps(values, tuple(values.shape[1:]), ids=names)), names


def _lift(values: Tensor, scheme: str, amount: float, ids: Sequence[str], seed: int) -> Tensor | float:
    """Draw a number between 0 and `amount` for each feature (N, *S); 0 for "constant"."""
    if scheme == "constant":
        return 0.0
    # Drawn on the CPU: the same numbers on every device.
    drawn = [
        torch.rand(values.shape[1:], dtype=values.dtype, generator=torch.Generator().manual_seed(one))
        for one in (stream(seed, name, "modification") for name in ids)
    ]
    return amount * torch.stack(drawn).to(values.device)


def _between(values: Tensor, part: tuple[float, float], ids: Sequence[str], seed: int) -> Tensor:
    """Return which features (N, *S) lie in a part of the ascending order; ties are broken as in the metrics."""
    rank = rank_features(values, ids=ids, seed=seed).rank
    low, high = (round(share * rank.shape[1]) for share in part)
    return ((rank >= low) & (rank < high)).reshape(values.shape)
