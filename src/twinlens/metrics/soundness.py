"""Soundness: which part of the attribution rests on features that are truly predictive (the paper's Algorithm 3).

Shapes: N samples, L levels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from twinlens.metrics.judge import Judge
from twinlens.metrics.metric import About, StepMetric
from twinlens.metrics.performance import SCORES, Performance, is_share
from twinlens.metrics.protocols import Protocol, find_protocol
from twinlens.metrics.soundness_curve import SoundnessCurve
from twinlens.metrics.step_curve import StepCurve, soundness_rank
from twinlens.metrics.sweeps import Sweep
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule, check_levels
from twinlens.support.arguments import checked

_RANK = About(
    title="Soundness",
    heading="soundness",
    summary="how often attribution lies on features that matter more to the model than others",
    purpose="where nothing may be falsely blamed",
    across="share of features kept",
    along="soundness of what is included",
    scale="A probability: 0.5 by chance, 1 where all attribution lies on the features that matter most.",
    chance=0.5,
    side="soundness",
)


@dataclass(frozen=True, kw_only=True)
class Soundness(StepMetric):
    """How far attribution lies on predictive features: the paper's Algorithm 3, or the rank of its steps.

    Example:
        >>> [len(sweep.schedule.levels) for sweep in Soundness(estimator="rank").sweeps(100)]
        [20, 20]
    """

    step_name, step_about = "soundness_rank", _RANK

    epsilon: float = 0.01
    """A step that gains less performance than this adds false attribution."""

    start_level: float | None = None
    """For "paper": no step is judged while the mean performance is at most this; by default as in the protocol, which
    is from the first level for "paper" and above 0.04 for "soco"."""

    estimator: Literal["paper", "rank"] = "paper"
    """How a step is judged: "paper" by its gain in performance; "rank" for each sample, by its rank among all steps of
    the map, without any threshold."""

    levels: Sequence[float] | None = None
    """For "paper": shares of features removed, decreasing; by default those of the protocol."""

    steps: int | None = None
    """Number of steps of equal size that the features are cut into: 20 by default for "rank", whose values grow with
    the step. For "paper" without `levels`, a coarse reading of the same probes instead of the protocol's levels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_epsilon(self.epsilon, self.performance)
        self._refuse_for_steps("levels", "epsilon", "start_level")
        if self.levels is not None:
            object.__setattr__(self, "levels", check_levels("levels", self.levels, decreasing=True))

    @property
    def by_steps(self) -> bool:
        """Whether it reads the effects of steps."""
        return self.estimator == "rank"

    @property
    def by_predictive_level(self) -> bool:  # type: ignore[override]
        """Whether its area is taken over predictive levels."""
        return not self.by_steps

    @property
    def coarse(self) -> bool:
        """Whether it reads the paper's soundness from the steps of the headline pair."""
        return not self.by_steps and self.levels is None and self.steps is not None

    @property
    def controlled(self) -> bool:  # type: ignore[override]
        """Whether a run measures its exchanged control by default; the sweep at the protocol's levels is long."""
        return self.by_steps or self.coarse

    @property
    def has_interval(self) -> bool:  # type: ignore[override]
        """Whether its areas have an interval: not where a step is judged for all samples at once, as by accuracy."""
        return self.by_steps or self.performance in SCORES

    @property
    def name(self) -> str:
        """Its name in `METRICS`."""
        return super().name if self.by_steps else "soundness"

    @property
    def about(self) -> About:
        """How it is shown."""
        if self.by_steps:
            return super().about
        return About(
            title="Soundness (paper, coarse)" if self.coarse else "Soundness (paper)",
            heading="soundness\n(paper, coarse)" if self.coarse else "soundness\n(paper)",
            summary="which part of the attribution rests on features that are truly predictive",
            purpose="where nothing may be falsely blamed",
            across="predictive level: {measure} reached",
            along="soundness",
            scale="A share from 0 (all attribution judged false) to 1 (none), averaged over predictive levels."
            + (f" Read at {self.steps} levels; `--metrics paper` measures all of the paper's." if self.coarse else ""),
            side="soundness",
            stairs=True,
        )

    @property
    def rules(self) -> Protocol:
        """The protocol, with the metric's own start level where it has one."""
        rules = find_protocol(self.protocol)
        return rules if self.start_level is None else dataclasses.replace(rules, start_level=self.start_level)

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the sweeps that it needs of maps with this many features."""
        if self.by_steps:
            return self._pair(features)
        if self.coarse:
            return self._pair(features)[:1]
        rules = self.rules
        levels = rules.levels if self.levels is None else tuple(self.levels)
        return self._sweeps(Schedule(by="area", order="lerf", levels=levels, rounding=rules.rounding))

    def read(self, tables: Sequence[ProbeTable]) -> SoundnessCurve | StepCurve:
        """Compute the curve from one table per sweep."""
        if self.by_steps:
            return soundness_rank(*tables)
        return soundness_from_probes(tables[0], epsilon=self.epsilon, performance=self.performance, protocol=self.rules)


def _check_epsilon(epsilon: float, performance: Performance) -> None:
    """Refuse a threshold that no gain in performance can be meant by."""
    if not epsilon >= 0:
        raise ValueError(f"`epsilon` must be >= 0, such as 0.01; got {epsilon!r}.")
    if epsilon > 1 and is_share(performance):
        points = f" For {epsilon:g} percentage points pass {epsilon / 100:g}." if epsilon <= 100 else ""
        raise ValueError(
            f"`epsilon` must lie within [0, 1], such as 0.01, because it is a gain in {performance}; got {epsilon!r}."
            f"{points}"
        )


@checked
def soundness_from_probes(
    table: ProbeTable,
    *,
    epsilon: float = 0.01,
    performance: Performance = "accuracy",
    protocol: str | Protocol = "paper",
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
    """
    _check_epsilon(epsilon, performance)
    schedule, rules = table.settings.schedule, find_protocol(protocol)
    if (schedule.by, schedule.order) != ("area", "lerf") or schedule.levels[0] < schedule.levels[-1]:
        raise ValueError(
            "`table` must hold probes by area, least relevant first, with decreasing levels; got probes "
            f"by {schedule.by}, {schedule.order}, levels {schedule.levels[0]:g} to {schedule.levels[-1]:g}."
        )
    judge = Judge(table, performance, epsilon=epsilon, protocol=rules)
    judgement = judge(np.ones(len(table)))
    return SoundnessCurve(
        levels=table.levels,
        performance=judgement.performance,
        values=judgement.values,
        measure=judge.measured.name,
        requested=performance,
        protocol=rules,
        table=table,
        epsilon=epsilon,
        per_sample=judgement.per_sample,
        judged_false=judgement.judged_false,
    )
