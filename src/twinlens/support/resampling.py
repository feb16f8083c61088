"""Resampling: bootstrap draws of samples, and intervals from the replicates of a number.

An interval is symmetric about its estimate: the bias of an estimator widens it. Where nearly all samples agree, it is
widened by what N samples cannot show.

Shapes: N samples, R resamples, K numbers (the levels of a curve, or pairs of methods).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from twinlens.support.arrays import Floats, Integers
from twinlens.support.randomness import stream

FEWEST = 10
"""With fewer samples, differences have no p-value, and runs that share fewer are not paired."""
_MOST = 10**6
_BLOCK = 16_000_000  # counts per block: 128 MB


def draw(ids: Sequence[str], resamples: int, seed: int) -> Floats:
    """Draw with replacement: how often each sample occurs in each resample, (R, N).

    Counts belong to ids and not to positions: reordering the samples reorders the columns and changes nothing else,
    and two methods probed on the same samples are resampled alike. Samples with the same id are drawn together.
    """
    return np.concatenate(list(draw_blocks(ids, resamples, seed)))


def draw_blocks(ids: Sequence[str], resamples: int, seed: int) -> Iterator[Floats]:
    """Yield what `draw` returns in blocks that fit into memory.

    Example:
        >>> [len(counts) for counts in draw_blocks([str(k) for k in range(40_000)], resamples=1000, seed=0)]
        [400, 400, 200]
    """
    if not 2 <= resamples <= _MOST:
        limit = "least 2" if resamples < 2 else f"most {_MOST}"
        raise ValueError(f"`resamples` must be at {limit}; got {resamples}. 1000 is a good number.")
    generator = np.random.default_rng(stream(seed, "bootstrap"))
    names, rank = np.unique(np.asarray(ids), return_inverse=True)
    for start in range(0, resamples, size := max(1, _BLOCK // len(ids))):
        counts = np.empty((min(size, resamples - start), len(ids)))
        for row in counts:
            row[:] = np.bincount(generator.integers(len(names), size=len(names)), minlength=len(names))[rank]
        yield counts


def resample_mean(values: Floats, ids: Sequence[str], resamples: int, seed: int) -> tuple[float | None, Floats]:
    """Return the mean of values (N,), None where there are none, and that of each resample (R,); NaN is left out."""
    defined = np.isfinite(values)
    weights = draw(ids, resamples, seed) * defined
    totals, count = weights @ np.where(defined, values, 0.0), weights.sum(axis=1)
    replicates = np.full(resamples, np.nan)
    np.divide(totals, count, out=replicates, where=count > 0)
    return float(values[defined].mean()) if defined.any() else None, replicates


def check_confidence(confidence: float) -> float:
    """Return the confidence; refuse a number that is not within (0, 1)."""
    if isinstance(confidence, bool) or not isinstance(confidence, SupportsFloat) or not 0 < float(confidence) < 1:
        raise ValueError(f"`confidence` must lie within (0, 1), such as 0.95; got {confidence!r}.")
    return float(confidence)


class Band(NamedTuple):
    """Intervals of several numbers, such as the values of a curve."""

    low: Floats
    """(K,) NaN where there is no interval."""
    high: Floats


def band(
    values: Floats,
    replicates: Floats,
    confidence: float,
    *,
    samples: int,
    simultaneous: bool,
    largest: float | None = None,
) -> Band:
    """Compute intervals (K,) from replicates of a curve (R, K): for each level, or simultaneously for all levels.

    Where at most a few samples differ from the others, unseen ones may differ by up to `largest`, by default the
    largest of the values.
    """
    groups = [slice(None)] if simultaneous else [slice(k, k + 1) for k in range(len(values))]
    # The two-sided rule of three: if none of N samples differs, up to 3.7 in N others still may (at 95%). By how much
    # is unknown; the largest value is taken.
    unseen = -math.log((1 - check_confidence(confidence)) / 2) / max(samples, 1)
    most = np.abs(values[np.isfinite(values)]).max(initial=0.0) if largest is None else largest
    more = np.where(_few_differ(replicates), unseen * most, 0.0)
    low, high = np.hstack([around(values[some], replicates[:, some], samples).ends(confidence) for some in groups])
    return Band(low - more, high + more)


def _few_differ(replicates: Floats) -> NDArray[np.bool_]:
    """Find the numbers (K,) in which at most three samples differ from the others: resampling shows too little there.

    One resample in twenty misses all three. These resamples agree, at one end of the replicates.
    """
    top, bottom = np.fmax.reduce(replicates), np.fmin.reduce(replicates)
    rounding = 1e-12 * np.abs(top)
    at_an_end = np.stack([replicates >= top - rounding, replicates <= bottom + rounding]).mean(axis=1)
    return np.asarray(at_an_end.max(axis=0) > 0.05)


@dataclass(frozen=True, kw_only=True, eq=False)
class Around:
    """Distances between some numbers and their replicates, for all numbers simultaneously."""

    values: Floats
    scale: Floats
    """(K,) root mean square distance of the replicates, the unit of each number."""
    farthest: Floats
    """(R,) the largest distance in each resample, in these units, in ascending order."""

    def ends(self, confidence: float) -> Floats:
        """Return lower and upper ends (2, K) that hold all replicates of a resample in a share `confidence` of them.

        An end is NaN where a number is undefined or there are too few resamples for the confidence.
        """
        # Counted as in `p_values`: zero is outside exactly where the p-value is below 1 - confidence.
        smallest = (1 + np.arange(len(self.farthest))) / (1 + len(self.farthest))
        outside = int((smallest < 1 - check_confidence(confidence)).sum())
        reach = self.farthest[-outside] if outside > 0 else math.nan
        return np.stack([self.values - reach * self.scale, self.values + reach * self.scale])

    def p_values(self) -> Floats:
        """Return p-values (K,) of each number being zero, adjusted for all numbers; NaN where a number is undefined.

        A p-value is the share of resamples whose distance is at least that of the number from zero, with the data set
        counted as one of them.
        """
        away = np.abs(self.values)
        distance = np.divide(away, self.scale, out=np.where(away > 0, math.inf, 0.0), where=self.scale > 0)
        farther = len(self.farthest) - np.searchsorted(self.farthest, distance)
        return np.where(np.isfinite(self.values + self.scale), (1 + farther) / (1 + len(self.farthest)), math.nan)


def around(values: Floats, replicates: Floats, samples: int | Integers) -> Around:
    """Measure how far replicates (R, K) are from their values (K,); NaN is left out.

    `samples` is the number behind all values, or (K,) behind each.
    """
    distance = np.abs(replicates - values) * widening(samples)
    defined = np.isfinite(distance)
    distance[~defined | (distance <= 1e-12 * np.abs(values))] = 0.0  # rounding errors are not spread
    scale = np.sqrt((distance**2).sum(axis=0) / np.maximum(defined.sum(axis=0), 1))
    units = np.divide(distance, scale, out=np.zeros_like(distance), where=scale > 0)
    farthest = np.sort(units.max(axis=1)[defined.any(axis=1)])
    return Around(values=values, scale=np.where(defined.any(axis=0), scale, math.nan), farthest=farthest)


def widening(samples: int | Integers) -> Floats:
    """Return how much more new samples would vary than resamples of this many do."""
    return np.asarray(np.sqrt(samples / np.maximum(np.asarray(samples) - 3, 1)))
