"""Bootstrap over samples, from the probe table alone: how certain is a curve?

Shapes: N samples, L levels, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from twinlens.metrics.curves import Curve
from twinlens.support.arguments import checked
from twinlens.support.arrays import Floats
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import Band, draw_blocks


@dataclass(frozen=True, kw_only=True, eq=False)
class Area:
    """The area of a method's curve, with what a comparison of methods needs besides the estimate."""

    estimate: Estimate
    """Its replicates are NaN where the curve has no interval."""
    replicates: Floats
    """(R,) the area in each resample, also where the curve has no interval."""
    per_sample: Floats | None
    """(N,) the area of each sample, in the order of sorted ids; None where single samples have none."""
    kind: str
    higher_is_better: bool


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Bootstrap:
    """Replicates of a curve, one for each resample of its samples.

    Example:
        >>> import torch, twinlens as tl
        >>> x = torch.linspace(-1, 1, 40).reshape(20, 2)
        >>> curve = tl.completeness(lambda x: torch.stack([x[:, 0], -x[:, 0]], dim=1), x, [0] * 20, x.abs() + 0.1,
        ...                         imputer=tl.ConstantImputer(-1.0))
        >>> print(bootstrap(curve).area())
        0.481 [0.259, 0.703]
    """

    curve: Curve
    """The measured curve."""

    performance: Floats
    """(R, L) performance at each level in each resample."""

    values: Floats
    """(R, L) the metric at each level in each resample."""

    def __repr__(self) -> str:
        return f"Bootstrap({len(self.values)} resamples of {self.curve!r})"

    def band(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Band:
        """Return intervals (L,) of each level, or a simultaneous band for the whole curve."""
        return self.curve.band_of(self.values, confidence, simultaneous=simultaneous)

    def area(self, confidence: float = 0.95, *, high: float | None = None) -> Estimate:
        """Return the area of the curve with its interval; for soundness up to the predictive level `high`."""
        return self.curve.estimate_of(*self.areas_up_to(high), confidence)

    def areas_up_to(self, high: float | None) -> tuple[float, Floats]:
        """Return the area as measured and (R,) in each resample, for soundness up to the predictive level `high`."""
        curve = self.curve
        measured, replicates = (
            curve.areas(performance, values, None if high is None else np.full(len(values), high))
            for performance, values in ((curve.performance[None], curve.values[None]), (self.performance, self.values))
        )
        return float(measured[0]), replicates

    def compared_area(self, confidence: float = 0.95, *, high: float | None = None) -> Area:
        """Return the area for a comparison of methods, for soundness up to the predictive level `high`."""
        curve, (area, replicates) = self.curve, self.areas_up_to(high)
        per_sample = curve.area_per_sample()
        return Area(
            estimate=curve.estimate_of(area, replicates, confidence),
            replicates=replicates,
            per_sample=None if per_sample is None else per_sample[np.argsort(np.asarray(curve.table.ids))],
            kind=curve.kind,
            higher_is_better=curve.higher_is_better,
        )

    def at(self, level: float, confidence: float = 0.95) -> Estimate:
        """Return the value at a level, for soundness a predictive level v, with its interval."""
        replicates = self.curve.values_at(level, self.performance, self.values)
        return self.curve.estimate_of(self.curve.at(level), replicates, confidence)


@checked
def bootstrap(
    curve: Curve, *, resamples: int = 1000, seed: int = 0, groups: Mapping[str, str] | None = None
) -> Bootstrap:
    """Resample the samples of a curve, from its probe table; steps are judged again in each resample.

    Args:
        curve: a curve of soundness, completeness or removal.
        resamples: number of resamples.
        seed: seed of the resampling; curves of the same samples are resampled alike.
        groups: from each id to its group; samples of a group are drawn together. Each sample by itself by default.
    """
    ids = curve.table.ids if groups is None else [groups[name] for name in curve.table.ids]
    blocks = [curve.replicate(counts) for counts in draw_blocks(ids, resamples, seed)]
    performance, values = (np.concatenate(each) for each in zip(*blocks, strict=True))
    return Bootstrap(curve=curve, performance=performance, values=values)
