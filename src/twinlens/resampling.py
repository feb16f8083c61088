"""Resampling: how often each sample is drawn, and from replicates of a number to an interval for it.

Shapes: N samples, R resamples, L levels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twinlens.ordering import stream
from twinlens.table import Floats


def draw(ids: Sequence[str], resamples: int, seed: int) -> Floats:
    """Draws with replacement: how often each sample occurs in each resample, (R, N).

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
    """Gives the confidence, refusing what is not a probability.

    Example:
        >>> check_confidence(0.95)
        0.95
    """
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must lie within (0, 1), such as 0.95; got {confidence!r}.")
    return float(confidence)


def band(replicates: Floats, confidence: float, *, simultaneous: bool) -> tuple[Floats, Floats]:
    """Gives lower and upper ends (L,) from replicates of a curve (R, L): of each level, or of the whole curve.

    Example:
        >>> low, high = band(np.arange(101.0)[:, None], 0.9, simultaneous=False)
        >>> low, high
        (array([5.]), array([95.]))
    """
    return _around_curves(replicates, confidence) if simultaneous else pointwise(replicates, confidence)


def pointwise(replicates: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Gives the quantiles between which the replicates (R, ...) lie, each number by itself; NaN is left out.

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
    """Gives a band that the share `confidence` of the replicates (R, L) never leaves.

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
