"""Completeness (the paper's Algorithm 4) and the metrics that go by rank: ROAD, deletion and insertion.

All of them are losses of performance against the untouched inputs as features are removed.

Shapes: N samples, L levels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from twinlens.imputation.imputers import BlurImputer, ConstantImputer, Imputer, LinearImputer
from twinlens.metrics.about import About
from twinlens.metrics.curves import CompletenessCurve, RemovalCurve, more_is_better
from twinlens.metrics.performance import Performance, measure
from twinlens.metrics.protocols import Protocol, find_protocol
from twinlens.metrics.soundness import check_fields
from twinlens.metrics.sweeps import Sweep
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule, check_levels
from twinlens.support.arguments import checked

THRESHOLDS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
AnyLoss = TypeVar("AnyLoss", CompletenessCurve, RemovalCurve)


@dataclass(frozen=True, kw_only=True)
class Completeness:
    """Performance lost with the features that the map marks (the paper's Algorithm 4)."""

    thresholds: Sequence[float] = THRESHOLDS
    """Features above the threshold are removed; decreasing."""

    relative: bool = True
    """Whether thresholds are multiplied by each map's maximum, or compared with its values as they are, as the paper's
    Algorithm 4 reads."""

    performance: Performance = "accuracy"
    """What is lost; the measures are those of soundness."""

    imputer: Imputer | None = None
    """What stands in the place of removed features: linear, constant, mean or blur; in a run, the run's own
    by default."""

    protocol: str | Protocol = "paper"
    """The fine print: "paper" follows the paper's text, "soco" the code that its authors published."""

    name = "completeness"
    shared = ("performance", "protocol")
    controlled = True
    has_interval = True
    by_predictive_level = False
    about = About(
        title="Completeness",
        heading="complete-\nness",
        summary="how much performance is lost with the features that the map marks",
        purpose="where nothing may be missed",
        across="attribution threshold",
        side="completeness",
        decreasing=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "thresholds", check_levels("thresholds", self.thresholds, decreasing=True))

    def bound(self, main: Imputer, *, neighbours: bool) -> Completeness:
        """Return the metric with the run's imputer where it has none of its own."""
        del neighbours
        return self if self.imputer is not None else dataclasses.replace(self, imputer=main)

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the probes that it needs."""
        del features
        imputer, thresholds = self.imputer or LinearImputer(), tuple(self.thresholds)
        # Relative to the maximum, the threshold 1 removes nothing. Of absolute ones none may, so that the untouched
        # inputs come from elsewhere.
        levels = (1.0, *thresholds) if self.relative else thresholds
        by_value = Schedule(by="value", order="morf", levels=levels, relative=self.relative)
        schedules = [by_value] if self.relative else [by_value, Schedule(by="area", order="morf", levels=(0.0,))]
        return tuple(Sweep(schedule=schedule, imputer=imputer) for schedule in schedules)

    def read(self, tables: Sequence[ProbeTable]) -> CompletenessCurve:
        """Compute the curve from one table per sweep."""
        return completeness_from_probes(
            tables[0],
            performance=self.performance,
            protocol=self.protocol,
            untouched=tables[1] if len(tables) > 1 else None,
        )


@dataclass(frozen=True, kw_only=True)
class Road:
    """Performance lost as features are removed by rank and imputed linearly (ROAD, Rong et al. 2022)."""

    order: Literal["morf", "lerf"] = "morf"
    """Which features go first: "morf" the most relevant, "lerf" the least relevant."""

    levels: Sequence[float] = SHARES
    """Shares of features removed, increasing."""

    performance: Performance = "accuracy"
    """What is lost; the measures are those of soundness."""

    imputer: Imputer | None = None
    """What stands in the place of removed features: linear, constant, mean or blur; in a run, the run's own
    by default."""

    protocol: str | Protocol = "paper"
    """The fine print: "paper" follows the paper's text, "soco" the code that its authors published."""

    shared = ("performance", "protocol")
    controlled = True
    has_interval = True
    by_predictive_level = False

    def __post_init__(self) -> None:
        check_removal(self)

    @property
    def name(self) -> str:
        """Its name in `METRICS`."""
        return f"road_{self.order}"

    @property
    def about(self) -> About:
        """How it is shown."""
        most = self.order == "morf"
        return About(
            title=f"ROAD, {'most' if most else 'least'} relevant first",
            heading="ROAD\nMoRF" if most else "ROAD\nLeRF",
            summary=f"ROAD: loss of performance as the {'most' if most else 'least'} relevant features are removed "
            "first",
            across="share of features removed",
            higher_is_better=more_is_better(self.order),
        )

    def bound(self, main: Imputer, *, neighbours: bool) -> Road:
        """Return the metric with the run's imputer where it has none of its own."""
        del neighbours
        return self if self.imputer is not None else dataclasses.replace(self, imputer=main)

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the probes that it needs."""
        del features
        return removal_sweep(self, self.order, self.imputer or LinearImputer())

    def read(self, tables: Sequence[ProbeTable]) -> RemovalCurve:
        """Compute the curve from its table."""
        return removal_from_probes(tables[0], performance=self.performance, protocol=self.protocol)


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """Performance lost as the most relevant features are set to a constant first (Petsiuk et al. 2018)."""

    levels: Sequence[float] = SHARES
    """Shares of features removed, increasing."""

    performance: Performance = "accuracy"
    """What is lost; the measures are those of soundness."""

    imputer: Imputer | None = None
    """What stands in the place of removed features; zero by default, whatever the run's imputer."""

    protocol: str | Protocol = "paper"
    """The fine print: "paper" follows the paper's text, "soco" the code that its authors published."""

    name = "deletion"
    shared = ("performance", "protocol")
    controlled = True
    has_interval = True
    by_predictive_level = False
    about = About(
        title="Deletion",
        heading="dele-\ntion",
        summary="loss of performance as the most relevant features are set to a constant first",
        across="share of features removed",
    )

    def __post_init__(self) -> None:
        check_removal(self)

    def bound(self, main: Imputer, *, neighbours: bool) -> Deletion:
        """Return the metric with its own imputer, a constant; the run's where features have no neighbours."""
        own = ConstantImputer(0.0) if neighbours else main
        return self if self.imputer is not None else dataclasses.replace(self, imputer=own)

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the probes that it needs."""
        del features
        return removal_sweep(self, "morf", self.imputer or ConstantImputer(0.0))

    def read(self, tables: Sequence[ProbeTable]) -> RemovalCurve:
        """Compute the curve from its table."""
        return removal_from_probes(tables[0], performance=self.performance, protocol=self.protocol)


@dataclass(frozen=True, kw_only=True)
class Insertion:
    """Performance still lost as the most relevant features are put into a blurred input (Petsiuk et al. 2018)."""

    levels: Sequence[float] = SHARES
    """Shares of features still blurred, increasing."""

    performance: Performance = "accuracy"
    """What is lost; the measures are those of soundness."""

    imputer: Imputer | None = None
    """What features are inserted into; a blurred copy by default, or the run's imputer for tabular rows."""

    protocol: str | Protocol = "paper"
    """The fine print: "paper" follows the paper's text, "soco" the code that its authors published."""

    name = "insertion"
    shared = ("performance", "protocol")
    controlled = True
    has_interval = True
    by_predictive_level = False
    about = About(
        title="Insertion",
        heading="inser-\ntion",
        summary="loss of performance that remains as the most relevant features are put into a blurred input first",
        across="share of features still blurred",
        higher_is_better=more_is_better("lerf"),
    )

    def __post_init__(self) -> None:
        check_removal(self)

    def bound(self, main: Imputer, *, neighbours: bool) -> Insertion:
        """Return the metric with its own imputer, a blur; the run's where features have no neighbours."""
        own = BlurImputer() if neighbours else main
        return self if self.imputer is not None else dataclasses.replace(self, imputer=own)

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the probes that it needs."""
        del features
        return removal_sweep(self, "lerf", self.imputer or BlurImputer())

    def read(self, tables: Sequence[ProbeTable]) -> RemovalCurve:
        """Compute the curve from its table."""
        return removal_from_probes(tables[0], performance=self.performance, protocol=self.protocol)


def check_removal(metric: Road | Deletion | Insertion) -> None:
    """Check a metric by rank, and bring its fields to their form."""
    check_fields(metric)
    object.__setattr__(metric, "levels", check_levels("levels", metric.levels, decreasing=False))


def removal_sweep(metric: Road | Deletion | Insertion, order: str, imputer: Imputer) -> tuple[Sweep]:
    """Return the sweep of a metric by rank, with the untouched inputs first."""
    rounding = find_protocol(metric.protocol).rounding
    schedule = Schedule(by="area", order=order, levels=(0.0, *metric.levels), rounding=rounding)
    return (Sweep(schedule=schedule, imputer=imputer),)


@checked
def completeness_from_probes(
    table: ProbeTable,
    *,
    performance: Performance = "accuracy",
    protocol: str | Protocol = "paper",
    untouched: ProbeTable | None = None,
) -> CompletenessCurve:
    """Compute the completeness of the paper (its Algorithm 4) from a probe table.

    Args:
        table: probes by value, most relevant first; with relative thresholds the threshold 1, which removes nothing,
            has to be among them.
        performance: see `twinlens.metrics.performance.measure`.
        protocol: "paper", "soco", or a `Protocol`.
        untouched: for absolute thresholds, probes of the same samples at a level that removes nothing.
    """
    if untouched is not None:
        table = table.with_untouched(untouched, level=1.0)
    return _loss(CompletenessCurve, table, performance, protocol, by="value", untouched=1.0)


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
    return _loss(RemovalCurve, table, performance, protocol, by="area", untouched=0.0)


def _loss(
    curve: type[AnyLoss],
    table: ProbeTable,
    performance: Performance,
    protocol: str | Protocol,
    *,
    by: str,
    untouched: float,
) -> AnyLoss:
    schedule, rules = table.settings.schedule, find_protocol(protocol)
    if schedule.by != by or untouched not in schedule.levels or len(schedule.levels) < 2:
        raise ValueError(
            f"`table` must hold probes by {by}, among them level {untouched:g}, at which nothing is removed, and one "
            f"other; got probes by {schedule.by} at levels {schedule.levels}."
        )
    measured = measure(table, performance, rules)
    base = schedule.levels.index(untouched)
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
