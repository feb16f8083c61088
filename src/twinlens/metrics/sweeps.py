"""Sweeps: which probes metrics need, each asked for once.

A sweep goes through levels in one order with one imputer. Metrics that agree in that share a sweep: ROAD, least
relevant first, reads nine of the levels that soundness has probed anyway.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from twinlens.core.ordering import Schedule
from twinlens.imputation.imputers import Imputer, describe_imputer


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Probes of one kind: what is removed, and what stands in its place."""

    schedule: Schedule
    """Which features are removed at which level."""

    imputer: Imputer
    """What stands in the place of removed features."""

    def kind(self) -> tuple[Schedule, str]:
        """Return what two sweeps have to agree in, all but the levels, to be one."""
        return dataclasses.replace(self.schedule, levels=(0.0,)), imputer_key(self.imputer)


def imputer_key(imputer: Imputer) -> str:
    """Return what tells imputers apart: the name and all settings."""
    return repr(describe_imputer(imputer))


def merge_sweeps(wanted: Iterable[Sweep]) -> list[Sweep]:
    """Join sweeps of the same kind, no level twice, the largest level first.

    Example:
        >>> from twinlens.metrics.catalogue import METRICS
        >>> needed = [sweep for name in ("soundness", "road_lerf") for sweep in METRICS[name].sweeps(100)]
        >>> [(sweep.schedule.order, len(sweep.schedule.levels)) for sweep in merge_sweeps(needed)]
        [('lerf', 99)]
    """
    levels: dict[tuple[Schedule, str], set[float]] = {}
    imputers: dict[tuple[Schedule, str], Imputer] = {}
    for sweep in wanted:
        levels.setdefault(sweep.kind(), set()).update(sweep.schedule.levels)
        imputers.setdefault(sweep.kind(), sweep.imputer)
    return [
        Sweep(
            schedule=dataclasses.replace(kind[0], levels=tuple(sorted(each, reverse=True))),
            imputer=imputers[kind],
        )
        for kind, each in levels.items()
    ]
