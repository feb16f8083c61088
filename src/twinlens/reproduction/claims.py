"""Claims, and the one rule that decides them: a paired bootstrap of their margins.

A margin is a number that is above zero if the claim is true, such as the accuracy of one network minus that of another.
A claim holds if the intervals of all its margins lie above zero, does not hold if one lies below, and is open
otherwise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, get_args

import numpy as np

from twinlens.metrics.curves import Curve
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import band

CONFIDENCE, RESAMPLES = 0.95, 1000

Verdict = Literal["holds", "does not hold", "open", "by construction"]
"""Outcome of a claim. "open": the data cannot decide it; "by construction": it could not have failed."""

_BY_SIDE: dict[int, Verdict] = {-1: "does not hold", 0: "open", 1: "holds"}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim about an experiment and its verdict; see `judge`."""

    text: str
    source: str  # where the paper makes it, such as "Fig. 6a"
    measured: str
    verdict: Verdict
    estimate: Estimate | None = None  # the margin that decided; None for claims that hold by construction
    unit: str = "samples"  # what was resampled
    ours: bool = False  # whether the claim is our own; all others are the paper's
    reason: str = ""  # why it is open, or holds by construction

    @property
    def margin(self) -> str:
        """The margin with its interval, which shows on which side of zero it lies; empty if there is none.

        Example:
            >>> margin = Estimate(value=-0.01, low=-0.0198, high=-0.0002, samples=50)
            >>> Claim(text="", source="", measured="", verdict="does not hold", estimate=margin).margin
            '-0.010 [-0.020, -0.0002]'
        """
        if self.estimate is None or self.estimate.interval is None:
            return ""
        low, high = map(_signed, self.estimate.interval)
        return f"{self.estimate.value:+z.3f} [{low}, {high}]"

    @property
    def over(self) -> str:
        """What the interval was resampled over, such as "250 test images"; empty if nothing was resampled."""
        return "" if self.estimate is None else f"{self.estimate.samples:,} {self.unit}"


def _signed(end: float) -> str:
    """Round to three digits, or to as many as keep a small number from becoming zero."""
    return f"{end:+.1g}" if 5e-6 < abs(end) < 5e-4 else f"{end:+z.3f}"


def count_verdicts(claims: Iterable[Claim], *, ours: bool) -> str:
    """Count the paper's claims, or our own, by verdict.

    Example:
        >>> one, two = (Claim(text="", source="", measured="", verdict=verdict) for verdict in ("holds", "open"))
        >>> count_verdicts([one, one, two], ours=False), count_verdicts([one], ours=True)
        ('2 of 3 hold, 1 open', 'none')
    """
    verdicts = [claim.verdict for claim in claims if claim.ours is ours]
    others = [
        f"{count} {'do not' if verdict == 'does not hold' else verdict}"
        for verdict in get_args(Verdict)[1:]
        if (count := verdicts.count(verdict))
    ]
    return ", ".join([f"{verdicts.count('holds')} of {len(verdicts)} hold", *others]) if verdicts else "none"


def area_of(curve: Curve, high: float | None = None) -> Estimate:
    """Estimate the area of a curve; for the paper's soundness up to the predictive level `high`."""
    value, replicates = bootstrap(curve, resamples=RESAMPLES).areas_up_to(high)
    return Estimate.of(value, replicates, samples=len(curve.table))


def too_few(curve: Curve) -> str:
    """Explain why a curve has too few samples to decide a claim; empty if it has enough.

    Soundness by accuracy is not judged if one sample is worth more than epsilon (docs/concepts/statistics.md).
    """
    samples = len(curve.table)
    if curve.threshold is None or curve.has_interval or curve.threshold * samples >= 1:
        return ""
    return f"one of {samples} samples is worth {1 / samples:.3f}, more than ε = {curve.threshold:g}"


def list_values(estimates: Mapping[str, Estimate], spec: str = "z.3f") -> str:
    """List the values of estimates by name."""
    return ", ".join(f"{name} {format_value(estimate, spec)}" for name, estimate in estimates.items())


def format_value(estimate: Estimate, spec: str = "z.3f") -> str:
    """Format the value of an estimate; a dash if it is not defined."""
    return "–" if estimate.value is None else format(estimate.value, spec)


def average(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of estimates of the same samples."""
    return reduce(operator.add, estimates) / len(estimates)


def judge(
    *margins: Estimate | tuple[Estimate, ...],
    text: str,
    source: str,
    measured: str,
    ours: bool = False,
    unit: str = "samples",
    cannot: str = "",
) -> Claim:
    """Judge a claim by its margins, which are all above zero if it is true; of several in a tuple, one has to be.

    Their intervals are simultaneous. `cannot` says why the data cannot decide the claim, regardless of the intervals.
    """
    groups = [margin if isinstance(margin, tuple) else (margin,) for margin in margins]
    leaves = [leaf for group in groups for leaf in group]
    intervals = iter(_simultaneous(leaves))
    # The best of several alternatives decides, and the worst of what has to be true at once.
    best = [max((next(intervals) for _ in group), key=lambda one: (_side(one), _or_least(one.low))) for group in groups]
    margin = min(best, key=lambda one: (_side(one), _or_least(one.value)))
    verdict, reason = "open" if cannot else _BY_SIDE[_side(margin)], cannot
    if verdict == "open" and not cannot:
        reason = "there is no number to judge by" if margin.low is None else "the interval contains 0"
    return Claim(
        text=text,
        source=source,
        measured=measured,
        verdict=verdict,
        estimate=margin,
        unit=unit,
        ours=ours,
        reason=reason,
    )


def _simultaneous(margins: Sequence[Estimate]) -> list[Estimate]:
    """Return the margins with intervals that contain all of them at once."""
    values = np.array([math.nan if margin.value is None else margin.value for margin in margins])
    replicates = np.stack([np.asarray(margin.replicates) for margin in margins], axis=1)
    samples = min(margin.samples for margin in margins)
    reach = max(margin.reach or 0.0 for margin in margins)
    low, high = band(values, replicates, CONFIDENCE, samples=samples, simultaneous=True, largest=reach)
    rows = np.stack([values, low, high], axis=1).tolist()
    numbers = [[None if math.isnan(number) else number for number in row] for row in rows]
    return [Estimate(value=value, low=low, high=high, samples=samples) for value, low, high in numbers]


def _side(margin: Estimate) -> int:
    """Return 1 for a margin above zero, -1 for one below, and 0 for one that is not decided."""
    if not margin.decided:
        return 0
    return 1 if _or_least(margin.low) > 0 else -1


def _or_least(number: float | None) -> float:
    return -math.inf if number is None else number
