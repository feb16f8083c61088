"""From a map to a ranking, once; from the ranking and a schedule to what is kept at every level.

Each map is sorted a single time, ties broken at random from (seed, sample id). Keep-masks, attribution mass
and false-attribution pictures all come from that one ranking, so the masks of a schedule are nested.

Shapes: N samples, F features per sample, L levels, B rows, each a (sample, level) pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from twinlens.core.fields import check_types
from twinlens.core.maps import normalise
from twinlens.core.randomness import stream
from twinlens.errors import short_repr, unknown

BY = ("area", "value")
ORDERS = ("lerf", "morf")
ROUNDINGS = ("round", "floor")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Which features are removed at which level.

    Example:
        >>> Schedule(by="area", order="lerf", levels=(0.98, 0.97)).levels
        (0.98, 0.97)
    """

    by: str
    """"area": a level is the share of features removed. "value": a level is a threshold, relative to the
    map's maximum, and the features beyond it are removed."""

    order: str
    """Which features go first: "lerf" the least relevant, "morf" the most relevant."""

    levels: tuple[float, ...]
    """Strictly increasing or strictly decreasing, within [0, 1]."""

    rounding: str = "round"
    """Rounding of a share to a count, by area only: "round" to nearest, or "floor"."""

    relative: bool = True
    """By value only: thresholds are relative to each map's maximum; otherwise they are compared with its values."""

    def __post_init__(self) -> None:
        check_types(self)
        for name, value, known in (
            ("by", self.by, BY),
            ("order", self.order, ORDERS),
            ("rounding", self.rounding, ROUNDINGS),
        ):
            if value not in known:
                raise unknown(name, value, known)
        decreasing = len(self.levels) > 1 and self.levels[0] > self.levels[-1]
        object.__setattr__(self, "levels", check_levels("levels", self.levels, decreasing=decreasing, ends=True))


def check_levels(name: str, levels: Iterable[float], *, decreasing: bool, ends: bool = False) -> tuple[float, ...]:
    """Check that levels move strictly in one direction within [0, 1], and return them as floats.

    Levels always start next to the untouched input or the empty one and move away from it: shares removed for soundness
    and thresholds for completeness decrease, shares removed for ROAD, deletion, insertion and ROAR increase.

    Args:
        name: name of the argument, for errors.
        levels: the levels.
        decreasing: the direction.
        ends: allow the level at which a sweep starts (0 where levels increase, 1 where they decrease).

    Example:
        >>> check_levels("levels", [0.2, 0.5], decreasing=True)
        Traceback (most recent call last):
            ...
        ValueError: `levels` must decrease within [0, 1); got 0.2 then 0.5. Sort them in descending order.
    """
    try:
        given = tuple(float(level) for level in levels)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"`{name}` must be a list of numbers; got {short_repr(levels)}.") from None
    word, order = ("decrease", "descending") if decreasing else ("increase", "ascending")
    inside = "[0, 1]" if ends else "[0, 1)" if decreasing else "(0, 1]"
    if not given:
        raise ValueError(f"`{name}` must name at least one level; got none.")
    for level in given:
        if not 0 <= level <= 1 or (not ends and level == (1 if decreasing else 0)):
            raise ValueError(f"`{name}` must {word} within {inside}; got {level:g}.")
    for one, other in pairwise(given):
        if (one <= other) if decreasing else (one >= other):
            raise ValueError(
                f"`{name}` must {word} within {inside}; got {one:g} then {other:g}. Sort them in {order} order."
            )
    return given


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The order of each sample's features, least relevant first."""

    rank: Tensor
    """(N, F) int32: position of each feature, 0 for the least relevant."""

    ascending: Tensor
    """(N, F) float64: the values of the map, scaled to a maximum of 1, in that order."""

    peak: Tensor
    """(N, 1) float64: the maximum of each map before it was scaled."""


def rank_features(maps: Tensor, *, ids: Sequence[str], seed: int) -> Ranking:
    """Rank the features of each map (N, *S), equal values in a random order drawn from (seed, sample id).

    Example:
        >>> rank_features(torch.tensor([[5.0, 1.0, 3.0]]), ids=["a"], seed=0).rank
        tensor([[2, 0, 1]], dtype=torch.int32)
    """
    peak = maps.flatten(1).amax(dim=1, keepdim=True).to(torch.float64)
    values = normalise(maps.flatten(1))
    shuffled = torch.stack([_permutation(values.shape[1], stream(seed, name)) for name in ids]).to(values.device)
    ascending, position = torch.gather(values, 1, shuffled).sort(dim=1, stable=True)
    order = torch.gather(shuffled, 1, position)
    places = torch.arange(values.shape[1], dtype=torch.int32, device=values.device).expand_as(order)
    rank = torch.empty_like(order, dtype=torch.int32).scatter_(1, order, places)
    return Ranking(rank=rank, ascending=ascending, peak=peak)


def _permutation(count: int, seed: int) -> Tensor:
    # Drawn on the CPU, so that ties break alike on every device.
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def count_removed(ranking: Ranking, schedule: Schedule) -> Tensor:
    """Count the features that each level removes from each sample, (N, L) int64.

    By area, every level below 1 keeps at least one feature. By value, "morf" removes what exceeds the
    threshold, so a map of zeros loses nothing and a constant map loses everything at any threshold below 1;
    "lerf" removes what stays below it.

    Example:
        >>> ranking = rank_features(torch.tensor([[5.0, 1.0, 3.0, 4.0]]), ids=["a"], seed=0)
        >>> count_removed(ranking, Schedule(by="value", order="morf", levels=(1.0, 0.8, 0.1)))
        tensor([[0, 1, 4]])
    """
    samples, features = ranking.ascending.shape
    if schedule.by == "value":
        levels = torch.tensor(schedule.levels, dtype=torch.float64, device=ranking.ascending.device)
        # Relative to its maximum, a map of zeros has the threshold zero at every level, and no value lies beyond it on
        # either side. An absolute threshold is divided as the values were, so that a value that equals it still does.
        if schedule.relative:
            thresholds = levels * ranking.ascending[:, -1:]
        else:
            thresholds = levels / torch.where(ranking.peak > 0, ranking.peak, 1.0)
        morf = schedule.order == "morf"
        below = torch.searchsorted(ranking.ascending, thresholds, right=morf)
        return features - below if morf else below
    share_to_count = round if schedule.rounding == "round" else int
    counts = [
        min(share_to_count(features * level), features - 1 if level < 1 else features) for level in schedule.levels
    ]
    return torch.tensor(counts, device=ranking.ascending.device).expand(samples, -1)


def kept_mass(ranking: Ranking, removed: Tensor, order: str) -> Tensor:
    """Sum the attribution that each level keeps, (N, L) float64, from one cumulative sum.

    Example:
        >>> ranking = rank_features(torch.tensor([[4.0, 1.0, 3.0]]), ids=["a"], seed=0)
        >>> kept_mass(ranking, torch.tensor([[2, 1, 0]]), "lerf")
        tensor([[1.0000, 1.7500, 2.0000]], dtype=torch.float64)
    """
    # Summed from the end that is kept, so that a small kept set is not the difference of two large sums.
    values = ranking.ascending.flip(1) if order == "lerf" else ranking.ascending
    sums = torch.nn.functional.pad(values.cumsum(dim=1), (1, 0))
    return torch.gather(sums, 1, values.shape[1] - removed)


def keep_features(rank: Tensor, removed: Tensor, order: str) -> Tensor:
    """Return the keep-mask (B, F), True where a feature stays, for rows of ranks (B, F) and removal counts (B,).

    Example:
        >>> keep_features(torch.tensor([[2, 0, 1]]), torch.tensor([1]), "lerf")
        tensor([[ True, False,  True]])
    """
    if order == "lerf":
        return rank >= removed[:, None]
    return rank < (rank.shape[1] - removed)[:, None]
