"""From a map to a ranking, once; from the ranking and a schedule to what is kept at every level.

Each map is sorted a single time, ties broken at random from (seed, sample id). Keep-masks, attribution mass
and false-attribution pictures all come from that one ranking, so the masks of a schedule are nested.

Shapes: N samples, F features per sample, L levels, B rows, each a (sample, level) pair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from twinlens.maps import normalise

BY = ("area", "value")
ORDERS = ("lerf", "morf")
ROUNDINGS = ("round", "floor")


def stream(seed: int, *keys: str | float) -> int:
    """Derives the seed of an independent random stream from the run's seed and what it is for.

    Randomness depends on names (sample id, level) and never on position, so batch size, sharding and resuming
    change nothing.

    Example:
        >>> stream(0, "image-7", 0.98) == stream(0, "image-7", 0.98) != stream(0, "image-7", 0.97)
        True
    """
    text = "\x1f".join([repr(int(seed)), *(repr(key) for key in keys)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


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
    """How a share becomes a count, by area only: "round" to nearest, or "floor"."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("by", self.by, BY),
            ("order", self.order, ORDERS),
            ("rounding", self.rounding, ROUNDINGS),
        ):
            if value not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(map(repr, known))}; got {value!r}.")
        object.__setattr__(self, "levels", tuple(float(level) for level in self.levels))
        if not self.levels:
            raise ValueError("`levels` must name at least one level; got none.")
        for level in self.levels:
            if not 0 <= level <= 1:
                raise ValueError(f"`levels` must lie within [0, 1]; got {level:g}.")
        steps = list(pairwise(self.levels))
        if not (all(a < b for a, b in steps) or all(a > b for a, b in steps)):
            raise ValueError(f"`levels` must strictly increase or strictly decrease; got {self.levels}.")


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The order of each sample's features, least relevant first."""

    rank: Tensor
    """(N, F) int32: position of each feature, 0 for the least relevant."""

    ascending: Tensor
    """(N, F) float64: the values of the map, scaled to a maximum of 1, in that order."""


def rank_features(maps: Tensor, *, ids: Sequence[str], seed: int) -> Ranking:
    """Ranks the features of each map (N, *S), equal values in a random order drawn from (seed, sample id).

    Example:
        >>> rank_features(torch.tensor([[5.0, 1.0, 3.0]]), ids=["a"], seed=0).rank
        tensor([[2, 0, 1]], dtype=torch.int32)
    """
    values = normalise(maps.flatten(1))
    shuffled = torch.stack([_permutation(values.shape[1], stream(seed, name)) for name in ids]).to(values.device)
    ascending, position = torch.gather(values, 1, shuffled).sort(dim=1, stable=True)
    order = torch.gather(shuffled, 1, position)
    places = torch.arange(values.shape[1], dtype=torch.int32, device=values.device).expand_as(order)
    rank = torch.empty_like(order, dtype=torch.int32).scatter_(1, order, places)
    return Ranking(rank=rank, ascending=ascending)


def _permutation(count: int, seed: int) -> Tensor:
    # Drawn on the CPU, so that ties break alike on every device.
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def count_removed(ranking: Ranking, schedule: Schedule) -> Tensor:
    """Counts the features that each level removes from each sample, (N, L) int64.

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
        # A map of zeros has the threshold zero at every level, and no value lies beyond it on either side.
        peak = ranking.ascending[:, -1:]
        morf = schedule.order == "morf"
        below = torch.searchsorted(ranking.ascending, levels * peak, right=morf)
        return features - below if morf else below
    share_to_count = round if schedule.rounding == "round" else int
    counts = [
        min(share_to_count(features * level), features - 1 if level < 1 else features) for level in schedule.levels
    ]
    return torch.tensor(counts, device=ranking.ascending.device).expand(samples, -1)


def kept_mass(ranking: Ranking, removed: Tensor, order: str) -> Tensor:
    """Sums the attribution that each level keeps, (N, L) float64, from one cumulative sum.

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
    """Tells which features stay, (B, F) bool, for rows of ranks (B, F) and removal counts (B,).

    Example:
        >>> keep_features(torch.tensor([[2, 0, 1]]), torch.tensor([1]), "lerf")
        tensor([[ True, False,  True]])
    """
    if order == "lerf":
        return rank >= removed[:, None]
    return rank < (rank.shape[1] - removed)[:, None]
