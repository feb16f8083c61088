"""Properties of maps by themselves, whatever the model: how sparse they are.

They say nothing about right and wrong, and stand beside soundness and completeness because they can be mistaken for
either: a threshold relative to the maximum marks few features of a sparse map and most features of a flat one, and a
map that spreads its attribution has more of it to lose.

Shapes: N samples, S = spatial shape, F features.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from twinlens.probing.maps import Reading, check_ids, check_maps, normalise
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats, as_tensor


@checked
def sparseness(maps: ArrayLike, *, sign: str = "error", channels: str | None = None) -> Floats:
    """Compute the Gini index of each map: 0 where attribution is spread evenly, near 1 where few features have all.

    It is half the mean difference of two features drawn at random, relative to the mean (Hurley & Rickard 2009; as a
    property of explanations, Chalasani et al. 2020).

    Args:
        maps: attribution maps, (N, *S).
        sign: what a negative attribution means; see `twinlens.probing.maps`.
        channels: how the channels of the maps are reduced.

    Returns:
        (N,) from 0 to 1 - 1/F; NaN for a map of zeros, which has nothing to spread.

    Example:
        >>> sparseness(torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 5.0], [0.0, 0.0, 0.0, 0.0]]))
        array([0.  , 0.75,  nan])
    """
    return gini(_checked(maps, sign, channels))


@checked
def map_entropy(maps: ArrayLike, *, sign: str = "error", channels: str | None = None) -> Floats:
    """Compute the entropy of each map as a distribution over its features, as a share of the most that it can be.

    Args:
        maps: attribution maps, (N, *S).
        sign: what a negative attribution means; see `twinlens.probing.maps`.
        channels: how the channels of the maps are reduced.

    Returns:
        (N,) from 0, where one feature has all attribution, to 1, where all have the same; NaN for a map of zeros.
        Times log F, it is in nats, as the complexity of Bhatt et al. (2020) is.

    Example:
        >>> map_entropy(torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 5.0], [0.0, 2.0, 0.0, 2.0]]))
        array([1. , 0. , 0.5])
    """
    return entropy(_checked(maps, sign, channels))


def _checked(maps: ArrayLike, sign: str, channels: str | None) -> Tensor:
    given = as_tensor(maps, "maps")
    if given.dim() < 2 or 0 in given.shape:
        raise ValueError(f"`maps` must be (samples, *spatial), none of them empty; got shape {tuple(given.shape)}.")
    # Only with `channels` is the second axis one of channels; otherwise any axis may belong to a map.
    spatial = tuple(given.shape[1:] if channels is None else given.shape[2:])
    reading = Reading(sign=sign, channels=channels)  # type: ignore[arg-type]  # which refuses other names
    return check_maps(given, spatial, ids=check_ids(None, len(given)), reading=reading)


def gini(maps: Tensor) -> Floats:
    """Compute the Gini index (N,) of maps (N, *S) without negative values."""
    values = normalise(maps.flatten(1).sort(dim=1).values)
    count = values.shape[1]
    # Sorted, a feature exceeds those before it and is exceeded by those behind it.
    weights = torch.arange(1 - count, count, 2, dtype=values.dtype, device=values.device)
    return _share(values @ weights, count * values.sum(dim=1))


def entropy(maps: Tensor) -> Floats:
    """Compute the relative entropy (N,) of maps (N, *S) without negative values; of a single feature, 0."""
    values = normalise(maps.flatten(1))
    total, most = values.sum(dim=1), math.log(max(values.shape[1], 2))
    # -Σ p log p, with p = value / total.
    found = total.log() - torch.special.xlogy(values, values).sum(dim=1) / total
    return _share(found.clamp(min=0.0) * total, most * total)


def _share(part: Tensor, whole: Tensor) -> Floats:
    """Divide; NaN for a map of zeros."""
    return torch.where(whole > 0, part / torch.where(whole > 0, whole, 1.0), torch.nan).cpu().numpy()


MAP_PROPERTIES: dict[str, Callable[[Tensor], Floats]] = {"sparseness": gini, "entropy": entropy}
"""What results hold of every method's maps, by name."""
