"""Soundness: which part of the attribution rests on features that are truly predictive (the paper's Algorithm 3).

Shapes: N samples, L levels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from twinlens.imputation.imputers import Imputer, LinearImputer, find_imputer
from twinlens.metrics.about import About
from twinlens.metrics.estimators import Judge, check_epsilon, opposite_schedule
from twinlens.metrics.performance import SCORES, Performance, check_performance
from twinlens.metrics.protocols import Protocol, find_protocol
from twinlens.metrics.soundness_curve import SoundnessCurve
from twinlens.metrics.sweeps import Sweep
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule, check_levels
from twinlens.support.arguments import checked
from twinlens.support.fields import convert, fields_of

_FEW_LEVELS = 33  # a protocol with no more than a third of the paper's levels needs no thinning


@dataclass(frozen=True, kw_only=True)
class Soundness:
    """Share of the attribution that rests on predictive features (the paper's Algorithm 3).

    Example:
        >>> [len(sweep.schedule.levels) for sweep in Soundness(estimator="two_sided", levels=(0.9, 0.5)).sweeps(100)]
        [2, 2]
    """

    epsilon: float = 0.01
    """A step that gains less performance than this adds false attribution."""

    estimator: Literal["paper", "two_sided"] = "paper"
    """How a step is judged: "paper" by its gain in performance; "two_sided" for each sample, by its share in the range
    of the sample's log-odds, from two sides, which comes nearer to the truth where that is known."""

    extrapolate: bool = True
    """For "two_sided": whether the value is extrapolated from steps and pairs of steps, all in the same probes, to
    single features, so that it depends less on the step; otherwise steps are taken as they are."""

    performance: Performance = "accuracy"
    """What is gained: accuracy, top5, balanced_accuracy (decided over the data set), score, probability, logit (decided
    for each sample), r2 or neg_mse (regression); in Python also a function of the probe table."""

    levels: Sequence[float] | None = None
    """Shares of features removed, decreasing; by default those of the protocol, and for "two_sided" a third of these:
    0.98, 0.96, … 0.7, then 0.66, 0.62, … 0.02."""

    imputer: Imputer | None = None
    """What stands in the place of removed features: linear, constant, mean or blur; in a run, the run's own
    by default."""

    protocol: str | Protocol = "paper"
    """The fine print: "paper" follows the paper's text, "soco" the code that its authors published."""

    shared = ("epsilon", "performance", "levels", "protocol")

    def __post_init__(self) -> None:
        check_fields(self)
        check_epsilon(self.epsilon)
        if self.levels is not None:
            object.__setattr__(self, "levels", check_levels("levels", self.levels, decreasing=True))

    @property
    def by_predictive_level(self) -> bool:
        """Whether its area is taken over predictive levels."""
        return self.estimator == "paper"

    @property
    def controlled(self) -> bool:
        """Whether a run measures it on exchanged maps by default; the sweep of the paper's estimator is long."""
        return self.estimator != "paper"

    @property
    def has_interval(self) -> bool:
        """Whether its areas have an interval: not where a step is judged for all samples at once, as by accuracy."""
        return self.estimator != "paper" or self.performance in SCORES

    @property
    def name(self) -> str:
        """Its name in `METRICS`."""
        return "soundness" if self.estimator == "paper" else f"soundness_{self.estimator}"

    @property
    def about(self) -> About:
        """How it is shown."""
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

    def bound(self, main: Imputer, *, neighbours: bool) -> Soundness:
        """Return the metric with the run's imputer where it has none of its own."""
        del neighbours
        return self if self.imputer is not None else dataclasses.replace(self, imputer=main)

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the probes that it needs of maps with so many features."""
        rules, imputer = find_protocol(self.protocol), self.imputer or LinearImputer()
        levels = self._default_levels(rules) if self.levels is None else tuple(self.levels)
        steps = Schedule(by="area", order="lerf", levels=levels, rounding=rules.rounding)
        schedules = [steps] if self.estimator == "paper" else [steps, opposite_schedule(steps, features)]
        return tuple(Sweep(schedule=schedule, imputer=imputer) for schedule in schedules)

    def _default_levels(self, rules: Protocol) -> tuple[float, ...]:
        """Take a third of the protocol's levels for two sides, the more of them where most of the attribution lies."""
        few = self.estimator == "paper" or len(rules.levels) <= _FEW_LEVELS
        return rules.levels if few else rules.levels[:29:2] + rules.levels[32::4]

    def read(self, tables: Sequence[ProbeTable]) -> SoundnessCurve:
        """Compute the curve from one table per sweep."""
        return soundness_from_probes(
            tables[0],
            epsilon=self.epsilon,
            performance=self.performance,
            protocol=self.protocol,
            estimator=self.estimator,
            opposite=tables[1] if len(tables) > 1 else None,
            extrapolate=self.extrapolate,
        )


def check_fields(metric: object) -> None:
    """Check the fields that all metrics have, and bring them to their form."""
    for field in fields_of(type(metric)):
        value = getattr(metric, field.name)
        if field.name == "imputer":
            checked = None if value is None else find_imputer(value)
        elif field.name == "levels" and value is not None:
            checked = convert(value, tuple[float, ...], "levels")
        else:
            checked = convert(value, field.type, field.name)
        object.__setattr__(metric, field.name, checked)
    check_performance(metric.performance)  # type: ignore[attr-defined]
    find_protocol(metric.protocol)  # type: ignore[attr-defined]


@checked
def soundness_from_probes(
    table: ProbeTable,
    *,
    epsilon: float = 0.01,
    performance: Performance = "accuracy",
    protocol: str | Protocol = "paper",
    estimator: str = "paper",
    opposite: ProbeTable | None = None,
    extrapolate: bool = True,
) -> SoundnessCurve:
    """Compute the progressive soundness of the paper (its Algorithm 3) from a probe table.

    Going through the levels, a step whose gain in performance stays below epsilon adds false attribution; the value
    of a level is the share of the kept attribution that is not false, averaged over the samples for which it is
    defined. With a measure of the data set the decision is one for all samples, with a measure of each sample
    ("score", "probability", "logit") each sample has its own.

    Args:
        table: probes by area, least relevant first, from the largest share removed to the smallest.
        epsilon: the gain below which a step's features are falsely attributed.
        performance: see `twinlens.metrics.performance.measure`.
        protocol: "paper", "soco", or a `Protocol`.
        estimator: "paper" judges a step by its gain in performance. "two_sided" judges it for each sample, by its
            share in the range of the sample's log-odds, and comes nearer to the truth where that is known; see
            docs/concepts/estimators.md.
        opposite: for "two_sided", probes of the same samples and maps by `opposite_schedule`.
        extrapolate: for "two_sided", whether the value is extrapolated to single features.
    """
    schedule, rules = table.settings.schedule, find_protocol(protocol)
    if (schedule.by, schedule.order) != ("area", "lerf") or schedule.levels[0] < schedule.levels[-1]:
        raise ValueError(
            "`table` must hold probes by area, least relevant first, with decreasing levels; got probes "
            f"by {schedule.by}, {schedule.order}, levels {schedule.levels[0]:g} to {schedule.levels[-1]:g}."
        )
    judge = Judge(
        table,
        performance,
        epsilon=epsilon,
        protocol=rules,
        estimator=estimator,
        opposite=opposite,
        extrapolate=extrapolate,
    )
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
        estimator=estimator,
        opposite=opposite,
        extrapolate=extrapolate,
        per_sample=judgement.per_sample,
        judged_false=judgement.judged_false,
    )
