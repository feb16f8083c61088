"""The one rule by which claims are judged: a paired bootstrap of what they compare.

A claim is put as margins, numbers that are above zero where it is true, such as the accuracy of one network less that
of another. It holds where the intervals of all margins lie above zero, does not hold where one lies below, and is open
otherwise. Estimates of the same samples are resampled alike, so that what is computed from them is paired.

Shapes: N samples, R resamples.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from twinlens.metrics.curves import Curve
from twinlens.metrics.soundness_curve import SoundnessCurve
from twinlens.reproduction.outcome import Claim, Verdict
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.arrays import Floats
from twinlens.support.resampling import band, resample_mean

CONFIDENCE, RESAMPLES = 0.95, 1000
_RANKS: dict[Verdict, int] = {"does not hold": 0, "open": 1, "holds": 2}


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """A number with its bootstrap replicates; sums, differences and multiples of estimates are estimates.

    Example:
        >>> correct = np.array([1.0, 1.0, 0.0, 1.0])
        >>> mean_of(correct, "abcd") - 0.5
        0.250 over 4 samples
    """

    value: float
    """The number as measured; NaN where it is not defined."""

    replicates: Floats
    """(R,) the same number in each resample."""

    samples: int
    """How many samples were resampled."""

    over: str = "samples"
    """What these samples are."""

    cannot: str = ""
    """Why it can decide nothing, whatever its interval."""

    reach: float = math.nan
    """By how much a sample that was not seen may differ: the value itself, before anything is subtracted from it."""

    def __post_init__(self) -> None:
        if math.isnan(self.reach):
            object.__setattr__(self, "reach", 0.0 if math.isnan(self.value) else abs(self.value))

    def __repr__(self) -> str:
        return f"{self.value:z.3f} over {self.samples} {self.over}"

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end of its interval; NaN where there is none."""
        value, replicates = np.array([self.value]), self.replicates[:, None]
        low, high = band(value, replicates, CONFIDENCE, samples=self.samples, simultaneous=True)
        return float(low[0]), float(high[0])

    def numbers(self) -> dict[str, float]:
        """Return the number with its interval, as results.json holds it."""
        low, high = self.interval
        return {"mean": self.value, "low": low, "high": high}

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
        return self._combined(operator.truediv, divisor)

    def __neg__(self) -> Estimate:
        return self * -1.0

    def _combined(self, apply: Callable[[Floats, Floats], Floats], other: Estimate | float) -> Estimate:
        if not isinstance(other, Estimate):
            value, replicates = (apply(one, np.asarray(other)) for one in (np.asarray(self.value), self.replicates))
            scaled = apply in (operator.mul, operator.truediv)
            reach = abs(float(apply(np.asarray(self.reach), np.asarray(other)))) if scaled else self.reach
            return dataclasses.replace(self, value=float(value), replicates=replicates, reach=reach)
        return dataclasses.replace(
            self,
            value=float(apply(np.asarray(self.value), np.asarray(other.value))),
            replicates=apply(self.replicates, other.replicates),
            samples=min(self.samples, other.samples),
            reach=max(self.reach, other.reach),
            cannot=self.cannot or other.cannot,
        )


def mean_of(values: Floats, ids: Sequence[str], *, over: str = "samples") -> Estimate:
    """Estimate the mean of values (N,), one for each id; NaN is left out."""
    mean, replicates = resample_mean(values, ids, RESAMPLES, seed=0)
    samples = int(np.isfinite(values).sum())
    return Estimate(value=math.nan if mean is None else mean, replicates=replicates, samples=samples, over=over)


def area_of(curve: Curve, high: float | None = None) -> Estimate:
    """Estimate the area of a curve; for the paper's soundness up to the predictive level `high`.

    Soundness by accuracy is not judged where one sample is worth more than epsilon, because single samples decide over
    its steps there. With more it is: its intervals do not hold its value, but decide differences on the right side
    (docs/concepts/statistics.md).
    """
    value, replicates = bootstrap(curve, resamples=RESAMPLES).areas_up_to(high)
    samples = len(curve.table)
    return Estimate(value=value, replicates=replicates, samples=samples, cannot=too_few(curve))


def too_few(curve: Curve) -> str:
    """Return why the samples of a curve are too few to judge it by; empty where they are not."""
    if not isinstance(curve, SoundnessCurve) or curve.has_interval or curve.epsilon * len(curve.table) >= 1:
        return ""
    samples = len(curve.table)
    return f"one of {samples} samples is worth {1 / samples:.3f}, more than ε = {curve.epsilon:g}"


def average(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of estimates of the same samples."""
    return reduce(operator.add, estimates) / len(estimates)


def judge(
    *margins: Estimate | tuple[Estimate, ...],
    text: str,
    source: str,
    measured: str,
    ours: bool = False,
    cannot: str = "",
) -> Claim:
    """Judge a claim by its margins.

    Args:
        *margins: numbers that are all above zero where the claim is true; of several in a tuple, one has to be. Their
            intervals hold at once.
        text: the claim.
        source: where the paper makes it.
        measured: what was measured, with numbers.
        ours: whether the claim is our own.
        cannot: why the data cannot decide it, whatever the intervals.

    Example:
        >>> right, wrong = np.ones(50), np.zeros(50)
        >>> ids = [str(k) for k in range(50)]
        >>> judge(mean_of(right, ids) - mean_of(wrong, ids), text="", source="", measured="").verdict
        'holds'
    """
    groups = [margin if isinstance(margin, tuple) else (margin,) for margin in margins]
    leaves = [leaf for group in groups for leaf in group]
    values, replicates = np.array([leaf.value for leaf in leaves]), np.stack([leaf.replicates for leaf in leaves], 1)
    samples = min(leaf.samples for leaf in leaves)
    largest = max(leaf.reach for leaf in leaves)
    low, high = band(values, replicates, CONFIDENCE, samples=samples, simultaneous=True, largest=largest)
    judged = iter(zip(map(_verdict, low, high), values.tolist(), low.tolist(), high.tolist(), strict=True))
    # Of alternatives the best decides, and of what has to be true at once the worst.
    best = [max((next(judged) for _ in group), key=lambda one: (_RANKS[one[0]], _known(one[2]))) for group in groups]
    verdict, estimate, *ends = min(best, key=lambda one: (_RANKS[one[0]], _known(one[1])))
    reason = cannot or next((leaf.cannot for leaf in leaves if leaf.cannot), "")
    if reason:
        verdict = "open"
    elif verdict == "open":
        reason = "there is no number to judge by" if math.isnan(ends[0]) else "the interval contains 0"
    shown = [None if math.isnan(number) else number for number in (estimate, *ends)]
    return Claim(
        text=text,
        source=source,
        measured=measured,
        verdict=verdict,
        estimate=shown[0],
        low=shown[1],
        high=shown[2],
        over=f"{samples:,} {leaves[0].over}",
        ours=ours,
        reason=reason,
    )


def by_construction(*, text: str, source: str, measured: str, reason: str, ours: bool = False) -> Claim:
    """Return a claim that could not have failed, with the reason."""
    return Claim(text=text, source=source, measured=measured, verdict="by construction", reason=reason, ours=ours)


def _verdict(low: float, high: float) -> Verdict:
    return "holds" if low > 0 else "does not hold" if high < 0 else "open"


def _known(number: float) -> float:
    return -math.inf if math.isnan(number) else number
