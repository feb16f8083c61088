"""Curves: what a metric returns. They are frozen, hold NumPy arrays, and keep the table they were computed from.

Shapes: N samples, L levels, R resamples.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from twinlens.metrics.performance import Performance, is_share, measure
from twinlens.metrics.protocols import Protocol
from twinlens.probing.probe_table import ProbeTable
from twinlens.support.arrays import ArrayLike, Floats
from twinlens.support.estimate import Estimate
from twinlens.support.plotting import draw_line
from twinlens.support.resampling import Band, band, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_QUICK = 5_000  # samples whose interval is computed to print a curve, within a second or two


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Curve(ABC):
    """What all curves have in common."""

    levels: Floats
    """(L,) shares removed, or thresholds."""

    performance: Floats
    """(L,) performance of the model at each level, over the data set."""

    values: Floats
    """(L,) the metric at each level."""

    measure: str
    """The measure of performance."""

    requested: Performance
    """The performance measure as requested; `measure` is its resolved name."""

    protocol: Protocol
    """The protocol."""

    table: ProbeTable
    """The probe table that the curve was computed from."""

    stairs: ClassVar[bool] = False
    """Whether it is drawn as stairs over the performance reached, instead of lines over levels."""

    decreasing: ClassVar[bool] = False
    """Whether the horizontal axis is drawn from the largest level to the smallest."""

    by_rank: ClassVar[bool] = False
    """Whether it depends on the order of features alone."""

    by_predictive_level: ClassVar[bool] = False
    """Whether the area is taken over predictive levels."""

    def __repr__(self) -> str:
        samples = len(self.table)
        area = self.interval() if samples <= _QUICK else Estimate(value=self.area(), samples=samples)
        degenerate = "".join(f", {count} {kind} maps" for kind, count in self.degenerate.items() if count)
        return (
            f"{type(self).__name__}({area}, {len(self.levels)} levels, {samples} samples, {self.measure}, "
            f"protocol {self.protocol.name}{degenerate})"
        )

    @property
    def degenerate(self) -> dict[str, int]:
        """Number of maps that rank no feature above another, by kind."""
        return {kind: self.table.map_kinds.count(kind) for kind in ("constant", "zero")}

    @property
    @abstractmethod
    def points(self) -> tuple[Floats, Floats, tuple[str, str]]:
        """The curve as it is drawn: x (L,), y (L,), and the labels of both axes."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """What it measures, such as "soundness"; curves of one kind can be compared."""

    @property
    def conditions(self) -> str:
        """How it was measured; comparable curves agree in this."""
        levels = ", ".join(f"{level:g}" for level in self.levels)
        return f"{self._conditions}, levels {levels}"

    @property
    def _conditions(self) -> str:
        return f"{self.kind}, {self.measure}, protocol {self.protocol.name}, {self.table.settings.imputer}"

    @property
    def threshold(self) -> float | None:
        """The epsilon by which steps were judged false; None for curves that judge nothing."""
        return None

    @property
    def false_share(self) -> Floats | None:
        """(N,) share of each sample's attribution that was judged false; None for curves that judge nothing."""
        return None

    @property
    @abstractmethod
    def higher_is_better(self) -> bool:
        """Whether a larger area is better for the map."""

    @abstractmethod
    def replicate(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return performance and values (R, L) for weightings of the samples (R, N); every decision is repeated."""

    @abstractmethod
    def at(self, level: float) -> float | None:
        """Return the value at a level: for soundness a predictive level, which may not be reached."""

    def values_at(self, level: float, performance: Floats, values: Floats) -> Floats:
        """Return the value (R,) at a level of each of several curves (R, L) at this curve's levels."""
        del performance
        return np.asarray(values[:, self.position(level)])

    @abstractmethod
    def area(self) -> float | None:
        """Return the mean of the values over their range, one number for the whole curve."""

    @abstractmethod
    def areas(self, performance: Floats, values: Floats, high: Floats | None = None) -> Floats:
        """Return the area (R,) of each of several curves (R, L) at this curve's levels; NaN where it is not defined.

        Args:
            performance: performance of each curve.
            values: values of each curve.
            high: (R,) for soundness, the predictive level up to which each area is taken.
        """

    @abstractmethod
    def area_per_sample(self) -> Floats | None:
        """Return one number (N,) per sample, or None where the measure is one of the data set as a whole."""

    def interval(self, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> Estimate:
        """Return the area with its bootstrap interval over samples.

        In simulations 95% intervals cover the population's value in about 95% of cases, see
        docs/concepts/statistics.md. Soundness by the paper's estimator and accuracy has none; see `has_interval`. Nor
        has any number of fewer than ten samples.

        Args:
            confidence: coverage of the interval.
            resamples: number of resamples.
            seed: seed of the resampling.
        """
        return self.estimate_of(self.area(), self.areas(*self._replicates(resamples, seed)), confidence)

    def band(
        self, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0, simultaneous: bool = False
    ) -> Band:
        """Return a bootstrap interval of each value.

        Args:
            confidence: coverage of the intervals.
            resamples: number of resamples.
            seed: seed of the resampling.
            simultaneous: whether the band covers the whole curve, instead of each level separately.

        Returns:
            Lower and upper ends (L,); NaN where there is no interval.
        """
        return self.band_of(self._replicates(resamples, seed)[1], confidence, simultaneous=simultaneous)

    def _replicates(self, resamples: int, seed: int) -> tuple[Floats, Floats]:
        """Return performance and values (R, L) in each resample; NaN where these make no interval."""
        if not self.has_interval:
            return (np.full((resamples, len(self.values)), np.nan),) * 2
        return self.replicate(draw(self.table.ids, resamples, seed))

    def estimate_of(self, value: float | None, replicates: Floats, confidence: float) -> Estimate:
        """Return a number of the curve with its interval, from its replicates (R,)."""
        trusted = replicates if self.has_interval else np.full_like(replicates, np.nan)
        estimate = Estimate.of(value, trusted, samples=len(self.table), confidence=confidence, reach=self.reach)
        return estimate.clipped(*self.limits)

    def band_of(self, replicates: Floats, confidence: float, *, simultaneous: bool) -> Band:
        """Return intervals (L,) of the values from their replicates (R, L)."""
        trusted = replicates if self.has_interval else np.full_like(replicates, np.nan)
        ends = band(
            self.values, trusted, confidence, samples=len(self.table), simultaneous=simultaneous, largest=self.reach
        )
        return Band(*np.where(self.certain, self.values, np.clip(ends, *self.limits)))

    @property
    def certain(self) -> NDArray[np.bool_]:
        """(L,) whether the value at a level is the same for all samples by definition."""
        return np.zeros(len(self.levels), dtype=bool)

    @property
    def has_interval(self) -> bool:
        """Whether resampling gives a valid interval."""
        return True

    @property
    def limits(self) -> tuple[float, float]:
        """The range of possible values; intervals end there."""
        return -math.inf, math.inf

    @property
    def reach(self) -> float:
        """The size that the value of an unseen sample can have; where that has no limit, the largest of the values."""
        farthest = max(map(abs, self.limits))
        defined = self.values[np.isfinite(self.values)]
        return farthest if math.isfinite(farthest) else float(np.abs(defined).max(initial=0.0))

    def take(self, positions: Sequence[int]) -> Self:
        """Return the curve with the rows of some samples; its values stay those of the whole data set."""
        return dataclasses.replace(self, table=self.table.take(positions))

    def false_features(
        self, maps: ArrayLike, *, level: float | None = None, segments: ArrayLike | None = None
    ) -> Tensor | None:
        """Return where features were judged false (N, *S); None for curves that judge nothing."""
        del maps, level, segments
        return None

    def to_frame(self) -> pd.DataFrame:
        """Return one row per level."""
        return pd.DataFrame({"level": self.levels, "performance": self.performance, "value": self.values})

    def position(self, level: float) -> int:
        """Return the position of a level that was measured."""
        nearest = int(np.argmin(np.abs(self.levels - level)))
        if abs(self.levels[nearest] - level) > 1e-9:
            levels = ", ".join(f"{each:g}" for each in self.levels)
            raise ValueError(f"`level` must be one of those measured ({levels}); got {level!r}.")
        return nearest

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the curve."""
        x, y, labels = self.points
        axes = draw_line(ax, x, y, labels)
        if self.decreasing:
            axes.invert_xaxis()
        return axes


def loss_area(levels: Floats, values: Floats) -> Floats:
    """Mean of values (..., L) over the range of the levels (L,), by the trapezoidal rule.

    Example:
        >>> loss_area(np.array([0.9, 0.1]), np.array([[0.0, 1.0], [0.4, 0.4]]))
        array([0.5, 0.4])
    """
    if len(levels) == 1:
        return values[..., 0]
    return np.asarray(np.trapezoid(values, levels, axis=-1) / (levels[-1] - levels[0]))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _MeanCurve(Curve):
    """A curve whose area is the mean of its values over the range of the levels."""

    def at(self, level: float) -> float:
        """Return the value at one of the levels."""
        return float(self.values[self.position(level)])

    def area(self) -> float:
        """Return the mean of the values over the range of the levels (trapezoidal rule)."""
        return float(loss_area(self.levels, self.values))

    def areas(self, performance: Floats, values: Floats, high: Floats | None = None) -> Floats:
        """Return the mean (R,) of each of several curves (R, L)."""
        del performance, high
        return loss_area(self.levels, values)

    @property
    def limits(self) -> tuple[float, float]:
        """A share can be lost or gained as a whole; other measures have no limit."""
        return (-1.0, 1.0) if is_share(self.measure) else (-math.inf, math.inf)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _DropCurve(_MeanCurve):
    """A curve whose values are the performance lost compared with the original inputs."""

    baseline: float
    """Performance on the original inputs."""

    def area_per_sample(self) -> Floats | None:
        """Return the mean loss (N,) of each sample, or None where the measure is one of the data set as a whole."""
        scores = measure(self.table, self.requested, self.protocol).per_sample
        if scores is None:
            return None
        base = ~np.isin(self.table.levels, self.levels)
        return loss_area(self.levels, scores[:, base] - scores[:, ~base])

    def replicate(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return performance and values (R, L) for weightings of the samples (R, N)."""
        measured = measure(self.table, self.requested, self.protocol)
        everywhere = np.stack([measured.weighted(row)[0] for row in weights])
        base = ~np.isin(self.table.levels, self.levels)
        performance = everywhere[:, ~base]
        return performance, everywhere[:, base] - performance


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompletenessCurve(_DropCurve):
    """How much performance is lost when the features above a threshold are removed: the more, the more complete."""

    kind = "completeness"
    decreasing = True
    higher_is_better = True

    @property
    def points(self) -> tuple[Floats, Floats, tuple[str, str]]:
        """The loss of performance over the threshold."""
        return self.levels, self.values, ("attribution threshold", f"completeness (loss of {self.measure})")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RemovalCurve(_DropCurve):
    """How much performance is lost as a growing share of features is removed by rank."""

    by_rank = True

    @property
    def kind(self) -> str:
        """The order in which features were removed."""
        return f"removal ({self.table.settings.schedule.order})"

    @property
    def points(self) -> tuple[Floats, Floats, tuple[str, str]]:
        """The loss of performance over the share of features removed."""
        return self.levels, self.values, ("share of features removed", f"loss of {self.measure}")

    @property
    def higher_is_better(self) -> bool:
        """A greater loss is better if the most relevant features are removed first."""
        return self.table.settings.schedule.order == "morf"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GainCurve(_MeanCurve):
    """How much more performance is lost with the most relevant features first than with the least relevant first."""

    most: RemovalCurve
    """The loss with the most relevant features first."""

    least: RemovalCurve
    """The loss with the least relevant features first."""

    kind = "removal (both orders)"
    by_rank = True
    higher_is_better = True

    @staticmethod
    def of(most: RemovalCurve, least: RemovalCurve) -> GainCurve:
        """Return the difference of two curves of the same samples and levels."""
        if most.table.ids != least.table.ids or not np.array_equal(most.levels, least.levels):
            raise ValueError("`least` must hold the same samples and levels as `most`.")
        return GainCurve(
            levels=most.levels,
            performance=most.performance,
            values=most.values - least.values,
            measure=most.measure,
            requested=most.requested,
            protocol=most.protocol,
            table=most.table,
            most=most,
            least=least,
        )

    @property
    def points(self) -> tuple[Floats, Floats, tuple[str, str]]:
        """The difference over the share of features removed."""
        return self.levels, self.values, ("share of features removed", f"difference in {self.measure}")

    def area_per_sample(self) -> Floats | None:
        """Return the mean difference (N,) of each sample, or None where the measure is one of the data set."""
        most, least = self.most.area_per_sample(), self.least.area_per_sample()
        return None if most is None or least is None else most - least

    def replicate(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return performance and values (R, L) for weightings of the samples (R, N)."""
        performance, values = self.most.replicate(weights)
        return performance, values - self.least.replicate(weights)[1]

    def take(self, positions: Sequence[int]) -> Self:
        """Return the curve with the rows of some samples; its values stay those of the whole data set."""
        return dataclasses.replace(
            super().take(positions), most=self.most.take(positions), least=self.least.take(positions)
        )
