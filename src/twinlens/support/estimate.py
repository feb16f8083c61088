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
from twinlens.support.resampling import around, resample_mean

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
    """The size that the value of an unseen sample can have; by default that of the number before anything is subtracted
    from it."""

    groups: int | None = field(default=None, compare=False, metadata=_KEPT_IN_MEMORY)
    """Number of independent groups in which samples were drawn; None where each was drawn by itself."""

    @staticmethod
    def of(
        value: float | None,
        replicates: Floats,
        *,
        samples: int,
        confidence: float = 0.95,
        reach: float | None = None,
        groups: int | None = None,
    ) -> Estimate:
        """Compute the interval of a number from its replicates (R,); those that are NaN are left out.

        There is none with fewer than ten samples.
        """
        number = math.nan if value is None else value
        size = (0.0 if math.isnan(number) else abs(number)) if reach is None else reach
        low, high = around(np.array([number]), replicates[:, None], samples, groups=groups, reach=size).ends(confidence)
        return Estimate(
            value=None if math.isnan(number) else value,
            low=_defined(low[0]),
            high=_defined(high[0]),
            samples=samples,
            replicates=replicates,
            confidence=confidence,
            reach=size,
            groups=groups,
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
        values: Floats,
        replicates: Floats,
        *,
        samples: int | Integers,
        groups: int | Integers | None = None,
        reach: float | Floats = 0.0,
        together: bool = True,
        confidence: float = 0.95,
    ) -> list[Estimate]:
        """Test several differences (K,) together, by their replicates (R, K).

        Intervals and p-values are adjusted for all of them: p is below 1 - confidence where an interval excludes 0.
        There are neither with fewer than ten samples. The other arguments are those of `around`.
        """
        found = around(values, replicates, samples, groups=groups, reach=reach, together=together)
        low, high = found.ends(confidence)
        reaches = np.broadcast_to(reach, values.shape)
        return [
            Estimate(
                value=_defined(values[k]),
                low=_defined(low[k]),
                high=_defined(high[k]),
                samples=int(found.samples[k]),
                p=_defined(p) if np.isfinite(low[k]) else None,
                replicates=replicates[:, k],
                confidence=confidence,
                reach=float(reaches[k]),
                groups=None if groups is None else int(found.groups[k]),
            )
            for k, p in enumerate(found.p_values())
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
        reach, samples, groups = self.reach or 0.0, self.samples, self.groups
        number: Any = other
        replicates: Any = other
        if isinstance(other, Estimate):
            reach, samples = max(reach, other.reach or 0.0), min(samples, other.samples)
            groups = fewer_groups(self, other)
            number, replicates = math.nan if other.value is None else other.value, other.replicates
        elif apply is operator.mul:
            reach *= abs(other)
        return Estimate.of(
            None if self.value is None else float(apply(self.value, number)),
            apply(self.replicates, replicates),
            samples=samples,
            confidence=self.confidence,
            reach=reach,
            groups=groups,
        )


def fewer_groups(*estimates: Estimate) -> int | None:
    """Return the smallest number of independent groups behind estimates; None where all samples are independent."""
    return min((each.groups for each in estimates if each.groups is not None), default=None)


def _defined(number: float) -> float | None:
    return None if math.isnan(number) else float(number)
