"""Properties of maps that do not depend on the model: sparseness and entropy.

They do not tell whether a map is right, but affect soundness and completeness: a threshold relative to the maximum
marks few features of a sparse map and most features of a flat one.

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
    """Compute the Gini index of each map: 0 where attribution is spread evenly, near 1 where few features have it all.

    It is half the mean difference of two random features, relative to the mean (Hurley & Rickard 2009; as a property of
    explanations, Chalasani et al. 2020).

    Args:
        maps: attribution maps, (N, *S).
        sign: what a negative attribution means; see `twinlens.probing.maps`.
        channels: how the channels of the maps are reduced.

    Returns:
        (N,) from 0 to 1 - 1/F; NaN for a map of zeros.

    Example:
        >>> sparseness(torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 5.0], [0.0, 0.0, 0.0, 0.0]]))
        array([0.  , 0.75,  nan])
    """
    return gini(_checked(maps, sign, channels))


@checked
def map_entropy(maps: ArrayLike, *, sign: str = "error", channels: str | None = None) -> Floats:
    """Compute the entropy of each map as a distribution over its features, as a share of its maximum.

    Arguments are those of `sparseness`.

    Returns:
        (N,) from 0, where one feature has all attribution, to 1, where all have the same; NaN for a map of zeros.
        Multiplied by log F, it is the complexity of Bhatt et al. (2020), in nats.

    Example:
        >>> map_entropy(torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 5.0], [0.0, 2.0, 0.0, 2.0]]))
        array([1. , 0. , 0.5])
    """
    return entropy(_checked(maps, sign, channels))


def _checked(maps: ArrayLike, sign: str, channels: str | None) -> Tensor:
    tensor = as_tensor(maps, "maps")
    if tensor.dim() < 2 or 0 in tensor.shape:
        raise ValueError(f"`maps` must be (samples, *spatial), none of them empty; got shape {tuple(tensor.shape)}.")
    # The second axis holds channels only if `channels` is set.
    spatial = tuple(tensor.shape[1:] if channels is None else tensor.shape[2:])
    reading = Reading(sign=sign, channels=channels)  # type: ignore[arg-type]  # which refuses other names
    return check_maps(tensor, spatial, ids=check_ids(None, len(tensor)), reading=reading)


def gini(maps: Tensor) -> Floats:
    """Compute the Gini index (N,) of maps (N, *S) without negative values."""
    values = normalise(maps.flatten(1).sort(dim=1).values)
    count = values.shape[1]
    # In sorted order, a feature exceeds those before it and is exceeded by those after it.
    weights = torch.arange(1 - count, count, 2, dtype=values.dtype, device=values.device)
    return _share(values @ weights, count * values.sum(dim=1))


def entropy(maps: Tensor) -> Floats:
    """Compute the relative entropy (N,) of maps (N, *S) without negative values; of a single feature, 0."""
    values = normalise(maps.flatten(1))
    total, most = values.sum(dim=1), math.log(max(values.shape[1], 2))
    # -Σ p log p, with p = value / total.
    nats = total.log() - torch.special.xlogy(values, values).sum(dim=1) / total
    return _share(nats.clamp(min=0.0) * total, most * total)


def _share(part: Tensor, whole: Tensor) -> Floats:
    """Divide; NaN for a map of zeros."""
    return torch.where(whole > 0, part / torch.where(whole > 0, whole, 1.0), torch.nan).cpu().numpy()


MAP_PROPERTIES: dict[str, Callable[[Tensor], Floats]] = {"sparseness": gini, "entropy": entropy}
"""The properties that results store for every method."""
