"""Engines, which run units of work: in this process or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twinlens.errors import DamagedError
from twinlens.run.ray_engine import run_ray
from twinlens.run.units import Cluster, Unit, Work
from twinlens.support.progress import Progress

Failures = dict[str, Exception]
Seconds = dict[str, float]


def run_local(
    work: Work, units: Iterable[Unit], progress: Progress, cluster: Cluster | None = None
) -> tuple[Failures, Seconds]:
    """Run units in this process, in their order.

    After an error in a method, its other units are skipped. Errors of the run directory, such as a full disk, end the
    run.

    Returns:
        The errors by method, and the seconds by task.
    """
    del cluster
    failures = Failures()
    return failures, run_in_order(work, units, progress, failures)


def run_in_order(work: Work, units: Iterable[Unit], progress: Progress, failures: Failures) -> Seconds:
    """Run units in their order; `failures` receives the errors by method."""
    worker = work.worker(progress)
    for unit in units:
        if unit.method in failures:
            continue
        try:
            worker.do(unit)
        except (OSError, DamagedError):
            raise
        except Exception as error:
            if unit.method is None:
                raise
            failures[unit.method] = error
            progress.warn(f"{unit.method} fails and is left out: {error}")
    return worker.seconds


ENGINES: dict[str, Callable[[Work, Iterable[Unit], Progress, Cluster | None], tuple[Failures, Seconds]]] = {
    "local": run_local,
    "ray": run_ray,
}
"""The engines by name."""
