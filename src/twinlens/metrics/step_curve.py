"""Curves read from the steps of a ranking: one value per sample and step, and no threshold.

Shapes: N samples, L steps, R resamples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from twinlens.metrics.curves import Curve
from twinlens.metrics.judge import find_false_features
from twinlens.metrics.performance import weighted_mean
from twinlens.metrics.protocols import PROTOCOLS
from twinlens.metrics.steps import Steps
from twinlens.probing.probe_table import ProbeTable
from twinlens.support.arrays import ArrayLike, Floats


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StepCurve(Curve):
    """Soundness as a rank, completeness as a share, or calibration, as features enter in the map's order.

    `levels` are shares of features kept, or of attribution for calibration. `performance` is what each step adds to the
    area: the area of a sample is the sum of its steps, which may differ in size between samples.
    """

    metric: str
    """What it measures: "soundness_rank", "completeness_share" or "calibration"; of negative values, "…_against"."""

    per_sample: Floats
    """(N, L) the value of each sample; a row of NaN where the sample has none."""

    added: Floats
    """(N, L) what each step of a sample adds to its area."""

    opposite: ProbeTable
    """The probes of the second sweep."""

    axes: tuple[str, str]
    """Labels of both axes."""

    judged_false: NDArray[np.bool_] | None = None
    """(N, L) for soundness, whether the features of a step do nothing for the target or speak against it."""

    @property
    def kind(self) -> str:
        """What it measures."""
        return self.metric

    @property
    def points(self) -> tuple[Floats, Floats, tuple[str, str]]:
        """The values over the share of features kept, or of attribution."""
        return self.levels, self.values, self.axes

    @property
    def higher_is_better(self) -> bool:
        """False for calibration, which is a distance."""
        return not self.kind.startswith("calibration")

    @property
    def limits(self) -> tuple[float, float]:
        """All of them lie within [0, 1]."""
        return 0.0, 1.0

    @property
    def certain(self) -> NDArray[np.bool_]:
        """All features hold all information: completeness ends at 1, calibration at 0."""
        last = np.arange(len(self.levels)) == len(self.levels) - 1
        return np.asarray(last & (not self.kind.startswith("soundness")))

    @property
    def _conditions(self) -> str:
        return f"{self.kind}, {self.table.settings.imputer}"

    def at(self, level: float) -> float:
        """Return the value at one of the levels."""
        return float(self.values[self.position(level)])

    def area(self) -> float | None:
        """Return the number for the whole curve: the mean over samples of `area_per_sample`."""
        area = float(self.performance.sum())
        return None if np.isnan(area) else area

    def areas(self, performance: Floats, values: Floats, high: Floats | None = None) -> Floats:
        """Return the same number (R,) for each of several curves (R, L)."""
        del values, high
        return np.asarray(performance.sum(axis=1))

    def area_per_sample(self) -> Floats:
        """Return the number of each sample (N,); NaN where it has none."""
        return np.asarray(self.added.sum(axis=1))

    def replicate(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return performance and values (R, L) for weightings of the samples (R, N)."""
        added, values = (
            np.stack([weighted_mean(each, row) for row in weights]) for each in (self.added, self.per_sample)
        )
        return added, values

    @property
    def false_share(self) -> Floats | None:
        """(N,) share of each sample's attribution on steps that were judged false; None for other curves."""
        if self.judged_false is None:
            return None
        with np.errstate(invalid="ignore"):
            return np.asarray((self.table.added_mass * self.judged_false).sum(axis=1) / self.table.kept_mass[:, -1])

    def false_features(
        self, maps: ArrayLike, *, level: float | None = None, segments: ArrayLike | None = None
    ) -> Tensor | None:
        """Return where features with attribution were judged false (N, *S); None for other curves.

        Args:
            maps: the maps that were probed.
            level: up to this share of features kept; all by default.
            segments: those that were probed, if any.
        """
        if self.judged_false is None:
            return None
        last = len(self.levels) if level is None else self.position(level) + 1
        return find_false_features(self.table, self.judged_false[:, :last], maps, segments)

    def take(self, positions: Sequence[int]) -> Self:
        """Return the curve with the rows of some samples; its values stay those of the whole data set."""
        index = np.asarray(positions, dtype=np.int64)
        return dataclasses.replace(
            self,
            table=self.table.take(index),
            opposite=self.opposite.take(index),
            per_sample=self.per_sample[index],
            added=self.added[index],
            judged_false=None if self.judged_false is None else self.judged_false[index],
        )


def soundness_rank(joining: ProbeTable, leaving: ProbeTable) -> StepCurve:
    """Return soundness as a rank: at each step, the mean rank of the attribution included so far.

    The area is the value at the last step, which covers the whole map.
    """
    steps = Steps.of(joining, leaving)
    values = steps.soundness()
    added = np.zeros_like(values)
    added[:, -1] = values[:, -1]
    curve = _curve("soundness_rank", joining, leaving, values, added, "soundness of what is included")
    against = joining.settings.schedule.part == "negative"
    return curve if against else dataclasses.replace(curve, judged_false=steps.effects <= 0)


def completeness_share(joining: ProbeTable, leaving: ProbeTable) -> StepCurve:
    """Return completeness as a share: at each step, the share of the predictive information included so far.

    The area is the mean over the share of features kept.
    """
    steps = Steps.of(joining, leaving)
    values, kept = steps.completeness(), steps.kept()
    return _curve(
        "completeness_share", joining, leaving, values, area_under(kept, values), "share of predictive information"
    )


def calibration(joining: ProbeTable, leaving: ProbeTable) -> StepCurve:
    """Return calibration: how far the share of information is from the share of attribution that is included.

    The area is the mean distance over the share of attribution; 0 where attribution is proportional to information.
    """
    shares = np.arange(1, len(joining.levels) + 1) / len(joining.levels)
    distance = Steps.of(joining, leaving).calibration(shares)
    added = area_under(np.broadcast_to(shares, distance.shape), distance)
    curve = _curve("calibration", joining, leaving, distance, added, "distance of shares")
    return dataclasses.replace(curve, levels=shares, axes=("share of attribution included", curve.axes[1]))


def area_under(shares: Floats, values: Floats) -> Floats:
    """Return the area under each part (N, L) of curves over increasing shares, which start at (0, 0)."""
    middle = (values + np.pad(values, ((0, 0), (1, 0)))[:, :-1]) / 2
    return np.asarray(np.diff(shares, axis=1, prepend=0.0) * middle)


def _curve(
    metric: str, joining: ProbeTable, leaving: ProbeTable, per_sample: Floats, added: Floats, label: str
) -> StepCurve:
    ones = np.ones(len(joining))
    return StepCurve(
        metric=metric if joining.settings.schedule.part == "positive" else f"{metric}_against",
        levels=np.round(1 - joining.levels, 12),
        performance=weighted_mean(added, ones),
        values=weighted_mean(per_sample, ones),
        measure="log-odds" if joining.task == "classification" else "prediction",
        requested="score",
        protocol=PROTOCOLS["paper"],
        table=joining,
        opposite=leaving,
        per_sample=per_sample,
        added=added,
        axes=("share of features kept", label),
    )
