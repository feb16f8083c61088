"""Planning: which probes the metrics of a run need, each asked for once.

A sweep goes through levels in one order with one imputer. Metrics that agree in that share a sweep: ROAD, least
relevant first, reads nine of the levels that soundness has probed anyway.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twinlens.curves import Curve
from twinlens.imputation import BlurImputer, ConstantImputer, Imputer, LinearImputer
from twinlens.metrics import (
    SHARES,
    THRESHOLDS,
    completeness_from_probes,
    removal_from_probes,
    soundness_from_probes,
)
from twinlens.ordering import Schedule
from twinlens.performance import Protocol
from twinlens.table import ProbeTable

MAIN, CONSTANT, BLUR = "main", "constant", "blur"
_REBUILT = (LinearImputer, ConstantImputer, BlurImputer)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a metric asks of the probes, and how it reads them."""

    heading: str
    """Its name over a narrow column."""

    summary: str
    """What it measures, in a line."""

    by: str
    """How levels remove features; see `Schedule`."""

    order: str
    """Which features go first."""

    levels: tuple[float, ...] | None
    """The levels; None for those of the protocol."""

    imputer: str
    """Which imputer of the run fills in: the main one, the constant, or the blur."""

    read: Callable[..., Curve]
    """From a probe table to a curve."""

    higher_is_better: bool
    """Whether a larger area speaks for the map."""

    def schedule(self, protocol: Protocol) -> Schedule:
        """Gives the levels that the metric needs."""
        return Schedule(
            by=self.by,
            order=self.order,
            levels=protocol.levels if self.levels is None else self.levels,
            rounding=protocol.rounding if self.by == "area" else "round",
        )


METRICS: dict[str, Metric] = {
    "soundness": Metric(
        heading="sound-\nness",
        summary="which part of the attribution rests on features that are truly predictive",
        by="area",
        order="lerf",
        levels=None,
        imputer=MAIN,
        read=soundness_from_probes,
        higher_is_better=True,
    ),
    "completeness": Metric(
        heading="complete-\nness",
        summary="how much performance is lost with the features that the map marks",
        by="value",
        order="morf",
        levels=(1.0, *THRESHOLDS),
        imputer=MAIN,
        read=completeness_from_probes,
        higher_is_better=True,
    ),
    "road_morf": Metric(
        heading="ROAD\nMoRF",
        summary="ROAD: loss of performance as the most relevant features are removed first",
        by="area",
        order="morf",
        levels=(0.0, *SHARES),
        imputer=MAIN,
        read=removal_from_probes,
        higher_is_better=True,
    ),
    "road_lerf": Metric(
        heading="ROAD\nLeRF",
        summary="ROAD: loss of performance as the least relevant features are removed first",
        by="area",
        order="lerf",
        levels=(0.0, *SHARES),
        imputer=MAIN,
        read=removal_from_probes,
        higher_is_better=False,
    ),
    "deletion": Metric(
        heading="dele-\ntion",
        summary="loss of performance as the most relevant features are set to a constant first",
        by="area",
        order="morf",
        levels=(0.0, *SHARES),
        imputer=CONSTANT,
        read=removal_from_probes,
        higher_is_better=True,
    ),
    "insertion": Metric(
        heading="inser-\ntion",
        summary="loss of performance that remains as the most relevant features are put into a blurred input first",
        by="area",
        order="lerf",
        levels=(0.0, *SHARES),
        imputer=BLUR,
        read=removal_from_probes,
        higher_is_better=False,
    ),
}
"""Every metric by its name. All curves but soundness hold losses of performance."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Probes of one kind that are made together."""

    name: str
    """Name of its folder in a run."""

    schedule: Schedule
    """What is removed."""

    imputer: str
    """Which imputer of the run fills in."""

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Sweep:
        """Reads a sweep as run.json holds it."""
        return Sweep(name=stored["name"], schedule=Schedule(**stored["schedule"]), imputer=stored["imputer"])

    def to_json(self) -> dict[str, Any]:
        """Gives the sweep as run.json holds it."""
        stored = dataclasses.asdict(self)
        stored["schedule"]["levels"] = list(self.schedule.levels)
        return stored

    def serves(self, metric: Metric, protocol: Protocol) -> bool:
        """Tells whether probes of this sweep can be read by a metric."""
        needed = metric.schedule(protocol)
        same = dataclasses.replace(self.schedule, levels=needed.levels) == needed
        return same and self.imputer == metric.imputer


def plan_sweeps(metrics: Iterable[str], protocol: Protocol, there: Sequence[Sweep] = ()) -> list[Sweep]:
    """Gives the sweeps that metrics need beyond those that are there, no level twice.

    Example:
        >>> from twinlens.performance import PROTOCOLS
        >>> [(s.name, len(s.schedule.levels)) for s in plan_sweeps(["soundness", "road_lerf"], PROTOCOLS["paper"])]
        [('area-lerf-main', 99)]
    """
    wanted: dict[tuple[Schedule, str], set[float]] = {}
    for name in metrics:
        metric = METRICS[name]
        schedule = metric.schedule(protocol)
        have = {level for sweep in there if sweep.serves(metric, protocol) for level in sweep.schedule.levels}
        wanted.setdefault((dataclasses.replace(schedule, levels=(0.0,)), metric.imputer), set()).update(
            set(schedule.levels) - have
        )
    used = {sweep.name for sweep in there}
    planned = []
    for (kind, imputer), levels in wanted.items():
        if levels:
            name = _unused(f"{kind.by}-{kind.order}-{imputer}", used)
            schedule = dataclasses.replace(kind, levels=tuple(sorted(levels, reverse=True)))
            planned.append(Sweep(name=name, schedule=schedule, imputer=imputer))
            used.add(name)
    return planned


def _unused(name: str, used: set[str]) -> str:
    names = (name, *(f"{name}-{k}" for k in range(2, 1000)))
    return next(candidate for candidate in names if candidate not in used)


def can_read(name: str, sweeps: Iterable[Sweep], protocol: Protocol) -> bool:
    """Tells whether sweeps hold every level that a metric needs."""
    metric = METRICS[name]
    have = {level for sweep in sweeps if sweep.serves(metric, protocol) for level in sweep.schedule.levels}
    return have.issuperset(metric.schedule(protocol).levels)


def read_metric(
    name: str,
    tables: Mapping[Sweep, ProbeTable],
    protocol: Protocol,
    options: Mapping[str, Any],
) -> Curve:
    """Reads a metric's curve from the tables of a method's sweeps.

    Args:
        name: the metric.
        tables: the probes of every sweep of the run.
        protocol: the rules.
        options: `performance`, and `epsilon` for soundness.
    """
    metric = METRICS[name]
    usable = [table for sweep, table in tables.items() if sweep.serves(metric, protocol)]
    table = usable[0].join_levels(*usable[1:], levels=metric.schedule(protocol).levels)
    if metric.read is not soundness_from_probes:
        options = {key: value for key, value in options.items() if key != "epsilon"}
    return metric.read(table, protocol=protocol, **options)


def imputers(main: Imputer, *, spatial: bool) -> dict[str, Imputer]:
    """Gives the imputers of a run; without neighbours, insertion starts from the constant instead of a blur."""
    constant = ConstantImputer(0.0)
    return {MAIN: main, CONSTANT: constant, BLUR: BlurImputer() if spatial else constant}


def describe_imputer(imputer: Imputer) -> dict[str, Any]:
    """Says what an imputer is, as run.json holds it; with all its settings where it can be made again from them.

    Example:
        >>> describe_imputer(ConstantImputer(0.5))
        {'name': 'ConstantImputer', 'value': 0.5}
    """
    if isinstance(imputer, _REBUILT):
        return {"name": type(imputer).__name__, **dataclasses.asdict(imputer)}
    return {"name": getattr(imputer, "__qualname__", repr(imputer))}


def rebuild_imputer(description: Mapping[str, Any]) -> Imputer | None:
    """Makes an imputer again from its description, or gives None for one of the user's own.

    Example:
        >>> rebuild_imputer({"name": "ConstantImputer", "value": 0.5})
        ConstantImputer(value=0.5)
    """
    known = {kind.__name__: kind for kind in _REBUILT}
    kind = known.get(description["name"])
    return kind(**{name: value for name, value in description.items() if name != "name"}) if kind else None
