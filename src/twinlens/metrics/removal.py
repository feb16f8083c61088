"""Completeness (the paper's Algorithm 4) and the metrics that go by rank: ROAD, deletion and insertion.

All of them are losses of performance, compared with the original inputs, as features are removed.

Shapes: N samples, L levels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

import numpy as np

from twinlens.imputation.imputers import BlurImputer, ConstantImputer, Imputer
from twinlens.metrics.curves import CompletenessCurve, GainCurve, RemovalCurve
from twinlens.metrics.metric import About, PerformanceMetric, StepMetric
from twinlens.metrics.performance import Performance, measure
from twinlens.metrics.protocols import Protocol, find_protocol
from twinlens.metrics.step_curve import StepCurve, completeness_share
from twinlens.metrics.sweeps import Sweep
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule, check_levels
from twinlens.support.arguments import checked

THRESHOLDS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
AnyLoss = TypeVar("AnyLoss", CompletenessCurve, RemovalCurve)


_LOSS = About(
    title="Completeness (paper)",
    heading="completeness\n(paper)",
    summary="how much performance is lost with the features that the map marks",
    purpose="where nothing may be missed",
    across="attribution threshold",
    side="completeness",
    decreasing=True,
)
_SHARE = About(
    title="Completeness",
    heading="completeness",
    summary="which share of the predictive information the first features of a map hold",
    purpose="where nothing may be missed",
    across="share of features kept",
    along="share of predictive information",
    scale="A share, averaged over the share of features kept: 0.5 by chance, 1 where the first features hold all.",
    chance=0.5,
    side="completeness",
)


@dataclass(frozen=True, kw_only=True)
class Completeness(StepMetric):
    """How much of what is predictive a map marks: the paper's Algorithm 4, or a share of the information."""

    step_name, step_about = "completeness_share", _SHARE

    estimator: Literal["paper", "share"] = "paper"
    """What is measured: "paper" the performance lost with the marked features; "share" the share of the predictive
    information on the first features of the map's order, from the same probes as soundness as a rank."""

    thresholds: Sequence[float] = THRESHOLDS
    """Features above the threshold are removed; decreasing."""

    relative: bool = True
    """Whether thresholds are multiplied by each map's maximum, or compared with its values directly, as the paper's
    Algorithm 4 reads."""

    steps: int | None = None
    """For "share": number of steps of equal size that the features are cut into; 20 by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_for_steps("thresholds", "relative")
        object.__setattr__(self, "thresholds", check_levels("thresholds", self.thresholds, decreasing=True))

    @property
    def name(self) -> str:
        """Its name in `METRICS`."""
        return super().name if self.by_steps else "completeness"

    @property
    def about(self) -> About:
        """How it is shown."""
        return super().about if self.by_steps else _LOSS

    @property
    def by_steps(self) -> bool:
        """Whether it reads the effects of steps."""
        return self.estimator == "share"

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the sweeps that it needs."""
        if self.by_steps:
            return self._pair(features)
        thresholds = tuple(self.thresholds)
        if self.relative:  # then the threshold 1 removes nothing
            return self._sweeps(Schedule(by="value", order="morf", levels=(1.0, *thresholds)))
        return self._sweeps(
            Schedule(by="value", order="morf", levels=thresholds, relative=False),
            Schedule(by="area", order="morf", levels=(0.0,)),
        )

    def read(self, tables: Sequence[ProbeTable]) -> CompletenessCurve | StepCurve:
        """Compute the curve from one table per sweep."""
        if self.by_steps:
            return completeness_share(*tables)
        return completeness_from_probes(
            tables[0],
            performance=self.performance,
            protocol=self.protocol,
            original=tables[1] if len(tables) > 1 else None,
        )


@dataclass(frozen=True, kw_only=True)
class RankMetric(PerformanceMetric):
    """Performance lost as features are removed by rank: ROAD, deletion and insertion."""

    levels: Sequence[float] = SHARES
    """Shares of features removed, increasing."""

    by_rank: ClassVar[bool] = True
    order: ClassVar[str] = "morf"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "levels", check_levels("levels", self.levels, decreasing=False))

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the sweep that it needs, with the original inputs first."""
        del features
        rounding = find_protocol(self.protocol).rounding
        return self._sweeps(Schedule(by="area", order=self.order, levels=(0.0, *self.levels), rounding=rounding))

    def read(self, tables: Sequence[ProbeTable]) -> RemovalCurve:
        """Compute the curve from its table."""
        return removal_from_probes(tables[0], performance=self.performance, protocol=self.protocol)


@dataclass(frozen=True, kw_only=True)
class Road(RankMetric):
    """Performance lost as features are removed by rank and imputed linearly (ROAD, Rong et al. 2022)."""

    order: Literal["morf", "lerf"] = "morf"  # type: ignore[misc]
    """Which features are removed first: "morf" the most relevant, "lerf" the least relevant."""

    @property
    def name(self) -> str:
        """Its name in `METRICS`."""
        return f"road_{self.order}"

    @property
    def about(self) -> About:
        """How it is shown."""
        most = self.order == "morf"
        first = "most" if most else "least"
        return About(
            title=f"ROAD, {first} relevant first",
            heading="ROAD\nMoRF" if most else "ROAD\nLeRF",
            summary=f"ROAD: loss of performance as the {first} relevant features are removed first",
            across="share of features removed",
            higher_is_better=most,
        )


@dataclass(frozen=True, kw_only=True)
class RoadGain(RankMetric):
    """Difference of ROAD in both orders: the symmetric relevance gain (Blücher et al. 2024)."""

    name = "road_gain"
    about = About(
        title="ROAD gain, both orders",
        heading="ROAD\ngain",
        summary="ROAD: how much more is lost with the most relevant features first than with the least relevant first",
        across="share of features removed",
        along="difference in {measure}",
        scale="A difference in {measure}, averaged over the curve: 0 by chance, below 0 where the order is misleading.",
    )

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the sweeps of both orders."""
        most = super().sweeps(features)
        orders = (dataclasses.replace(sweep.schedule, order="lerf") for sweep in most)
        return *most, *self._sweeps(*orders)

    def read(self, tables: Sequence[ProbeTable]) -> GainCurve:  # type: ignore[override]
        """Compute the curve from the tables of both orders."""
        return GainCurve.of(
            *(removal_from_probes(t, performance=self.performance, protocol=self.protocol) for t in tables)
        )


@dataclass(frozen=True, kw_only=True)
class Deletion(RankMetric):
    """Performance lost as the most relevant features are set to a constant first (Petsiuk et al. 2018)."""

    imputer: Imputer | None = None
    """How removed features are filled in; with zeros by default, regardless of the run's imputer."""

    name = "deletion"
    own_imputer = ConstantImputer(0.0)
    about = About(
        title="Deletion",
        heading="deletion",
        summary="loss of performance as the most relevant features are set to a constant first",
        across="share of features removed",
    )


@dataclass(frozen=True, kw_only=True)
class Insertion(RankMetric):
    """Performance still lost as the most relevant features are put into a blurred input (Petsiuk et al. 2018)."""

    imputer: Imputer | None = None
    """What features are inserted into; a blurred copy by default, or the run's imputer for tabular rows."""

    levels: Sequence[float] = SHARES
    """Shares of features still blurred, increasing."""

    name = "insertion"
    order = "lerf"
    own_imputer = BlurImputer()
    about = About(
        title="Insertion",
        heading="insertion",
        summary="loss of performance that remains as the most relevant features are put into a blurred input first",
        across="share of features still blurred",
        higher_is_better=False,
    )


@checked
def completeness_from_probes(
    table: ProbeTable,
    *,
    performance: Performance = "accuracy",
    protocol: str | Protocol = "paper",
    original: ProbeTable | None = None,
) -> CompletenessCurve:
    """Compute the completeness of the paper (its Algorithm 4) from a probe table.

    Args:
        table: probes by value, most relevant first; with relative thresholds the threshold 1, which removes nothing,
            has to be among them.
        performance: see `twinlens.metrics.performance.measure`.
        protocol: "paper", "soco", or a `Protocol`.
        original: for absolute thresholds, probes of the same samples at a level that removes nothing.
    """
    if original is not None:
        table = table.with_original(original, level=1.0)
    return _loss(CompletenessCurve, table, performance, protocol, by="value", whole=1.0)


@checked
def removal_from_probes(
    table: ProbeTable, *, performance: Performance = "accuracy", protocol: str | Protocol = "paper"
) -> RemovalCurve:
    """Compute the loss of performance under removal by rank: ROAD, deletion and insertion.

    Args:
        table: probes by area; the share 0, which removes nothing, has to be among them.
        performance: see `twinlens.metrics.performance.measure`.
        protocol: "paper", "soco", or a `Protocol`.
    """
    return _loss(RemovalCurve, table, performance, protocol, by="area", whole=0.0)


def _loss(
    curve: type[AnyLoss],
    table: ProbeTable,
    performance: Performance,
    protocol: str | Protocol,
    *,
    by: str,
    whole: float,
) -> AnyLoss:
    schedule, rules = table.settings.schedule, find_protocol(protocol)
    if schedule.by != by or whole not in schedule.levels or len(schedule.levels) < 2:
        raise ValueError(
            f"`table` must hold probes by {by}, among them level {whole:g}, at which nothing is removed, and one "
            f"other; got probes by {schedule.by} at levels {schedule.levels}."
        )
    measured = measure(table, performance, rules)
    base = schedule.levels.index(whole)
    mean = np.delete(measured.mean, base)
    return curve(
        levels=np.delete(table.levels, base),
        performance=mean,
        values=measured.mean[base] - mean,
        measure=measured.name,
        requested=performance,
        protocol=rules,
        table=table,
        baseline=float(measured.mean[base]),
    )
