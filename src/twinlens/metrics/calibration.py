"""Calibration: is attribution proportional to the predictive information (the paper's Definition 4.3)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twinlens.metrics.metric import About, StepMetric
from twinlens.metrics.step_curve import StepCurve, calibration
from twinlens.metrics.sweeps import Sweep
from twinlens.probing.probe_table import ProbeTable


@dataclass(frozen=True, kw_only=True)
class Calibration(StepMetric):
    """Distance between the share of attribution and the share of predictive information."""

    step_name = "calibration"
    step_about = About(
        title="Calibration",
        heading="calibration",
        summary="how far attribution is from proportional to the predictive information",
        across="share of attribution included",
        along="distance of shares",
        scale="A mean distance of two shares: 0 where attribution is proportional to information.",
        higher_is_better=False,
    )

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the pair of sweeps that it needs of maps with this many features."""
        return self._pair(features)

    def read(self, tables: Sequence[ProbeTable]) -> StepCurve:
        """Compute the curve from the tables of both sweeps."""
        return calibration(*tables)
