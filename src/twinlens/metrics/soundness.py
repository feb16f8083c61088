"""Soundness: which part of the attribution rests on features that are truly predictive (the paper's Algorithm 3).

Shapes: N samples, L levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from twinlens.metrics.estimators import Judge, opposite_schedule
from twinlens.metrics.metric import About, PerformanceMetric
from twinlens.metrics.performance import SCORES, Performance
from twinlens.metrics.protocols import Protocol, find_protocol
from twinlens.metrics.soundness_curve import SoundnessCurve
from twinlens.metrics.step_curve import StepCurve, soundness_rank
from twinlens.metrics.steps import STEPS, check_steps, step_schedules
from twinlens.metrics.sweeps import Sweep
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule, check_levels
from twinlens.support.arguments import checked

_FEW_LEVELS = 33  # a protocol with no more than a third of the paper's levels needs no thinning


_RANK = About(
    title="Soundness as a rank",
    heading="sound-\nness\nrank",
    summary="how often attribution lies on features that matter more to the model than others",
    purpose="where nothing may be falsely blamed",
    across="share of features kept",
    along="soundness of what is included",
    scale="A probability: 0.5 by chance, 1 where all attribution lies on the features that matter most.",
    chance=0.5,
    side="soundness",
)


@dataclass(frozen=True, kw_only=True)
class Soundness(PerformanceMetric):
    """Share of the attribution that rests on predictive features (the paper's Algorithm 3).

    Example:
        >>> [len(sweep.schedule.levels) for sweep in Soundness(estimator="two_sided", levels=(0.9, 0.5)).sweeps(100)]
        [2, 2]
    """

    epsilon: float = 0.01
    """A step that gains less performance than this adds false attribution."""

    estimator: Literal["paper", "two_sided", "rank"] = "paper"
    """How a step is judged: "paper" by its gain in performance; "two_sided" for each sample, by its share in the range
    of the sample's log-odds, from two sides; "rank" by its rank among all steps of the map, without any threshold."""

    extrapolate: bool = True
    """For "two_sided": whether the value is extrapolated from steps and pairs of steps, all in the same probes, to
    single features. The value then depends less on the step."""

    levels: Sequence[float] | None = None
    """Shares of features removed, decreasing; by default those of the protocol, and for "two_sided" a third of these:
    0.98, 0.96, … 0.7, then 0.66, 0.62, … 0.02."""

    steps: int = STEPS
    """For "rank": number of steps of equal size that the features are cut into. Values grow with the step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps(self.steps)
        if not self.epsilon >= 0:
            raise ValueError(f"`epsilon` must be >= 0, such as 0.01; got {self.epsilon!r}.")
        if self.levels is not None:
            object.__setattr__(self, "levels", check_levels("levels", self.levels, decreasing=True))

    @property
    def shared(self) -> tuple[str, ...]:  # type: ignore[override]
        """Options that it takes from the run where it is requested by name."""
        return () if self.estimator == "rank" else ("epsilon", "performance", "levels", "protocol")

    @property
    def needs_performance(self) -> bool:  # type: ignore[override]
        """Whether it follows the performance measure."""
        return self.estimator != "rank"

    @property
    def by_predictive_level(self) -> bool:  # type: ignore[override]
        """Whether its area is taken over predictive levels."""
        return self.estimator == "paper"

    @property
    def controlled(self) -> bool:  # type: ignore[override]
        """Whether a run measures its exchanged control by default; the sweep of the paper's estimator is long."""
        return self.estimator != "paper"

    @property
    def has_interval(self) -> bool:  # type: ignore[override]
        """Whether its areas have an interval: not where a step is judged for all samples at once, as by accuracy."""
        return self.estimator != "paper" or self.performance in SCORES

    @property
    def name(self) -> str:
        """Its name in `METRICS`."""
        return "soundness" if self.estimator == "paper" else f"soundness_{self.estimator}"

    @property
    def about(self) -> About:
        """How it is shown."""
        if self.estimator == "rank":
            return _RANK
        two_sided = self.estimator == "two_sided"
        return About(
            title="Soundness, two-sided" if two_sided else "Soundness",
            heading="sound-\nness\n2-sided" if two_sided else "sound-\nness",
            summary="which part of the attribution rests on features that are truly predictive"
            + (", each step judged from two sides" if two_sided else ""),
            purpose="where nothing may be falsely blamed",
            across="predictive level: {measure} reached",
            along="soundness",
            scale="A share from 0 (all attribution judged false) to 1 (none), averaged over "
            + ("the share of features kept." if two_sided else "predictive levels."),
            side="soundness",
            stairs=True,
        )

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the sweeps that it needs of maps with this many features."""
        if self.estimator == "rank":
            return self._sweeps(*step_schedules(features, self.steps))
        rules = find_protocol(self.protocol)
        levels = self._default_levels(rules) if self.levels is None else tuple(self.levels)
        steps = Schedule(by="area", order="lerf", levels=levels, rounding=rules.rounding)
        return self._sweeps(*([steps] if self.estimator == "paper" else [steps, opposite_schedule(steps, features)]))

    def _default_levels(self, rules: Protocol) -> tuple[float, ...]:
        """Return a third of the protocol's levels for two sides, denser where most of the attribution lies."""
        few = self.estimator == "paper" or len(rules.levels) <= _FEW_LEVELS
        return rules.levels if few else rules.levels[:29:2] + rules.levels[32::4]

    def read(self, tables: Sequence[ProbeTable]) -> SoundnessCurve | StepCurve:
        """Compute the curve from one table per sweep."""
        if self.estimator == "rank":
            return soundness_rank(*tables)
        opposite = tables[1] if len(tables) > 1 else None
        return read_soundness(self, tables[0], opposite)


@checked
def soundness_from_probes(
    table: ProbeTable,
    *,
    epsilon: float = 0.01,
    performance: Performance = "accuracy",
    protocol: str | Protocol = "paper",
    estimator: Literal["paper", "two_sided"] = "paper",
    opposite: ProbeTable | None = None,
    extrapolate: bool = True,
) -> SoundnessCurve:
    """Compute the progressive soundness of the paper (its Algorithm 3) from a probe table.

    A step whose gain in performance stays below epsilon adds false attribution. The value of a level is the share of
    the kept attribution that is not false, averaged over the samples for which it is defined. A measure of the data set
    decides for all samples at once, a measure of each sample ("score", "probability", "logit") for each of them.

    Args:
        table: probes by area, least relevant first, from the largest share removed to the smallest.
        epsilon: the gain below which a step's features are falsely attributed.
        performance: see `twinlens.metrics.performance.measure`.
        protocol: "paper", "soco", or a `Protocol`.
        estimator: "paper" judges a step by its gain in performance. "two_sided" judges it for each sample, by its
            share in the range of the sample's log-odds, which is closer to the truth where that is available; see
            docs/concepts/estimators.md.
        opposite: for "two_sided", probes of the same samples and maps by `opposite_schedule`.
        extrapolate: for "two_sided", whether the value is extrapolated to single features.
    """
    metric = Soundness(
        epsilon=epsilon,
        performance=performance,
        protocol=protocol,
        estimator=estimator,
        extrapolate=extrapolate,
    )
    return read_soundness(metric, table, opposite)


def read_soundness(metric: Soundness, table: ProbeTable, opposite: ProbeTable | None) -> SoundnessCurve:
    """Compute the curve of a metric from its probe tables."""
    schedule, rules = table.settings.schedule, find_protocol(metric.protocol)
    if (schedule.by, schedule.order) != ("area", "lerf") or schedule.levels[0] < schedule.levels[-1]:
        raise ValueError(
            "`table` must hold probes by area, least relevant first, with decreasing levels; got probes "
            f"by {schedule.by}, {schedule.order}, levels {schedule.levels[0]:g} to {schedule.levels[-1]:g}."
        )
    if metric.estimator == "two_sided" and opposite is None:
        raise ValueError(
            "`opposite` is required for estimator='two_sided': probes of the same samples and maps by "
            "`twinlens.metrics.opposite_schedule`. `twinlens.soundness` computes them itself."
        )
    if metric.estimator == "paper":
        opposite = None
    judge = Judge(
        table,
        metric.performance,
        epsilon=metric.epsilon,
        protocol=rules,
        opposite=opposite,
        extrapolate=metric.extrapolate,
    )
    judgement = judge(np.ones(len(table)))
    return SoundnessCurve(
        levels=table.levels,
        performance=judgement.performance,
        values=judgement.values,
        measure=judge.measured.name,
        requested=metric.performance,
        protocol=rules,
        table=table,
        epsilon=metric.epsilon,
        estimator=metric.estimator,
        opposite=opposite,
        extrapolate=metric.extrapolate,
        per_sample=judgement.per_sample,
        judged_false=judgement.judged_false,
    )
