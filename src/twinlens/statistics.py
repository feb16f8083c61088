"""How sure is the answer? Bootstrap over samples, from the probe table alone.

Shapes: N samples, L levels, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import directed_hausdorff

from twinlens.curves import Curve, SoundnessCurve, loss_area, soundness_area
from twinlens.resampling import band, draw, pointwise
from twinlens.table import Floats


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A number and how far it can be trusted."""

    value: float | None
    """The number measured; None where it is not defined, such as a predictive level that is not reached."""

    low: float
    """Lower end; NaN where no resample has a value."""

    high: float
    """Upper end."""

    confidence: float
    """The share of cases in which such an interval is to hold the truth."""

    reached: float = 1.0
    """Share of the resamples in which the number is defined; the interval is made from these."""

    def __str__(self) -> str:
        value = "not reached" if self.value is None else f"{self.value:.3f}"
        rare = "" if self.reached == 1 else f", reached in {self.reached:.0%} of resamples"
        return f"{value} [{self.low:.3f}, {self.high:.3f}]{rare}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Bootstrap:
    """What a curve would have been on other samples of the same kind.

    Example:
        >>> import torch, twinlens as tl
        >>> x = torch.linspace(-1, 1, 40).reshape(20, 2)
        >>> curve = tl.completeness(lambda x: torch.stack([x[:, 0], -x[:, 0]], dim=1), x, [0] * 20, x.abs() + 0.1,
        ...                         imputer=tl.ConstantImputer(-1.0))
        >>> print(bootstrap(curve).area_interval())
        0.481 [0.284, 0.691]
    """

    curve: Curve
    """The curve that was measured."""

    performance: Floats
    """(R, L) performance at each level in each resample."""

    values: Floats
    """(R, L) the metric at each level in each resample."""

    areas: Floats
    """(R,) area of the curve in each resample; NaN where it is not defined."""

    def __repr__(self) -> str:
        return f"Bootstrap({len(self.values)} resamples of {self.curve!r})"

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> tuple[Floats, Floats]:
        """Gives lower and upper ends (L,) for each level by itself, or for the whole curve at once."""
        return band(self.values, confidence, simultaneous=simultaneous)

    def area_interval(self, confidence: float = 0.95) -> Interval:
        """Gives the area of the curve with its interval."""
        return _interval(self.curve.area(), self.areas, confidence)

    def at(self, level: float, confidence: float = 0.95) -> Interval:
        """Gives the value at a level with its interval.

        Args:
            level: for soundness a predictive level v, otherwise one of the levels measured.
            confidence: the share of cases in which the interval is to hold.

        Returns:
            The interval; its `reached` is the share of resamples in which v was reached.
        """
        value = self.curve.at(level)
        if not isinstance(self.curve, SoundnessCurve):
            return _interval(value, self.values[:, self.curve.position(level)], confidence)
        reached = self.performance >= level
        first = np.take_along_axis(self.values, reached.argmax(axis=1)[:, None], axis=1)[:, 0]
        return _interval(value, np.where(reached.any(axis=1), first, np.nan), confidence)


def bootstrap(curve: Curve, *, resamples: int = 1000, seed: int = 0) -> Bootstrap:
    """Resamples the samples of a curve, from its probe table; every decision is taken anew in each resample.

    Args:
        curve: of soundness, completeness or removal.
        resamples: number of resamples.
        seed: seed of the resampling; curves of the same samples are resampled alike.
    """
    performance, values = curve.replicate(draw(curve.table.ids, resamples, seed))
    return Bootstrap(curve=curve, performance=performance, values=values, areas=_areas(curve, performance, values))


def hausdorff(one: Curve, other: Curve) -> float:
    """Gives the Hausdorff distance between two curves as they are plotted: how far one strays from the other at most.

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
    across = curve.performance if isinstance(curve, SoundnessCurve) else curve.levels
    return np.stack([across, curve.values], axis=1)[np.isfinite(curve.values)]


def _areas(curve: Curve, performance: Floats, values: Floats) -> Floats:
    if not isinstance(curve, SoundnessCurve):
        return loss_area(curve.levels, values)
    areas = (soundness_area(p, v) for p, v in zip(performance, values, strict=True))
    return np.array([np.nan if area is None else area for area in areas])


def _interval(value: float | None, replicates: Floats, confidence: float) -> Interval:
    low, high = pointwise(replicates, confidence)
    reached = float(np.isfinite(replicates).mean())
    return Interval(value=value, low=float(low), high=float(high), confidence=confidence, reached=reached)
