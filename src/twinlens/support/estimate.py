"""Estimates: numbers with their intervals.

Shapes: N samples, R resamples, K numbers.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinlens.support.arrays import Floats, Integers
from twinlens.support.resampling import FEWEST, around, band, resample_mean

_KEPT_IN_MEMORY = {"stored": False}


@dataclass(frozen=True, kw_only=True, repr=False)
class Estimate:
    """A number with its interval.

    Sums, differences and multiples of estimates are estimates, if their replicates are kept. Estimates of the same
    samples share their resamples, and their difference is paired.

    Example:
        >>> Estimate(value=0.5, low=0.4, high=0.6, samples=100)
        Estimate(0.500 [0.400, 0.600], 100 samples)
        >>> replicates = np.linspace(0.4, 0.6, 101)
        >>> print(Estimate.of(0.5, replicates, samples=100) - 0.5)
        0.000 [-0.097, 0.097]
    """

    value: float | None
    """The number; None where it is not defined, such as soundness at a level that is not reached."""

    low: float | None = None
    """Lower end of its interval; None where there is none."""

    high: float | None = None
    """Upper end."""

    samples: int
    """Number of samples behind it."""

    p: float | None = None
    """Two-sided p-value of the number being zero; None where it was not computed."""

    replicates: Floats | None = field(default=None, compare=False, metadata=_KEPT_IN_MEMORY)
    """(R,) the same number in each resample; None where they are not kept."""

    confidence: float = field(default=0.95, compare=False, metadata=_KEPT_IN_MEMORY)
    """Nominal coverage of the interval."""

    reach: float | None = field(default=None, compare=False, metadata=_KEPT_IN_MEMORY)
    """How far an unseen sample may differ: the size of the number before anything is subtracted from it."""

    @staticmethod
    def of(
        value: float | None,
        replicates: Floats,
        *,
        samples: int,
        confidence: float = 0.95,
        reach: float | None = None,
    ) -> Estimate:
        """Compute the interval of a number from its replicates (R,); those that are NaN are left out."""
        defined = value is not None and not math.isnan(value)
        number = np.array([value if defined else math.nan], dtype=float)
        low, high = band(number, replicates[:, None], confidence, samples=samples, simultaneous=True, largest=reach)
        return Estimate(
            value=value if defined else None,
            low=_defined(low[0]),
            high=_defined(high[0]),
            samples=samples,
            replicates=replicates,
            confidence=confidence,
            reach=(abs(number[0]) if defined else 0.0) if reach is None else reach,
        )

    @staticmethod
    def of_mean(
        values: Floats, ids: Sequence[str], confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0
    ) -> Estimate:
        """Compute the mean of values (N,) with its bootstrap interval; NaN is left out.

        Example:
            >>> print(Estimate.of_mean(np.linspace(0, 1, 21), [str(k) for k in range(21)]))
            0.500 [0.366, 0.634]
        """
        mean, replicates = resample_mean(values, ids, resamples, seed)
        return Estimate.of(mean, replicates, samples=int(np.isfinite(values).sum()), confidence=confidence)

    @staticmethod
    def of_differences(
        values: Floats, replicates: Floats, *, samples: int | Integers, confidence: float = 0.95
    ) -> list[Estimate]:
        """Test several differences (K,) simultaneously, by their replicates (R, K).

        Intervals and p-values are adjusted for all of them: p is below 1 - confidence where an interval excludes 0.
        There is no p-value with fewer than ten samples.
        """
        together, counts = around(values, replicates, samples), np.broadcast_to(samples, values.shape)
        low, high = together.ends(confidence)
        return [
            Estimate(
                value=_defined(values[k]),
                low=_defined(low[k]),
                high=_defined(high[k]),
                samples=int(counts[k]),
                p=_defined(p) if counts[k] >= FEWEST else None,
                replicates=replicates[:, k],
                confidence=confidence,
            )
            for k, p in enumerate(together.p_values())
        ]

    def __repr__(self) -> str:
        p = "" if self.p is None else f", p = {self.p:.3f}"
        return f"Estimate({self}, {self.samples} samples{p})"

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        interval = "" if self.low is None else f" [{self.low:z.3f}, {self.high:z.3f}]"
        return f"{self.value:z.3f}{interval}"

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends of the interval, or None."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def decided(self) -> bool:
        """Whether the interval excludes zero."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def magnitude(self) -> Estimate:
        """The estimate without its sign: the interval of a negative number is mirrored."""
        if self.value is None or self.value >= 0:
            return self
        low, high = (None, None) if self.low is None or self.high is None else (-self.high, -self.low)
        return dataclasses.replace(self, value=-self.value, low=low, high=high, replicates=None)

    def clipped(self, least: float, largest: float) -> Estimate:
        """Return the estimate with the ends of its interval within the limits of the number."""
        if self.low is None or self.high is None:
            return self
        low, high = (min(max(end, least), largest) for end in (self.low, self.high))
        return dataclasses.replace(self, low=low, high=high)

    def __add__(self, other: Estimate | float) -> Estimate:
        return self._combined(operator.add, other)

    def __radd__(self, other: float) -> Estimate:
        return self + other

    def __sub__(self, other: Estimate | float) -> Estimate:
        return self._combined(operator.sub, other)

    def __rsub__(self, other: float) -> Estimate:
        return -self + other

    def __mul__(self, factor: float) -> Estimate:
        return self._combined(operator.mul, factor)

    def __truediv__(self, divisor: float) -> Estimate:
        return self * (1 / divisor)

    def __neg__(self) -> Estimate:
        return self * -1.0

    def _combined(self, apply: Callable[[Any, Any], Any], other: Estimate | float) -> Estimate:
        if self.replicates is None or (isinstance(other, Estimate) and other.replicates is None):
            raise ValueError("Only estimates that keep their replicates can be combined.")
        reach, samples = self.reach or 0.0, self.samples
        number: Any = other
        replicates: Any = other
        if isinstance(other, Estimate):
            reach, samples = max(reach, other.reach or 0.0), min(samples, other.samples)
            number, replicates = math.nan if other.value is None else other.value, other.replicates
        elif apply is operator.mul:
            reach *= abs(other)
        return Estimate.of(
            None if self.value is None else float(apply(self.value, number)),
            apply(self.replicates, replicates),
            samples=samples,
            confidence=self.confidence,
            reach=reach,
        )


def _defined(number: float) -> float | None:
    return None if math.isnan(number) else float(number)
