"""What an interval says about a difference: decided, less than the margin, or open, and how many samples would decide.

A difference is decided if its interval excludes 0. One that is not decided may still exist: a difference counts as none
only if its whole interval lies within the margin.
"""

from __future__ import annotations

import math

from twinlens.support.estimate import Estimate
from twinlens.support.resampling import FEWEST, smallest_p

MARGIN = 0.02
"""A difference or skill whose interval lies within ± this counts as none."""


def within_margin(estimate: Estimate) -> bool:
    """Return whether the whole interval lies within the margin."""
    return estimate.interval is not None and max(map(abs, estimate.interval)) <= MARGIN


def samples_needed(estimate: Estimate, samples: int | None = None) -> int | None:
    """Return about how many samples would decide: for the present value, or for none within the margin.

    The half-width of an interval falls with the square root of the number of samples. `samples` is their number in the
    run, where the estimate is based on a share of them, as a skill is.

    Example:
        >>> samples_needed(Estimate(value=0.05, low=-0.05, high=0.15, samples=100))
        400
        >>> samples_needed(Estimate(value=0.0, low=-0.04, high=0.04, samples=100))
        400
    """
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    reach, size = (estimate.high - estimate.low) / 2, abs(estimate.value)
    gaps = [gap for gap in (size, MARGIN - size) if gap > 0]
    if not gaps or estimate.decided:
        return None
    now = estimate.samples if samples is None else samples
    needed = max(now * (reach / max(gaps)) ** 2, now + 1.0)
    digits: int = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return math.ceil(needed / digits) * digits


def fewest_controlled(confidence: float = 0.95) -> int:
    """Return how many samples of the exchanged control a skill needs for an interval.

    They exchange their maps in pairs, and flipping the signs of fewer pairs cannot reach the confidence.

    Example:
        >>> fewest_controlled(), fewest_controlled(0.99)
        (12, 16)
    """
    pairs = next(n for n in range(2, 10_000) if smallest_p(n) < 1 - confidence)
    return max(FEWEST, 2 * pairs)


def describe_undecided(difference: Estimate, subject: str, *, samples: str, fewest: int = FEWEST) -> str:
    """Return a clause about a difference that is not decided: what is known, and how many samples would decide.

    Args:
        difference: a difference with a value.
        subject: what is compared, such as "completeness" or "completeness of gradcam between a and b".
        samples: how many samples there are, in words.
        fewest: number of samples below which there is no interval.

    Example:
        >>> def clause(**numbers):
        ...     return describe_undecided(Estimate(**numbers), "completeness", samples=f"{numbers['samples']} samples")
        >>> clause(value=0.013, low=-0.045, high=0.071, samples=40)
        'completeness is not decided with 40 samples (0.013 [-0.045, 0.071]; about 800 would decide)'
        >>> clause(value=0.001, low=-0.004, high=0.006, samples=900)
        'completeness differs by less than 0.02 (0.001 [-0.004, 0.006])'
        >>> clause(value=0.3, samples=6)
        'completeness is not decided with 6 samples (0.300; at least 10 are needed)'
        >>> clause(value=0.3, samples=60)
        'completeness is not decided (0.300, without an interval)'
    """
    size = difference.magnitude
    if within_margin(difference):
        return f"{subject} differs by less than {MARGIN} ({size})"
    if size.interval is None:
        few = f"{subject} is not decided with {samples} ({size}; at least {fewest} are needed)"
        return few if difference.samples < fewest else f"{subject} is not decided ({size}, without an interval)"
    needed = samples_needed(difference)
    more = "" if needed is None else f"; about {needed:,} would decide"
    return f"{subject} is not decided with {samples} ({size}{more})"
