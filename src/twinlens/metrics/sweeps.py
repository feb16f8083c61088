"""Sweeps: the probes that metrics need, each computed once.

A sweep goes through levels in one order with one imputer. Metrics with the same order and imputer share a sweep: ROAD,
least relevant first, reads nine of the levels that soundness probes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from twinlens.imputation.imputers import Imputer, describe_imputer
from twinlens.probing.ranking import Schedule


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Probes of one kind: which features are removed, and how they are filled in."""

    schedule: Schedule
    """Which features are removed at which level."""

    imputer: Imputer
    """How removed features are filled in."""

    exchanged: float = 0.0
    """Share of the samples that are probed with exchanged maps, for the exchanged control; 0 for own maps."""

    def kind(self) -> tuple[Schedule, str, float]:
        """Return everything but the levels; sweeps of the same kind can be merged."""
        return dataclasses.replace(self.schedule, levels=(0.0,)), imputer_key(self.imputer), self.exchanged

    def at(self, levels: Iterable[float]) -> Sweep:
        """Return the same sweep at other levels, the largest first."""
        schedule = dataclasses.replace(self.schedule, levels=tuple(sorted(levels, reverse=True)))
        return dataclasses.replace(self, schedule=schedule)


def imputer_key(imputer: Imputer) -> str:
    """Return the name and all settings of an imputer as text."""
    return repr(describe_imputer(imputer))


def merge_sweeps(sweeps: Iterable[Sweep]) -> list[Sweep]:
    """Merge sweeps of the same kind, each level once, the largest first.

    Example:
        >>> from twinlens.metrics.catalogue import METRICS
        >>> needed = [sweep for name in ("soundness", "road_lerf") for sweep in METRICS[name].sweeps(100)]
        >>> [(sweep.schedule.order, len(sweep.schedule.levels)) for sweep in merge_sweeps(needed)]
        [('lerf', 99)]
    """
    alike: dict[tuple[Schedule, str, float], list[Sweep]] = {}
    for sweep in sweeps:
        alike.setdefault(sweep.kind(), []).append(sweep)
    return [same[0].at({level for sweep in same for level in sweep.schedule.levels}) for same in alike.values()]
