"""Resampling: bootstrap draws of samples, and the one kind of interval that comes from the replicates of a number.

An interval is symmetric about its estimate, and as wide as the replicates deviate from it: it always contains the
estimate, and a bias of the estimator widens it. Where nearly all samples agree, the interval is widened by what N
samples cannot show.

Shapes: N samples, R resamples, K numbers (the levels of a curve, or pairs of methods).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, SupportsFloat, TypeVar

import numpy as np
from numpy.typing import NDArray

from twinlens.support.arrays import Floats, Integers
from twinlens.support.randomness import stream

Number = TypeVar("Number", float, Floats)
_MOST = 10**6
_BLOCK = 16_000_000  # counts that are drawn at once: 128 MB


@dataclass(frozen=True, kw_only=True)
class Interval(Generic[Number]):
    """A number, or a curve of numbers, with its bootstrap interval; unpacks as `low, high`.

    Example:
        >>> low, high = Interval(value=0.5, low=0.4, high=0.6, confidence=0.95)
        >>> low, high
        (0.4, 0.6)
    """

    value: Number | None
    """The measured value; None where it is not defined, such as a predictive level that is not reached."""

    low: Number
    """Lower end; NaN where there is no value, or resamples are too few for the confidence."""

    high: Number
    """Upper end."""

    confidence: float
    """Nominal coverage of the interval."""

    reached: float = 1.0
    """Share of the resamples in which the number is defined; the interval comes from these."""

    def __iter__(self) -> Iterator[Number]:
        return iter((self.low, self.high))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, end: int) -> Number:
        return (self.low, self.high)[end]

    def __str__(self) -> str:
        if isinstance(self.low, np.ndarray):
            return f"{len(self.low)} levels, {self.confidence:.0%} intervals"
        value = "not reached" if self.value is None else f"{self.value:z.3f}"
        between = "" if math.isnan(self.low) else f" [{self.low:z.3f}, {self.high:z.3f}]"
        rare = "" if self.reached == 1 else f", reached in {self.reached:.0%} of resamples"
        return f"{value}{between}{rare}"


def interval_of(value: float | None, replicates: Floats, confidence: float, *, samples: int) -> Interval[float]:
    """Turn replicates (R,) of a number into its interval; those that are not defined are left out.

    Example:
        >>> print(interval_of(0.5, np.linspace(0.4, 0.6, 101), 0.95, samples=100))
        0.500 [0.403, 0.597]
    """
    values = np.array([math.nan if value is None else value])
    low, high = band(values, replicates[:, None], confidence, samples=samples, simultaneous=True)
    reached = float(np.isfinite(replicates).mean())
    return Interval(value=value, low=float(low[0]), high=float(high[0]), confidence=confidence, reached=reached)


def draw(ids: Sequence[str], resamples: int, seed: int) -> Floats:
    """Draw with replacement: how often each sample occurs in each resample, (R, N).

    Counts belong to ids and not to positions: reordering the samples reorders the columns and changes nothing else,
    and two methods probed on the same samples are resampled alike.

    Example:
        >>> draw(["a", "b", "c"], resamples=2, seed=0).sum(axis=1)
        array([3., 3.])
    """
    return np.concatenate(list(draw_blocks(ids, resamples, seed)))


def draw_blocks(ids: Sequence[str], resamples: int, seed: int) -> Iterator[Floats]:
    """Yield the result of `draw` some resamples at a time, to limit memory.

    Example:
        >>> [len(counts) for counts in draw_blocks([str(k) for k in range(40_000)], resamples=1000, seed=0)]
        [400, 400, 200]
    """
    if not 2 <= resamples <= _MOST:
        limit = "least 2" if resamples < 2 else f"most {_MOST}"
        raise ValueError(f"`resamples` must be at {limit}; got {resamples}. 1000 is a good number.")
    generator = np.random.default_rng(stream(seed, "bootstrap"))
    rank = np.argsort(np.argsort(np.asarray(ids)))
    for start in range(0, resamples, size := max(1, _BLOCK // len(ids))):
        counts = np.empty((min(size, resamples - start), len(ids)))
        for row in counts:
            row[:] = np.bincount(generator.integers(len(ids), size=len(ids)), minlength=len(ids))[rank]
        yield counts


def resample_mean(values: Floats, ids: Sequence[str], resamples: int, seed: int) -> tuple[float | None, Floats]:
    """Return the mean of values (N,), None where there are none, and that of each resample (R,); NaN is left out.

    Example:
        >>> mean, replicates = resample_mean(np.array([0.0, 1.0, np.nan]), ["a", "b", "c"], resamples=9, seed=0)
        >>> mean, replicates.shape
        (0.5, (9,))
    """
    defined = np.isfinite(values)
    weights = draw(ids, resamples, seed) * defined
    totals, count = weights @ np.where(defined, values, 0.0), weights.sum(axis=1)
    replicates = np.full(resamples, np.nan)
    np.divide(totals, count, out=replicates, where=count > 0)
    return float(values[defined].mean()) if defined.any() else None, replicates


def interval_of_mean(
    values: Floats, ids: Sequence[str], confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0
) -> Interval[float]:
    """Compute the mean of values (N,) with its bootstrap interval; NaN is left out.

    Example:
        >>> print(interval_of_mean(np.linspace(0, 1, 21), [str(k) for k in range(21)]))
        0.500 [0.366, 0.634]
    """
    mean, replicates = resample_mean(values, ids, resamples, seed)
    return interval_of(mean, replicates, confidence, samples=int(np.isfinite(values).sum()))


def check_confidence(confidence: float) -> float:
    """Return the confidence; refuse a number that is not within (0, 1).

    Example:
        >>> check_confidence(0.95)
        0.95
    """
    if isinstance(confidence, bool) or not isinstance(confidence, SupportsFloat) or not 0 < float(confidence) < 1:
        raise ValueError(f"`confidence` must lie within (0, 1), such as 0.95; got {confidence!r}.")
    return float(confidence)


def band(
    values: Floats,
    replicates: Floats,
    confidence: float,
    *,
    samples: int,
    simultaneous: bool,
    largest: float | None = None,
) -> tuple[Floats, Floats]:
    """Return lower and upper ends (K,) from replicates of a curve (R, K): of each level, or of the whole curve.

    Where at most a few samples differ, others may by as much as `largest`: the largest of the values by default.

    Example:
        >>> replicates = np.random.default_rng(0).normal(size=(999, 2)) * [1.0, 2.0]
        >>> band(np.zeros(2), replicates, 0.95, samples=1000, simultaneous=False)[1].round(1)
        array([2. , 3.8])
        >>> band(np.zeros(2), replicates, 0.95, samples=1000, simultaneous=True)[1].round(1)
        array([2.3, 4.4])
    """
    groups = [slice(None)] if simultaneous else [slice(k, k + 1) for k in range(len(values))]
    # The two-sided rule of three: of N samples none differs, but up to 3.7 in N others may (at 95%). By how much is
    # not seen either; the largest value is used for it.
    unseen = -math.log((1 - check_confidence(confidence)) / 2) / max(samples, 1)
    most = np.abs(values[np.isfinite(values)]).max(initial=0.0) if largest is None else largest
    more = np.where(_few_differ(replicates), unseen * most, 0.0)
    low, high = np.hstack([around(values[some], replicates[:, some], samples).ends(confidence) for some in groups])
    return low - more, high + more


def _few_differ(replicates: Floats) -> NDArray[np.bool_]:
    """Find the numbers (K,) in which at most three samples differ from the others, too few for resampling.

    One resample in twenty has none of three samples. All that have none agree, and are at one end of the replicates.
    """
    top, bottom = np.fmax.reduce(replicates), np.fmin.reduce(replicates)
    rounding = 1e-12 * np.abs(top)
    at_an_end = np.stack([replicates >= top - rounding, replicates <= bottom + rounding]).mean(axis=1)
    return np.asarray(at_an_end.max(axis=0) > 0.05)


@dataclass(frozen=True, kw_only=True, eq=False)
class Around:
    """How far the replicates of some numbers deviate from them, for all numbers at once."""

    values: Floats
    """(K,) the numbers as measured."""

    scale: Floats
    """(K,) root mean square of what a replicate is off by: the unit of each number."""

    farthest: Floats
    """(R,) of each resample, how far its farthest replicate is off, in these units, in ascending order."""

    def ends(self, confidence: float) -> Floats:
        """Return lower and upper ends (2, K), between which the share `confidence` of resamples has all its replicates.

        An end is NaN where a number has no value, and where the resamples are too few for the confidence.
        """
        # Counted as in `p_values`: zero is outside exactly where the p-value is below 1 - confidence.
        smallest = (1 + np.arange(len(self.farthest))) / (1 + len(self.farthest))
        outside = int((smallest < 1 - check_confidence(confidence)).sum())
        reach = self.farthest[-outside] if outside > 0 else math.nan
        return np.stack([self.values - reach * self.scale, self.values + reach * self.scale])

    def p_values(self) -> Floats:
        """Return the p-value (K,) of each number being zero, for all of them at once; NaN where there is no value.

        It is the share of resamples that deviate from the numbers as far as the number is from zero, including the data
        set itself.
        """
        away = np.abs(self.values)
        distance = np.divide(away, self.scale, out=np.where(away > 0, math.inf, 0.0), where=self.scale > 0)
        farther = len(self.farthest) - np.searchsorted(self.farthest, distance)
        return np.where(np.isfinite(self.values + self.scale), (1 + farther) / (1 + len(self.farthest)), math.nan)


def around(values: Floats, replicates: Floats, samples: int | Integers) -> Around:
    """Measure how far replicates (R, K) deviate from their values (K,); NaN is left out.

    Args:
        values: the numbers as measured.
        replicates: the same numbers in each resample.
        samples: the number of samples that were resampled, for all numbers or (K,) for each; resamples of few samples
            vary less than new samples would.

    Example:
        >>> replicates = np.random.default_rng(0).normal(size=(999, 2))
        >>> around(np.array([0.1, 4.0]), replicates + [0.1, 4.0], samples=1000).p_values()
        array([0.992, 0.001])
    """
    deviation = np.abs(replicates - values) * np.sqrt(samples / np.maximum(np.asarray(samples) - 3, 1))
    finite = np.isfinite(deviation)
    deviation[~finite | (deviation <= 1e-12 * np.abs(values))] = 0.0  # rounding is no spread
    scale = np.sqrt((deviation**2).sum(axis=0) / np.maximum(finite.sum(axis=0), 1))
    units = np.divide(deviation, scale, out=np.zeros_like(deviation), where=scale > 0)
    farthest = np.sort(units.max(axis=1)[finite.any(axis=1)])
    return Around(values=values, scale=np.where(finite.any(axis=0), scale, math.nan), farthest=farthest)
