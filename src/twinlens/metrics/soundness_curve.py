"""The soundness curve: its values, where attribution runs out, and which features were judged false.

Shapes: N samples, L levels, R resamples.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from twinlens.metrics.curves import Curve
from twinlens.metrics.exhaustion import (
    MOST,
    Exhaustion,
    Reached,
    exhausted_samples,
    find_exhaustion,
)
from twinlens.metrics.judge import Judge, find_false_features
from twinlens.metrics.performance import measure
from twinlens.support.arrays import ArrayLike, Floats, Integers


def soundness_area(performance: Floats, values: Floats, low: float = 0.0, high: float | None = None) -> float | None:
    """Mean soundness over predictive levels `low` to `high`, or None where `high` is not reached."""
    best = np.maximum.accumulate(performance)
    top = float(best[-1]) if high is None else high
    if top > best[-1] or not top > low:
        return None
    # Between two records of performance the soundness at v is constant: that of the level that reached v.
    edges = np.clip(np.concatenate([[-np.inf], best]), low, top)
    return float(np.sum(np.diff(edges) * values, where=np.diff(edges) > 0) / (top - low))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SoundnessCurve(Curve):
    """Which part of the attribution rests on features that are truly predictive, as features are added."""

    epsilon: float
    """A step that gains less than this adds false attribution."""

    per_sample: Floats
    """(N, L) the value of each sample; NaN where no kept feature has attribution."""

    judged_false: NDArray[np.bool_]
    """(N, L) whether the features that a sample gained at a level were judged false."""

    kind = "soundness"
    stairs = True
    higher_is_better = True
    limits = (0.0, 1.0)
    by_predictive_level = True

    @property
    def conditions(self) -> str:
        """How it was measured, without levels: a sweep may end early."""
        start = self.protocol.start_level
        return f"{self._conditions}, epsilon {self.epsilon:g}" + ("" if start is None else f", judged above {start:g}")

    @property
    def threshold(self) -> float:
        """The epsilon by which steps were judged false."""
        return self.epsilon

    @property
    def defined(self) -> Integers:
        """(L,) number of samples with a defined value; `values` is the mean over these."""
        return np.asarray(np.isfinite(self.per_sample).sum(axis=0))

    @property
    def exhausted(self) -> Floats:
        """(L,) share of samples that had run out of attribution before this step, which adds none to them."""
        return np.asarray(exhausted_samples(self.table).mean(axis=0))

    @property
    def runs_out(self) -> Exhaustion | None:
        """The first level at which more than half of the samples are exhausted, and the performance reached before."""
        return find_exhaustion(self.table, self.performance)

    def reached(self, level: float) -> Reached | None:
        """Return where performance first reaches a predictive level v, and how many maps have run out by then."""
        positions = np.flatnonzero(self.performance >= level)
        if not positions.size:
            return None
        first = positions[0]
        return Reached(
            value=float(self.values[first]), level=float(self.levels[first]), exhausted=float(self.exhausted[first])
        )

    @property
    def false_share(self) -> Floats:
        """(N,) share of each sample's attribution that is false at the last level."""
        return 1 - self.per_sample[:, -1]

    def at(self, level: float) -> float | None:
        """Return the soundness at a predictive level v: the value when performance first reaches v.

        Warns where more than half of the maps have run out of attribution by then; `reached` has the share.

        Returns:
            The value, or None where v is not reached.
        """
        reached = self.reached(level)
        if reached is None:
            return None
        if reached.exhausted > MOST:
            # The same text for every curve: Python then shows it once for many curves.
            warnings.warn(
                f"The predictive level {level:g} is reached only after more than half of the maps have run out of "
                "attribution, and the soundness there does not depend on the maps. `runs_out` has the highest level "
                "that attribution reaches, `reached` the share of these maps without a warning.",
                stacklevel=2,
            )
        return reached.value

    def values_at(self, level: float, performance: Floats, values: Floats) -> Floats:
        """Return the value (R,) of each of several curves (R, L) when performance first reaches a predictive level."""
        reached = performance >= level
        first = np.take_along_axis(values, reached.argmax(axis=1)[:, None], axis=1)[:, 0]
        return np.where(reached.any(axis=1), first, np.nan)

    def area(self, low: float = 0.0, high: float | None = None) -> float | None:
        """Mean soundness over predictive levels `low` to `high`.

        By default from 0 to the highest level reached; to compare methods, pass a `high` that all of them reach.

        Returns:
            The mean, or None where `high` is not reached.
        """
        return soundness_area(self.performance, self.values, low, high)

    @property
    def has_interval(self) -> bool:
        """False where a step is judged for all samples at once, as by its gain in accuracy.

        Noise then decides steps whose gain is near epsilon, and more samples move the values by more, and in another
        direction, than resampling does: no interval that we tried covered the population's value often enough.
        """
        return measure(self.table, self.requested, self.protocol).gain.ndim == 2

    def replicate(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return performance and values (R, L) for weightings of the samples (R, N); every decision is repeated."""
        judge = Judge(self.table, self.requested, epsilon=self.epsilon, protocol=self.protocol)
        return judge.replicate(weights)

    def take(self, positions: Sequence[int]) -> Self:
        """Return the curve with the rows of some samples; its values stay those of the whole data set."""
        index = np.asarray(positions, dtype=np.int64)
        return dataclasses.replace(
            super().take(positions),
            judged_false=self.judged_false[index],
            per_sample=self.per_sample[index],
        )

    def false_features(
        self, maps: ArrayLike, *, level: float | None = None, segments: ArrayLike | None = None
    ) -> torch.Tensor:
        """Return where features were judged to be falsely attributed.

        Args:
            maps: the maps that were probed.
            level: judged up to this level; the last one by default.
            segments: those that were probed, if any.

        Returns:
            (N, *S) bool, True where a feature has attribution and was judged false.
        """
        last = len(self.levels) if level is None else self.position(level) + 1
        return find_false_features(self.table, self.judged_false[:, :last], maps, segments)

    @property
    def points(self) -> tuple[Floats, Floats, tuple[str, str]]:
        """Soundness over the performance at each level."""
        return self.performance, self.values, (f"predictive level ({self.measure})", "soundness")

    def areas(self, performance: Floats, values: Floats, high: Floats | None = None) -> Floats:
        """Return the mean soundness (R,) of each of several curves (R, L), up to `high` if it is passed."""
        tops: Iterable[float | None] = [None] * len(values) if high is None else high.tolist()
        areas = [soundness_area(p, v, high=top) for p, v, top in zip(performance, values, tops, strict=True)]
        return np.array(areas, dtype=np.float64)

    def area_per_sample(self) -> Floats:
        """Return the mean soundness over levels (N,) of each sample; NaN where it has none."""
        defined = np.isfinite(self.per_sample)
        count = np.maximum(defined.sum(axis=1), 1)
        return np.where(defined.any(axis=1), np.sum(self.per_sample, axis=1, where=defined) / count, np.nan)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per level."""
        return super().to_frame().assign(defined=self.defined)
