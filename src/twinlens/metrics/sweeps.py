"""Sweeps: which probes metrics need, each asked for once.

A sweep goes through levels in one order with one imputer. Metrics that agree in that share a sweep: ROAD, least
relevant first, reads nine of the levels that soundness has probed anyway.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from twinlens.imputation.imputers import Imputer, describe_imputer
from twinlens.probing.ranking import Schedule


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Probes of one kind: what is removed, and what stands in its place."""

    schedule: Schedule
    """Which features are removed at which level."""

    imputer: Imputer
    """What stands in the place of removed features."""

    exchanged: float = 0.0
    """Share of the samples that are probed by the map of another sample, as the control; 0 for own maps of all."""

    def kind(self) -> tuple[Schedule, str, float]:
        """Return what two sweeps have to agree in, all but the levels, to be one."""
        return dataclasses.replace(self.schedule, levels=(0.0,)), imputer_key(self.imputer), self.exchanged

    def at(self, levels: Iterable[float]) -> Sweep:
        """Return the same sweep at other levels, the largest first."""
        schedule = dataclasses.replace(self.schedule, levels=tuple(sorted(levels, reverse=True)))
        return dataclasses.replace(self, schedule=schedule)


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
    alike: dict[tuple[Schedule, str, float], list[Sweep]] = {}
    for sweep in wanted:
        alike.setdefault(sweep.kind(), []).append(sweep)
    return [sweeps[0].at({level for sweep in sweeps for level in sweep.schedule.levels}) for sweeps in alike.values()]
