"""The decisions of soundness, for the data set as it is and for any weighting of its samples.

The point estimate and every bootstrap resample go through the same function: a resample is a weight per sample, and
what depends on the whole data set is decided anew under these weights.

Shapes: N samples, L levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.performance import Measured, Protocol, weighted_mean
from twinlens.table import Floats, ProbeTable


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What was decided under one weighting of the samples."""

    performance: Floats
    """(L,) over the weighted data set."""

    values: Floats
    """(L,) the soundness at each level."""

    per_sample: Floats
    """(N, L) the soundness of each sample; NaN where nothing that is kept has any attribution."""

    judged_false: NDArray[np.bool_]
    """(N, L) whether the features that a sample gained at a level were judged false."""


class Judge:
    """Judges every step of a soundness sweep by its gain in performance (the paper's Algorithm 3)."""

    def __init__(self, table: ProbeTable, measured: Measured, *, epsilon: float, protocol: Protocol) -> None:
        self.measured, self.epsilon, self.protocol = measured, epsilon, protocol
        self.kept, self.added = table.kept_mass, table.added_mass
        self.mass = table.kept_mass + protocol.mass_offset

    def __call__(self, weights: Floats) -> Judgement:
        """Decides for samples of these weights (N,)."""
        mean, gain = self.measured.weighted(weights)
        judged = gain < self.epsilon if self.protocol.strict else gain <= self.epsilon
        if self.protocol.start_level is not None:
            judged = judged & (mean > self.protocol.start_level)
        judged = np.broadcast_to(judged, self.kept.shape)
        per_sample = self.share_left(self.added * judged)
        return Judgement(
            performance=mean,
            values=weighted_mean(per_sample, weights),
            per_sample=per_sample,
            judged_false=judged,
        )

    def share_left(self, false_steps: Floats) -> Floats:
        """Gives the share of the kept attribution that is not false, (N, L), for the false mass of each step."""
        false_mass = false_steps.cumsum(axis=1) - (false_steps if self.protocol.lag else 0.0)
        out = np.full_like(self.mass, np.nan)
        return np.divide(self.kept - false_mass, self.mass, out=out, where=self.mass > 0)
