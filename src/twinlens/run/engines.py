"""Engines: where units of work run, by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from twinlens.errors import DamagedError
from twinlens.run.ray_engine import run_ray
from twinlens.run.units import Cluster, Job, Unit, in_stages
from twinlens.support.progress import Progress

Failures = dict[str, Exception]
Seconds = dict[str, float]


def run_local(
    job: Job, units: Iterable[Unit], progress: Progress, cluster: Cluster | None = None
) -> tuple[Failures, Seconds]:
    """Run units in this process, one after the other.

    A method that fails is left out from then on, and the others go on; a full disk or any other trouble with the run
    directory ends it.

    Returns:
        Why methods failed, by name, and the seconds that each kind of work took.
    """
    del cluster
    failures = Failures()
    return failures, run_in_order(job, chain.from_iterable(in_stages(units)), progress, failures)


def run_in_order(job: Job, units: Iterable[Unit], progress: Progress, failures: Failures) -> Seconds:
    """Run units one after the other, in the order given; `failures` receives why methods failed."""
    worker = job.worker(progress)
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


ENGINES: dict[str, Callable[[Job, Iterable[Unit], Progress, Cluster | None], tuple[Failures, Seconds]]] = {
    "local": run_local,
    "ray": run_ray,
}
"""Every engine by its name."""
