"""Rankings of features, and what a schedule keeps at every level.

Each map is sorted once; ties are broken at random from (seed, sample id). The masks of a schedule are nested. Segments
join positions of a map into one feature, whose value is their mean.

Shapes: N samples, P positions of a map, F features per sample (positions or segments), L levels, B rows, each a
(sample, level) pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from twinlens.errors import short_repr, unknown
from twinlens.probing.maps import PARTS, normalise
from twinlens.support.arrays import ArrayLike, as_tensor
from twinlens.support.fields import check_types
from twinlens.support.randomness import stream

BY = ("area", "value")
ORDERS = ("lerf", "morf")
ROUNDINGS = ("round", "floor", "complement")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Which features are removed at which level.

    Example:
        >>> Schedule(by="area", order="lerf", levels=(0.98, 0.97)).levels
        (0.98, 0.97)
    """

    by: str
    """"area": a level is the share of features removed. "value": a level is a threshold, relative to the map's maximum,
    and the features beyond it are removed."""

    order: str
    """Which features are removed first: "lerf" the least relevant, "morf" the most relevant."""

    levels: tuple[float, ...]
    """Strictly increasing or strictly decreasing, within [0, 1]."""

    rounding: str = "round"
    """Rounding of a share to a count, by area only: "round" to nearest, "floor", or "complement", which rounds the kept
    share."""

    relative: bool = True
    """By value only: thresholds are relative to each map's maximum; otherwise they are compared with its values."""

    part: str = "positive"
    """The part of the map that ranks the features: "positive", or the magnitudes of its "negative" values."""

    def __post_init__(self) -> None:
        check_types(self)
        for name, names in (("by", BY), ("order", ORDERS), ("rounding", ROUNDINGS), ("part", tuple(PARTS))):
            if getattr(self, name) not in names:
                raise unknown(name, getattr(self, name), names)
        decreasing = len(self.levels) > 1 and self.levels[0] > self.levels[-1]
        object.__setattr__(self, "levels", check_levels("levels", self.levels, decreasing=decreasing, ends=True))


def check_levels(name: str, levels: Iterable[float], *, decreasing: bool, ends: bool = False) -> tuple[float, ...]:
    """Return levels as floats, checked to move strictly in one direction within [0, 1]; errors call them `name`.

    With `ends`, the first possible level is allowed: 0 where levels increase, 1 where they decrease.
    """
    try:
        values = tuple(float(level) for level in levels)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"`{name}` must be a list of numbers; got {short_repr(levels)}.") from None
    word, order = ("decrease", "descending") if decreasing else ("increase", "ascending")
    inside = "[0, 1]" if ends else "[0, 1)" if decreasing else "(0, 1]"
    if not values:
        raise ValueError(f"`{name}` must name at least one level; got none.")
    for level in values:
        if not 0 <= level <= 1 or (not ends and level == (1 if decreasing else 0)):
            raise ValueError(f"`{name}` must {word} within {inside}; got {level:g}.")
    for one, other in pairwise(values):
        if (one <= other) if decreasing else (one >= other):
            raise ValueError(
                f"`{name}` must {word} within {inside}; got {one:g} then {other:g}. Sort them in {order} order."
            )
    return values


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The order of each sample's features, least relevant first."""

    rank: Tensor
    """(N, P) int32: rank of the feature at each position, 0 for the least relevant; -1 where there is no feature."""
    ascending: Tensor
    """(N, F) float64: the values of the features, scaled to a maximum of 1, in that order; padded with infinity where a
    sample has fewer features than others."""
    peak: Tensor
    """(N, 1) float64: the maximum of each map before it was scaled."""
    features: Tensor
    """(N, 1) int64: number of features of each sample."""


def rank_features(maps: Tensor, *, ids: Sequence[str], seed: int, segments: Tensor | None = None) -> Ranking:
    """Rank the features of each map (N, *S), equal values in a random order drawn from (seed, sample id).

    Args:
        maps: the maps.
        ids: one name per sample.
        seed: random seed of the order of equal values.
        segments: (N, *S) the number of the feature at each position, from 0; -1 at positions without a feature. By
            default each position is a feature.
    """
    if segments is not None:
        return _rank_segments(maps.flatten(1), segments.flatten(1), ids, seed)
    peak = maps.flatten(1).amax(dim=1, keepdim=True).to(torch.float64)
    values = normalise(maps.flatten(1))
    shuffled = torch.stack([_permutation(values.shape[1], stream(seed, name)) for name in ids]).to(values.device)
    ascending, position = _sort(torch.gather(values, 1, shuffled))
    order = torch.gather(shuffled, 1, position)
    ranks = torch.arange(values.shape[1], dtype=torch.int32, device=values.device).expand_as(order)
    rank = torch.empty_like(order, dtype=torch.int32).scatter_(1, order, ranks)
    features = torch.full_like(peak, values.shape[1], dtype=torch.int64)
    return Ranking(rank=rank, ascending=ascending, peak=peak, features=features)


def unranked(maps: Tensor, device: torch.device) -> Ranking:
    """Return a ranking of maps of zeros from which nothing is removed: no order is drawn, which takes long."""
    count, features = len(maps), maps[0].numel()
    return Ranking(
        rank=torch.zeros(1, 1, dtype=torch.int32, device=device).expand(count, features),
        ascending=torch.zeros(1, 1, dtype=torch.float64, device=device).expand(count, features),
        peak=torch.zeros(count, 1, dtype=torch.float64, device=device),
        features=torch.full((count, 1), features, device=device),
    )


def _sort(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sort rows (N, F) as `values.sort(stable=True)` does, on the CPU several times as fast."""
    if values.device.type != "cpu":
        return values.sort(dim=1, stable=True)
    array = values.numpy()
    order = array.argsort(axis=1)  # vectorised, but not stable: equal values are sorted again, by position
    ascending = np.take_along_axis(array, order, axis=1)
    keys = np.zeros(array.shape, dtype=np.int64)
    np.cumsum(ascending[:, 1:] != ascending[:, :-1], axis=1, out=keys[:, 1:])
    keys = np.sort(keys << 32 | order, axis=1)
    return torch.from_numpy(ascending), torch.from_numpy(keys & (2**32 - 1))


def _rank_segments(maps: Tensor, segments: Tensor, ids: Sequence[str], seed: int) -> Ranking:
    """Rank segments by the mean of their positions, sample by sample because they differ in number."""
    most = int(segments.max()) + 1
    parts = [
        rank_features(segment_means(values, own)[None], ids=[name], seed=seed)
        for values, own, name in zip(maps, segments, ids, strict=True)
    ]
    ascending = torch.full((len(parts), most), torch.inf, dtype=torch.float64, device=maps.device)
    rank = torch.full_like(segments, -1, dtype=torch.int32)
    for k, (part, own) in enumerate(zip(parts, segments, strict=True)):
        ascending[k, : part.ascending.shape[1]] = part.ascending[0]
        rank[k] = torch.where(own < 0, -1, part.rank[0][own.clamp(min=0)])
    return Ranking(
        rank=rank,
        ascending=ascending,
        peak=torch.cat([part.peak for part in parts]),
        features=torch.cat([part.features for part in parts]),
    )


def segment_means(values: Tensor, segments: Tensor) -> Tensor:
    """Return the mean of the values (P,) of each segment (F,)."""
    inside = segments >= 0
    own = segments[inside]
    sums = torch.zeros(int(own.max()) + 1, dtype=torch.float64, device=values.device)
    return sums.index_add(0, own, values[inside].to(torch.float64)) / torch.bincount(own, minlength=len(sums))


def _permutation(count: int, seed: int) -> Tensor:
    # Drawn on the CPU: ties break alike on every device.
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def count_removed(ranking: Ranking, schedule: Schedule) -> Tensor:
    """Count the features that each level removes from each sample, (N, L) int64.

    By area, every level below 1 keeps at least one feature. By value, "morf" removes values above the threshold: a map
    of zeros loses nothing, a constant map everything at any threshold below 1. "lerf" removes values below it.
    """
    features = ranking.features
    if schedule.by == "value":
        levels = torch.tensor(schedule.levels, dtype=torch.float64, device=ranking.ascending.device)
        # Relative to its maximum, a map of zeros has the threshold zero at every level, and no value lies beyond it.
        # An absolute threshold is divided like the values, which keeps a value equal to it.
        if schedule.relative:
            thresholds = levels * ranking.ascending.gather(1, features - 1)
        else:
            thresholds = levels / torch.where(ranking.peak > 0, ranking.peak, 1.0)
        morf = schedule.order == "morf"
        below = torch.searchsorted(ranking.ascending, thresholds, right=morf)
        return features - below if morf else below
    counts = {
        each: [_count_share(each, level, schedule.rounding) for level in schedule.levels]
        for each in set(features[:, 0].tolist())
    }
    return torch.tensor([counts[each] for each in features[:, 0].tolist()], device=features.device)


def _count_share(features: int, level: float, rounding: str) -> int:
    """Return a share of the features as a count; a share below 1 leaves at least one."""
    if rounding == "complement":  # the exact counterpart of keeping a rounded share
        return features - _count_share(features, round(1 - level, 12), "round") if level > 0 else 0
    count = round(features * level) if rounding == "round" else int(features * level)
    return min(count, features - 1 if level < 1 else features)


def kept_mass(ranking: Ranking, removed: Tensor, order: str) -> Tensor:
    """Sum the attribution that each level keeps, (N, L) float64, from one cumulative sum."""
    # Summed from the end that is kept: a small kept set is then no difference of two large sums.
    ascending = ranking.ascending.masked_fill(ranking.ascending.isinf(), 0.0)
    values = ascending.flip(1) if order == "lerf" else ascending
    sums = torch.nn.functional.pad(values.cumsum(dim=1), (1, 0))
    # The padding of samples with fewer features lies, as zeros, at the end that "lerf" sums from.
    return torch.gather(sums, 1, (values.shape[1] if order == "lerf" else ranking.features) - removed)


def keep_features(rank: Tensor, removed: Tensor, order: str, features: Tensor | None = None) -> Tensor:
    """Return the keep-mask (B, P), True where a feature stays, for rows of ranks (B, P) and removal counts (B,).

    Positions of rank -1 always stay. `features` (B,) is the number of features; one per position by default.
    """
    if order == "lerf":
        keep = rank >= removed[:, None]
        return keep if features is None else keep | (rank < 0)
    return rank < ((rank.shape[1] if features is None else features) - removed)[:, None]


def check_segments(segments: ArrayLike, shape: Sequence[int], ids: Sequence[str]) -> Tensor:
    """Return segments (N, *S) as int64, numbered from 0 without gaps in each sample; -1 at positions without a segment.

    Example:
        >>> check_segments(torch.tensor([[7, 7, 3, -5]]), (4,), ["a"])
        tensor([[ 1,  1,  0, -1]])
    """
    values = as_tensor(segments, "segments")
    if values.is_floating_point() or values.dtype is torch.bool:
        raise TypeError(f"`segments` must hold integers, the number of each position's segment; got {values.dtype}.")
    if tuple(values.shape) != (len(ids), *shape):
        raise ValueError(
            f"`segments` must have the shape {(len(ids), *shape)} of the maps of {len(ids)} samples; got "
            f"{tuple(values.shape)}."
        )
    numbered = torch.full(values.shape, -1, dtype=torch.int64)
    for name, own, target in zip(ids, values.cpu(), numbered, strict=True):
        inside = own >= 0
        if not inside.any():
            raise ValueError(f"`segments` must number at least one position from 0 on; sample {name!r} has none.")
        target[inside] = own[inside].unique(return_inverse=True)[1]
    return numbered
