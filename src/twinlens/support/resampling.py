"""Resampling: bootstrap draws of samples, and intervals from the replicates of a number.

An interval reaches as far to both sides as resamples deviate, which includes the bias of an estimator. Three things are
added that resampling of few samples does not show: new samples vary more than resamples do, the long tail of a skewed
distribution is longer than it looks, and where nearly all samples agree, others may not.

Shapes: N samples, R resamples, K numbers (the levels of a curve, or pairs of methods).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from twinlens.support.arrays import Floats, Integers
from twinlens.support.randomness import stream

FEWEST = 10
"""With fewer samples there is no interval and no p-value, and runs that share fewer are not paired."""
_FARTHEST = 30.0  # deviations, beyond which a normal distribution has nothing left
_UNDERRATED = 20.0  # the skewness of n samples counts 1 + 20 / n times; found by benchmarks/few_samples.py
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

    `largest` is the size that the value of an unseen sample can have, by default the largest of the values.
    """
    reach = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) if largest is None else largest
    return Band(*around(values, replicates, samples, reach=reach, together=simultaneous).ends(confidence))


def _few_differ(replicates: Floats) -> NDArray[np.bool_]:
    """Find the numbers (K,) in which at most three samples differ from the others: resampling shows too little there.

    One resample in twenty misses all three. These resamples agree, at one end of the replicates.
    """
    top, bottom = np.fmax.reduce(replicates), np.fmin.reduce(replicates)
    rounding = 1e-12 * np.abs(top)
    at_an_end = np.stack([replicates >= top - rounding, replicates <= bottom + rounding]).mean(axis=1)
    return np.asarray(at_an_end.max(axis=0) > 0.05)


def smallest_p(groups: int | Integers) -> Floats:
    """Return the smallest two-sided p-value that flipping the signs of this many independent differences can reach.

    Example:
        >>> smallest_p(6)
        array(0.03125)
    """
    return np.asarray(np.exp2(1 - np.asarray(groups, dtype=np.float64)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Around:
    """Distances between some numbers and their replicates, for all numbers together or for each by itself."""

    values: Floats
    scale: Floats
    """(K,) root mean square distance of the replicates, the unit of each number."""
    skew: Floats
    """(K,) skewness of the replicates, corrected for few samples."""
    unseen: Floats
    """(K,) what one unseen sample may add to a number in which at most a few samples differ; 0 for other numbers."""
    samples: Integers
    """(K,) number of samples behind each number."""
    groups: Integers
    """(K,) number of independent groups of samples; of samples where each is independent."""
    farthest: Floats
    """(R, K) the distance in each resample, in these units, in ascending order; the largest for numbers together."""
    resamples: Integers
    """(K,) number of resamples in which a number is defined."""

    def ends(self, confidence: float) -> Floats:
        """Return lower and upper ends (2, K) that hold the replicates in a share `confidence` of the resamples.

        An end is NaN where a number is undefined, or there are too few samples, groups or resamples.
        """
        # Counted as in `p_values`: zero is outside exactly where the p-value is below 1 - confidence.
        error = 1 - check_confidence(confidence)
        outside = np.ceil(error * (1 + self.resamples)).astype(np.int64)
        outside = outside - (outside / (1 + self.resamples) >= error)
        enough = (self.samples >= FEWEST) & (smallest_p(self.groups) < error) & (outside > 0)
        below, above = (self._distance(np.maximum(outside, 1), side) for side in (-1, 1))
        return np.where(enough, np.stack([self.values - below, self.values + above]), math.nan)

    def p_values(self) -> Floats:
        """Return p-values (K,) of each number being zero, adjusted for all numbers where these are tested together.

        A p-value is the share of resamples that are farther away than zero, with the data set counted as one of them.
        It is NaN where a number is undefined or of fewer than ten samples, and never below what flipping signs can
        reach.
        """
        # The more resamples are outside, the nearer are the ends: bisection for the first end that excludes zero.
        first, last, side = np.ones_like(self.resamples), 1 + self.resamples, np.where(self.values > 0, -1, 1)
        while (first < last).any():
            middle = (first + last) // 2
            excluded = np.abs(self.values) > self._distance(np.clip(middle, 1, len(self.farthest)), side)
            first, last = np.where(excluded, first, np.minimum(middle + 1, last)), np.where(excluded, middle, last)
        p = np.maximum(first / (1 + self.resamples), smallest_p(self.groups))
        return np.where(np.isfinite(self.values + self.scale) & (self.samples >= FEWEST), p, math.nan)

    def _distance(self, outside: Integers, side: int | Integers) -> Floats:
        """Return how far (K,) the end on one side (-1 or 1) is from each number, with some resamples (K,) outside.

        The long tail is extended by the first term of the Cornish-Fisher expansion of a studentised mean; the other
        side is not shortened. Where no sample differs, the two-sided rule of three applies: 3.7 in N others may at 95%.
        """
        reach = np.maximum(self.farthest[-outside, np.arange(len(self.values))], 0.0)
        tail = np.maximum(side * self.skew, 0.0) * (2 * reach**2 + 1) / 6
        unseen = self.unseen * -np.log(outside / (1 + self.resamples) / 2)
        return np.asarray(self.scale * (_student(reach, self.groups) + tail) + unseen)


def around(
    values: Floats,
    replicates: Floats,
    samples: int | Integers,
    *,
    groups: int | Integers | None = None,
    reach: float | Floats = 0.0,
    together: bool = True,
) -> Around:
    """Measure how far replicates (R, K) are from their values (K,); NaN is left out.

    Args:
        values: the numbers.
        replicates: the same in each resample.
        samples: the number behind all values, or (K,) behind each.
        groups: the same of independent groups, where samples were drawn in groups.
        reach: the size that the value of an unseen sample can have, for all values or (K,) for each.
        together: whether intervals hold, and p-values are adjusted, for all numbers together.
    """
    independent = np.broadcast_to(samples if groups is None else groups, values.shape)
    distance = replicates - values
    defined = np.isfinite(distance)
    distance[~defined | (np.abs(distance) <= 1e-12 * np.abs(values))] = 0.0  # rounding errors are not spread
    scale = np.sqrt((distance**2).sum(axis=0) / np.maximum(defined.sum(axis=0), 1))
    units = np.divide(np.abs(distance), scale, out=np.zeros_like(distance), where=scale > 0)
    units = np.where(defined, units, -math.inf)  # before all others
    if together:
        units = units.max(axis=1, keepdims=True)
    return Around(
        values=values,
        scale=np.where(defined.any(axis=0), scale, math.nan),
        skew=_skewness(distance, defined) * (1 + _UNDERRATED / np.maximum(samples, 1)),
        unseen=np.where(_few_differ(replicates), reach / np.maximum(independent, 1), 0.0),
        samples=np.broadcast_to(samples, values.shape),
        groups=independent,
        farthest=np.broadcast_to(np.sort(units, axis=0), replicates.shape),
        resamples=np.broadcast_to(np.isfinite(units).sum(axis=0), values.shape),
    )


def _skewness(distance: Floats, defined: NDArray[np.bool_]) -> Floats:
    """Return the skewness (K,) of the defined distances (R, K) beyond what chance gives to this many resamples."""
    count = np.maximum(defined.sum(axis=0), 1)
    centred = np.where(defined, distance - distance.sum(axis=0) / count, 0.0)
    spread, third = (np.sum(centred**power, axis=0) / count for power in (2, 3))
    skewness = np.divide(third, spread**1.5, out=np.zeros(distance.shape[1]), where=spread > 0)
    chance = 6 / count  # the variance of the skewness of normal numbers
    return np.asarray(np.sign(skewness) * np.sqrt(np.maximum(skewness**2 - 4 * chance, 0.0)))


def _student(reach: Floats, samples: Integers) -> Floats:
    """Return how far (K,) new samples would deviate as rarely as resamples of this many deviate by `reach`.

    Resamples vary less than new samples, by √((N − 1) / N), and their spread is estimated: quantiles of the normal
    distribution become those of Student's t, which differ most far out, where many differences are tested together.
    """
    freedom = np.maximum(samples - 1, 1)
    farther = -stdtrit(freedom, ndtr(-np.minimum(reach, _FARTHEST))) * np.sqrt((freedom + 1) / freedom)
    return np.asarray(np.maximum(reach, farther))
