"""A search for the order of few features that scores best, when they are selected one after the other.

It is a greedy search with lookahead, as a beam: of all sets of one size it keeps the `width` most promising ones, and
goes on from each of them. Two orders of the same features are one set, so that no call is made twice; with a beam as
wide as there are sets it is complete, and finds the best order there is.

Shapes: F features, B sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.support.arrays import Floats

Sets = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class FoundOrder:
    """The best order that was found."""

    order: tuple[int, ...]
    """(F,) all features, the one that is selected first at the front."""

    score: float
    """Weighted sum of the scores of its sets."""

    calls: int
    """Number of sets that were scored."""


def search_order(
    score: Callable[[Sets], Floats], weights: Floats, *, width: int, generator: np.random.Generator
) -> FoundOrder:
    """Find an order whose sets score high.

    Args:
        score: from sets (B, F), True where a feature is selected, all of one size, to their scores (B,).
        weights: (F + 1,) what the score of a set counts, by its size.
        width: number of sets of each size that are followed: 1 is greedy.
        generator: decides between sets of equal score.

    Example:
        >>> worth = np.array([1.0, 5.0, 3.0])
        >>> found = search_order(lambda sets: sets @ worth, np.ones(4) / 3, width=1, generator=np.random.default_rng(0))
        >>> found.order, found.score * 3, found.calls
        ((1, 2, 0), 22.0, 6)
    """
    features = len(weights) - 1
    shuffled = generator.permutation(features)
    # Behind the last size that counts, any order will do.
    last = int(np.flatnonzero(weights).max(initial=0))
    beam: dict[bytes, tuple[float, tuple[int, ...]]] = {b"": (0.0, ())}
    calls, rest = 0, float(weights[0:].sum() - weights[0])
    for size in range(1, last + 1):
        grown: dict[bytes, tuple[float, tuple[int, ...]]] = {}
        for before, order in beam.values():
            for feature in shuffled[~np.isin(shuffled, order)].tolist():
                key = np.packbits(_as_set((*order, feature), features)).tobytes()
                if key not in grown or grown[key][0] < before:
                    grown[key] = (before, (*order, feature))
        sets = np.stack([_as_set(order, features) for _, order in grown.values()])
        scores, calls = score(sets), calls + len(sets)
        rest -= weights[size]
        # What is ahead is taken to score as the set does now: without weight of its own, a set can still promise much.
        sums = np.array([before for before, _ in grown.values()]) + weights[size] * scores
        best = np.argsort(-(sums + max(rest, 0.0) * scores), kind="stable")[: width if size < last else None]
        keys, orders = list(grown), [order for _, order in grown.values()]
        beam = {keys[k]: (float(sums[k]), orders[k]) for k in best}
    total, order = max(beam.values(), key=lambda found: found[0])
    remaining = shuffled[~np.isin(shuffled, order)].tolist()
    return FoundOrder(order=(*order, *remaining), score=total, calls=calls)


def _as_set(order: tuple[int, ...], features: int) -> Sets:
    found = np.zeros(features, dtype=bool)
    found[list(order)] = True
    return found
