"""Bootstrap over samples, from the probe table alone: how certain is a curve?

Shapes: N samples, L levels, R resamples.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import directed_hausdorff

from twinlens.metrics.curves import Curve
from twinlens.support.arguments import checked
from twinlens.support.arrays import Floats
from twinlens.support.resampling import Interval, band, draw_blocks, interval_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """The area of a curve, or its skill, as measured and in each resample: all that a comparison needs."""

    kind: str
    """What was measured: "soundness", "completeness", or "removal" with its order; or "skill" in one of them."""

    area: float
    """Area of the curve; NaN where it is not defined."""

    replicates: Floats
    """(R,) the same in each resample."""

    per_sample: Floats | None
    """(N,) the same for each sample, in the order of their sorted ids; None where a sample by itself has none."""

    samples: int
    """Number of samples."""

    higher_is_better: bool
    """Whether a larger area speaks for the map."""

    has_interval: bool
    """Whether the replicates make an interval."""

    limits: tuple[float, float]
    """The least and the largest area that there can be."""

    @property
    def rows(self) -> Floats:
        """(1 + R,) the area as measured, and in each resample."""
        return np.concatenate([[self.area], self.replicates])

    def trusted(self, replicates: Floats) -> Floats:
        """Return replicates (R, ...) for an interval: NaN where they do not make one."""
        return replicates if self.has_interval else np.full_like(replicates, np.nan)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Bootstrap:
    """Replicates of a curve, one for each resample of its samples.

    Example:
        >>> import torch, twinlens as tl
        >>> x = torch.linspace(-1, 1, 40).reshape(20, 2)
        >>> curve = tl.completeness(lambda x: torch.stack([x[:, 0], -x[:, 0]], dim=1), x, [0] * 20, x.abs() + 0.1,
        ...                         imputer=tl.ConstantImputer(-1.0))
        >>> print(bootstrap(curve).area_interval())
        0.481 [0.261, 0.702]
    """

    curve: Curve
    """The measured curve."""

    performance: Floats
    """(R, L) performance at each level in each resample."""

    values: Floats
    """(R, L) the metric at each level in each resample."""

    def __repr__(self) -> str:
        return f"Bootstrap({len(self.values)} resamples of {self.curve!r})"

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Interval[Floats]:
        """Return the interval (L,) of each level by itself, or of the whole curve at once."""
        ends = band(
            self.curve.values,
            self.trusted(self.values),
            confidence,
            samples=len(self.curve.table),
            simultaneous=simultaneous,
        )
        low, high = np.clip(ends, *self.curve.limits)
        return Interval(value=self.curve.values, low=low, high=high, confidence=confidence)

    def area_interval(self, confidence: float = 0.95, *, high: float | None = None) -> Interval[float]:
        """Return the area of the curve with its interval; for soundness up to the predictive level `high`."""
        area, replicates = self.areas_up_to(high)
        return self._interval(None if math.isnan(area) else area, replicates, confidence)

    @property
    def areas(self) -> Floats:
        """(R,) area of the curve in each resample; NaN where it is not defined."""
        return self.areas_up_to(None)[1]

    def areas_up_to(self, high: float | None) -> tuple[float, Floats]:
        """Return the area as measured and (R,) in each resample, for soundness up to the predictive level `high`."""
        curve = self.curve
        measured, replicates = (
            curve.areas(performance, values, None if high is None else np.full(len(values), high))
            for performance, values in ((curve.performance[None], curve.values[None]), (self.performance, self.values))
        )
        return float(measured[0]), replicates

    def score(self, high: float | None = None) -> Score:
        """Return the area alone, for soundness up to the predictive level `high`."""
        curve, (area, replicates) = self.curve, self.areas_up_to(high)
        per_sample = curve.area_per_sample()
        return Score(
            kind=curve.kind,
            area=area,
            replicates=replicates,
            per_sample=None if per_sample is None else per_sample[np.argsort(np.asarray(curve.table.ids))],
            samples=len(curve.table),
            higher_is_better=curve.higher_is_better,
            has_interval=curve.has_interval,
            limits=curve.limits,
        )

    def at(self, level: float, confidence: float = 0.95) -> Interval[float]:
        """Return the value at a level with its interval.

        Args:
            level: for soundness a predictive level v, otherwise one of the levels measured.
            confidence: coverage of the interval.

        Returns:
            The interval; its `reached` is the share of resamples in which v was reached.
        """
        replicates = self.curve.values_at(level, self.performance, self.values)
        return self._interval(self.curve.at(level), replicates, confidence)

    def _interval(self, value: float | None, replicates: Floats, confidence: float) -> Interval[float]:
        found = interval_of(value, self.trusted(replicates), confidence, samples=len(self.curve.table))
        low, high = np.clip(tuple(found), *self.curve.limits).tolist()
        return dataclasses.replace(found, low=low, high=high, reached=float(np.isfinite(replicates).mean()))

    def trusted(self, replicates: Floats) -> Floats:
        """Return replicates (R, ...) of the curve for an interval: NaN where they do not make one."""
        return replicates if self.curve.has_interval else np.full_like(replicates, np.nan)


@checked
def bootstrap(curve: Curve, *, resamples: int = 1000, seed: int = 0) -> Bootstrap:
    """Resample the samples of a curve, from its probe table; every decision is taken anew in each resample.

    Args:
        curve: a curve of soundness, completeness or removal.
        resamples: number of resamples.
        seed: seed of the resampling; curves of the same samples are resampled alike.
    """
    blocks = [curve.replicate(counts) for counts in draw_blocks(curve.table.ids, resamples, seed)]
    performance, values = (np.concatenate(each) for each in zip(*blocks, strict=True))
    return Bootstrap(curve=curve, performance=performance, values=values)


def hausdorff(one: Curve, other: Curve) -> float:
    """Compute the Hausdorff distance between two curves as they are plotted: how far one strays from the other at most.

    Points are (performance, soundness) or (level, value), as in the paper's comparison of metrics; levels without a
    value are left out.

    Example:
        >>> import torch, twinlens as tl
        >>> x = torch.linspace(-1, 1, 40).reshape(20, 2)
        >>> def road(order):
        ...     return tl.road(lambda x: torch.stack([x[:, 0], -x[:, 0]], dim=1), x, [0] * 20, x.abs(), order=order,
        ...                    imputer=tl.ConstantImputer(-1.0), levels=(0.5,))
        >>> hausdorff(road("morf"), road("morf")), hausdorff(road("morf"), road("lerf"))
        (0.0, 0.5)
    """
    if type(one) is not type(other):
        raise ValueError(f"`other` must be a {type(one).__name__} as `one` is; got a {type(other).__name__}.")
    a, b = _points(one), _points(other)
    return float(max(directed_hausdorff(a, b)[0], directed_hausdorff(b, a)[0]))


def _points(curve: Curve) -> Floats:
    x, y, _ = curve.points
    return np.stack([x, y], axis=1)[np.isfinite(y)]
