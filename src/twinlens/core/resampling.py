"""Resampling: bootstrap draws of samples, and intervals from the replicates of a number.

Shapes: N samples, R resamples, L levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from twinlens.core.arrays import Floats
from twinlens.core.randomness import stream

Number = TypeVar("Number", float, Floats)


@dataclass(frozen=True, kw_only=True)
class Interval(Generic[Number]):
    """A number, or a curve of numbers, with its bootstrap interval; unpacks as `low, high`.

    Example:
        >>> low, high = Interval(value=0.5, low=0.4, high=0.7, confidence=0.95)
        >>> low, high
        (0.4, 0.7)
    """

    value: Number | None
    """The measured value; None where it is not defined, such as a predictive level that is not reached."""

    low: Number
    """Lower end; NaN where no resample has a value."""

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
        value = "not reached" if self.value is None else f"{self.value:.3f}"
        rare = "" if self.reached == 1 else f", reached in {self.reached:.0%} of resamples"
        return f"{value} [{self.low:.3f}, {self.high:.3f}]{rare}"


def interval_of(value: float | None, replicates: Floats, confidence: float) -> Interval[float]:
    """Turn replicates (R,) of a number into its interval; those that are not defined are left out."""
    low, high = pointwise(replicates, confidence)
    reached = float(np.isfinite(replicates).mean())
    return Interval(value=value, low=float(low), high=float(high), confidence=confidence, reached=reached)


def draw(ids: Sequence[str], resamples: int, seed: int) -> Floats:
    """Draw with replacement: how often each sample occurs in each resample, (R, N).

    Counts belong to ids and not to positions: reordering the samples reorders the columns and changes nothing else,
    and two methods probed on the same samples are resampled alike.

    Example:
        >>> draw(["a", "b", "c"], resamples=2, seed=0).sum(axis=1)
        array([3., 3.])
    """
    if resamples < 2:
        raise ValueError(f"`resamples` must be at least 2; got {resamples}. 1000 is a good number.")
    generator = np.random.default_rng(stream(seed, "bootstrap"))
    place = np.argsort(np.argsort(np.asarray(ids)))
    counts = np.empty((resamples, len(ids)))
    for row in counts:
        row[:] = np.bincount(generator.integers(len(ids), size=len(ids)), minlength=len(ids))[place]
    return counts


def check_confidence(confidence: float) -> float:
    """Return the confidence; refuse a number that is not within (0, 1).

    Example:
        >>> check_confidence(0.95)
        0.95
    """
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must lie within (0, 1), such as 0.95; got {confidence!r}.")
    return float(confidence)


def band(replicates: Floats, confidence: float, *, simultaneous: bool) -> tuple[Floats, Floats]:
    """Return lower and upper ends (L,) from replicates of a curve (R, L): of each level, or of the whole curve.

    Example:
        >>> low, high = band(np.arange(101.0)[:, None], 0.9, simultaneous=False)
        >>> low, high
        (array([5.]), array([95.]))
    """
    return _around_curves(replicates, confidence) if simultaneous else pointwise(replicates, confidence)


def pointwise(replicates: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Return the quantiles between which the replicates (R, ...) lie, each number by itself; NaN is left out.

    Example:
        >>> pointwise(np.arange(101.0), 0.9)
        (array(5.), array(95.))
    """
    tail = (1 - check_confidence(confidence)) / 2
    every = np.atleast_2d(replicates.T).T
    low, high = np.full((2, *every.shape[1:]), np.nan)
    some = np.isfinite(every).any(axis=0)
    if some.any():
        low[some], high[some] = np.nanquantile(every[:, some], [tail, 1 - tail], axis=0)
    return low.reshape(replicates.shape[1:]), high.reshape(replicates.shape[1:])


def _around_curves(replicates: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Compute a band that the share `confidence` of the replicates (R, L) never leaves.

    The pointwise quantiles are moved outwards together, by one factor, until the band holds enough curves.
    """
    low, high = pointwise(replicates, confidence)
    some = np.isfinite(low)
    centre = np.full_like(low, np.nan)
    centre[some] = np.nanmedian(replicates[:, some], axis=0)
    below, above = centre - low, high - centre
    # How far each curve strays, in units of the pointwise band. Where
    # that has no width there is no unit, and the few curves that stray do not count.
    distance = np.zeros_like(replicates)
    np.divide(centre - replicates, below, out=distance, where=(replicates < centre) & (below > 0))
    np.divide(replicates - centre, above, out=distance, where=(replicates > centre) & (above > 0))
    factor = max(1.0, float(np.quantile(distance.max(axis=1), confidence)))
    return centre - factor * below, centre + factor * above
