"""Where the attribution of a map runs out: features that a sweep adds beyond that have no attribution.

The paper grows the kept set inside A, the features with attribution. A sweep by area continues when A is used up.

Shapes: N samples, L levels of a soundness sweep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.probing.probe_table import ProbeTable
from twinlens.support.arrays import Floats

MOST = 0.5
"""A level is not reached by attribution if more than this share of the samples is exhausted."""


@dataclass(frozen=True, kw_only=True)
class Reached:
    """Where a predictive level was first reached."""

    value: float
    """The soundness at that level."""

    level: float
    """The level, a share of features removed."""

    exhausted: float
    """Share of samples that already keep all attribution, and further features without any."""


@dataclass(frozen=True, kw_only=True)
class Exhaustion:
    """Where the attribution of many samples has run out."""

    level: float
    """The first level, a share of features removed, at which too many samples are exhausted."""

    performance: float | None
    """Highest performance reached before: predictive levels up to it are reached by attribution. None if that level is
    the first."""


def exhausted_samples(table: ProbeTable) -> NDArray[np.bool_]:
    """Return whether each sample, at each level (N, L), already kept all attribution and now keeps further features.

    A step in which attribution runs out still adds some: a sample is exhausted from the next step on. Attribution too
    small to change the sum of a map counts as none. A map of zeros is exhausted from the first level on.
    """
    kept = np.pad(table.kept_mass, ((0, 0), (1, 0)))
    removed = np.concatenate([table.counts[:, None], table.removed], axis=1)
    # Values are added from the largest to the smallest: sums are equal to the last bit where later steps add zeros.
    first = (kept == kept[:, -1:]).argmax(axis=1)
    # Levels that round to the same count add no feature.
    return np.asarray(table.removed < np.take_along_axis(removed, first[:, None], axis=1))


def find_exhaustion(table: ProbeTable, performance: Floats, share: float = MOST) -> Exhaustion | None:
    """Find the first level at which more than a share of the samples is exhausted; None if there is none.

    Args:
        table: a soundness sweep.
        performance: (L,) performance at each level.
        share: the share of the samples.
    """
    beyond = np.flatnonzero(exhausted_samples(table).mean(axis=0) > share)
    if not beyond.size:
        return None
    first = int(beyond[0])
    before = float(np.nanmax(performance[:first])) if first else None
    return Exhaustion(level=float(table.levels[first]), performance=before)
