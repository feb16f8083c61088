"""Power: how small a difference between methods the samples of a run can show."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from twinlens.support.estimate import Estimate


def visible_difference(differences: Iterable[Estimate]) -> float | None:
    """Return the size from which on a difference between two methods is typically decided.

    It is the median half-width of the intervals. They are nearly symmetric, and a measured difference is decided where
    it exceeds about its half-width. If the true difference has this size, about half of all data sets of as many
    samples decide it; if it is 1.4 times as large, at least four of five do.

    Args:
        differences: the difference of each pair of methods by one metric, with intervals that hold for all pairs.

    Returns:
        The size; None where no difference has an interval. Those without width, between equal maps, are left out.

    Example:
        >>> pairs = [Estimate(value=0.1, low=0.1 - reach, high=0.1 + reach, samples=50) for reach in (0.02, 0.04, 0.2)]
        >>> f"{visible_difference(pairs):.2f}"
        '0.04'
    """
    ends = [difference.interval for difference in differences]
    reaches = [(high - low) / 2 for low, high in (each for each in ends if each is not None) if high > low]
    return median(reaches) if reaches else None
