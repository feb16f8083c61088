"""Localisation: how much of a map lies where it should, for data whose predictive region is known.

`twinlens.reproduction.watermarks` makes such data. The value of a map of zeros, or of any map for an empty region, is
undefined: these samples have no value, and are counted.

Shapes: N samples, S = spatial shape, R resamples.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from twinlens.probing.maps import check_ids, check_maps, warn_of_zeros
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats, as_tensor
from twinlens.support.estimate import Estimate


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Localisation:
    """Localisation of each map in its region."""

    metric: str
    """"Attr%" or "pointing game"."""

    values: Floats
    """(N,) from 0 to 1; NaN where undefined."""

    ids: tuple[str, ...]
    """One name per sample."""

    def __repr__(self) -> str:
        mean = "undefined" if self.mean is None else f"{self.mean:.3f}"
        return f"Localisation({self.metric} {mean}, {len(self.ids)} samples, {self.undefined} undefined)"

    @property
    def mean(self) -> float | None:
        """Mean over the samples with a value; None where there are none."""
        defined = self.values[np.isfinite(self.values)]
        return float(defined.mean()) if defined.size else None

    @property
    def undefined(self) -> int:
        """Number of samples without a value."""
        return int(np.isnan(self.values).sum())

    def interval(self, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> Estimate:
        """Return the mean with its bootstrap interval.

        Args:
            confidence: coverage of the interval.
            resamples: number of resamples.
            seed: seed of the resampling; maps of the same samples are resampled alike.
        """
        return Estimate.of_mean(self.values, self.ids, confidence, resamples=resamples, seed=seed)


@checked
def attribution_inside(
    maps: ArrayLike,
    region: ArrayLike,
    *,
    sign: str = "error",
    channels: str | None = None,
    ids: Sequence[str | int] | None = None,
) -> Localisation:
    """Measure Attr% (Zhou et al. 2022): the share of a map's attribution inside the effective region.

    Args:
        maps: attribution maps, (N, *S).
        region: (N, *S) bool, True where features are predictive.
        sign: what a negative attribution means; see `twinlens.probing.maps`.
        channels: how the channels of the maps are reduced.
        ids: one name per sample.

    Example:
        >>> maps = torch.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
        >>> result = attribution_inside(maps, torch.tensor([[False, True, True]] * 2))
        >>> result.values, result
        (array([0.75,  nan]), Localisation(Attr% 0.750, 2 samples, 1 undefined))
    """
    values, inside, names = _check(maps, region, sign, channels, ids)
    total = values.sum(axis=1)
    shares = np.full(len(names), np.nan)
    defined = (total > 0) & inside.any(axis=1)
    np.divide((values * inside).sum(axis=1), total, out=shares, where=defined)
    return Localisation(metric="Attr%", values=shares, ids=names)


@checked
def pointing_game(
    maps: ArrayLike,
    region: ArrayLike,
    *,
    tolerance: float = 0,
    sign: str = "error",
    channels: str | None = None,
    ids: Sequence[str | int] | None = None,
) -> Localisation:
    """Play the pointing game (Zhang et al. 2018): is the largest value of a map inside the region?

    Where several features share the largest value, the value is the share of them that is inside, which is what
    pointing at one of them by chance would score on average.

    Args:
        maps: attribution maps, (N, *S).
        region: (N, *S) bool, True where features are predictive.
        tolerance: distance from the region, in pixels, that still counts as inside; Zhang et al. take 15.
        sign: what a negative attribution means; see `twinlens.probing.maps`.
        channels: how the channels of the maps are reduced.
        ids: one name per sample.

    Example:
        >>> maps = torch.tensor([[1.0, 3.0, 0.0], [2.0, 0.0, 2.0]])
        >>> region = torch.tensor([[False, True, False], [True, False, False]])
        >>> pointing_game(maps, region).values
        array([1. , 0.5])
    """
    if not tolerance >= 0:
        raise ValueError(f"`tolerance` must be a distance >= 0, in pixels; got {tolerance!r}.")
    values, inside, names = _check(maps, region, sign, channels, ids)
    empty = ~inside.any(axis=1)
    if tolerance > 0:
        spatial = as_tensor(region, "region").shape[1:]
        near = [distance_transform_edt(~one.reshape(spatial)) <= tolerance for one in inside]
        inside = np.stack(near).reshape(inside.shape)
    peaks = values == values.max(axis=1, keepdims=True)
    hits = (peaks & inside).sum(axis=1) / peaks.sum(axis=1)
    hits[empty | (values.max(axis=1) == 0)] = np.nan
    return Localisation(metric="pointing game", values=hits, ids=names)


def _check(
    maps: ArrayLike, region: ArrayLike, sign: str, channels: str | None, ids: Sequence[str | int] | None
) -> tuple[Floats, NDArray[np.bool_], tuple[str, ...]]:
    """Return maps and regions as (N, features), and the ids."""
    inside = as_tensor(region, "region")
    if inside.dtype != torch.bool or inside.dim() < 2 or 0 in inside.shape:
        raise ValueError(
            "`region` must be boolean (samples, *spatial), True where features are predictive, none of them empty; "
            f"got {inside.dtype} of shape {tuple(inside.shape)}."
        )
    names = check_ids(ids, len(inside))
    values: Tensor = check_maps(maps, tuple(inside.shape[1:]), ids=names, sign=sign, channels=channels)
    warn_of_zeros(values, "where they point")
    if not inside.any():
        warnings.warn(f"`region` is empty for all {len(names)} samples: nothing can lie inside.", stacklevel=3)
    return values.flatten(1).double().cpu().numpy(), inside.flatten(1).cpu().numpy(), names
