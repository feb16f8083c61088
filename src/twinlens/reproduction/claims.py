"""Claims, and the one rule that decides them: a paired bootstrap of their margins.

A margin is a number that is above zero if the claim is true, such as the accuracy of one network minus that of another.
A claim holds if the intervals of all its margins lie above zero. It does not hold if one lies below by more than
`RELEVANT`, the smallest effect that matters. It is open otherwise.

A statement is what the paper says. Where it leaves a choice open, the statement is judged once for each reading: claims
with the same text, each with the name of its reading. A statement counts once.
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
from twinlens.metrics.soundness_curve import SoundnessCurve, soundness_area
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import band

CONFIDENCE, RESAMPLES = 0.95, 1000
RELEVANT = 0.01
"""Smallest effect that refutes a claim, in units of areas, distances and accuracies: the paper's own epsilon."""

Verdict = Literal["holds", "does not hold", "depends on the reading", "open", "by construction"]
"""Outcome of a claim or a statement. "open": the data cannot decide it; "by construction": it could not have failed;
"depends on the reading": a statement that holds in one reading at least, and not in all."""


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
    reading: str = ""  # how the statement was read, such as "0.3 as a variance"; empty if there is one reading
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
    def words(self) -> str:
        """The claim with its reading, if it has one."""
        return f"{self.text.removesuffix('.')} ({self.reading})." if self.reading else self.text

    @property
    def over(self) -> str:
        """What the interval was resampled over, such as "250 test images"; empty if nothing was resampled."""
        return "" if self.estimate is None else f"{self.estimate.samples:,} {self.unit}"


def _signed(end: float) -> str:
    """Round to three digits, or to as many as keep a small number from becoming zero."""
    return f"{end:+.1g}" if 5e-6 < abs(end) < 5e-4 else f"{end:+z.3f}"


def group_statements(claims: Iterable[Claim], *, ours: bool) -> dict[str, list[Claim]]:
    """Return the paper's statements, or our own, by their text, each with the claims that judge its readings."""
    statements: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.ours is ours:
            statements.setdefault(claim.text, []).append(claim)
    return statements


def statement_verdict(readings: Iterable[Claim]) -> Verdict:
    """Return the verdict on a statement from those on its readings.

    Readings that could not have failed count only if there are no others.

    Example:
        >>> one, two = (Claim(text="", source="", measured="", verdict=verdict) for verdict in ("holds", "open"))
        >>> statement_verdict([one]), statement_verdict([one, two]), statement_verdict([two, two])
        ('holds', 'depends on the reading', 'open')
    """
    verdicts = {claim.verdict for claim in readings}
    tested = verdicts - {"by construction"} or verdicts
    if len(tested) == 1:
        return next(iter(tested))
    return "depends on the reading" if "holds" in tested else "open"


def count_verdicts(claims: Iterable[Claim], *, ours: bool) -> str:
    """Count the paper's statements, or our own, by verdict.

    Example:
        >>> one, two = (Claim(text=verdict, source="", measured="", verdict=verdict) for verdict in ("holds", "open"))
        >>> count_verdicts([one, one, two], ours=False), count_verdicts([one], ours=True)
        ('1 of 2 hold, 1 open', 'none')
    """
    verdicts = [statement_verdict(readings) for readings in group_statements(claims, ours=ours).values()]
    several = {"does not": "do not", "depends on the reading": "depend on the reading"}
    others = [
        f"{count} {several.get(word, word) if count > 1 else word}"
        for verdict in get_args(Verdict)[1:]
        if (count := verdicts.count(verdict)) and (word := verdict.removesuffix(" hold"))
    ]
    return ", ".join([f"{verdicts.count('holds')} of {len(verdicts)} hold", *others]) if verdicts else "none"


def area_of(curve: Curve, low: float = 0.0, high: float | None = None) -> Estimate:
    """Estimate the area of a curve; for the paper's soundness over the predictive levels `low` to `high`."""
    again = bootstrap(curve, resamples=RESAMPLES)
    if isinstance(curve, SoundnessCurve):
        rows = zip(
            np.vstack([curve.performance, again.performance]), np.vstack([curve.values, again.values]), strict=True
        )
        value, *rest = np.array([soundness_area(*row, low, high) for row in rows], dtype=np.float64)
        return Estimate.of(float(value), np.array(rest), samples=len(curve.table))
    value, replicates = again.areas_up_to(high)
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
    reading: str = "",
    relevant: float = RELEVANT,
) -> Claim:
    """Judge a claim by its margins, which are all above zero if it is true; of several in a tuple, one has to be.

    Their intervals are simultaneous. `cannot` says why the data cannot decide the claim, regardless of the intervals.
    `relevant` is how far below zero the interval of a margin has to lie to refute the claim.
    """
    groups = [margin if isinstance(margin, tuple) else (margin,) for margin in margins]
    leaves = [leaf for group in groups for leaf in group]
    intervals = iter(_simultaneous(leaves))
    # The best of several alternatives decides, and the worst of what has to be true at once.
    best = [
        max((next(intervals) for _ in group), key=lambda one: (_side(one, relevant), _or_least(one.low)))
        for group in groups
    ]
    margin = min(best, key=lambda one: (_side(one, relevant), _or_least(one.value)))
    verdict, reason = "open" if cannot else _BY_SIDE[_side(margin, relevant)], cannot
    if verdict == "open" and not cannot:
        if margin.low is None:
            reason = "there is no number to judge by"
        else:
            reason = (
                f"it may be false by less than {relevant:g}, which does not matter"
                if margin.decided
                else "the interval contains 0"
            )
    return Claim(
        text=text,
        source=source,
        measured=measured,
        verdict=verdict,
        estimate=margin,
        unit=unit,
        ours=ours,
        reading=reading,
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


def _side(margin: Estimate, relevant: float) -> int:
    """Return 1 for a margin above zero, -1 for one that is relevantly below, and 0 for one that is not decided."""
    if margin.low is None or margin.high is None:
        return 0
    return 1 if margin.low > 0 else -1 if margin.high < -relevant else 0


def _or_least(number: float | None) -> float:
    return -math.inf if number is None else number


_BY_SIDE: dict[int, Verdict] = {-1: "does not hold", 0: "open", 1: "holds"}
