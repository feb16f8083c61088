"""Reproduction: every experiment of the paper, one file each, and the networks that they train."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

from twinlens.errors import unknown
from twinlens.reproduction import (
    benchmark,
    ensemble_gains,
    order_vs_value,
    retraining,
    semi_natural,
    semi_natural_road,
    spurious_edge,
    synthetic,
)
from twinlens.reproduction.experiment_page import write_page
from twinlens.reproduction.experiment_setup import refuse_options
from twinlens.reproduction.experiment_storage import StoredExperiment, find_stored, store
from twinlens.reproduction.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.support.progress import Progress

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Experiment",
    "ExperimentOptions",
    "Outcome",
    "StoredExperiment",
    "reproduce",
    "reproduce_all",
]

EXPERIMENTS: dict[str, Experiment] = {
    "synthetic": synthetic.EXPERIMENT,
    "retraining": retraining.EXPERIMENT,
    "spurious-edge": spurious_edge.EXPERIMENT,
    "semi-natural": semi_natural.EXPERIMENT,
    "semi-natural-road": semi_natural_road.EXPERIMENT,
    "order-vs-value": order_vs_value.EXPERIMENT,
    "ensembles": ensemble_gains.EXPERIMENT,
    "benchmark": benchmark.EXPERIMENT,
}
"""Every experiment by its name on the command line."""


def reproduce(name: str, options: ExperimentOptions, progress: Progress) -> StoredExperiment:
    """Do an experiment, and write its numbers, claims, figures and page; one that is there already is not done again.

    Args:
        name: a name in `EXPERIMENTS`.
        options: what to do it with.
        progress: receives the progress.

    Returns:
        What is in its directory.
    """
    if name not in EXPERIMENTS:
        raise unknown("name", name, EXPERIMENTS)
    stored = find_stored(name, options)
    if stored is None:
        options.out.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        outcome = EXPERIMENTS[name].run(options, progress)
        stored = store(name, EXPERIMENTS[name], options, outcome, time.perf_counter() - start)
    write_page([stored], options.out / "report.html")
    return stored


def reproduce_all(
    options: ExperimentOptions, progress: Progress
) -> tuple[list[StoredExperiment], Mapping[str, Exception]]:
    """Do every experiment in its small form, each in a directory of its own, and write one page about all of them.

    Args:
        options: where to write, the seed, and the device; the rest belongs to single experiments.
        progress: receives the progress; the names of tasks begin with the number and name of their experiment.

    Returns:
        What was found, and why experiments failed, by name.
    """
    unused = ["paper", "data", "classes", "model", "weights", "limit", "leave_out", "noise", "compile"]
    refuse_options(options, unused, "all of them run in their small form")
    found, failures = [], dict[str, Exception]()
    for place, name in enumerate(EXPERIMENTS, start=1):
        own = dataclasses.replace(options, out=options.out / name)
        try:
            found.append(reproduce(name, own, _Prefixed(progress, f"{place}/{len(EXPERIMENTS)} {name}: ")))
        except OSError:  # a full disk, and whatever else will hit the next one too
            raise
        except Exception as error:
            failures[name] = error
    write_page(found, options.out / "report.html", failures=failures)
    return found, failures


class _Prefixed:
    """Progress of one experiment of several: its tasks and warnings begin with its name."""

    def __init__(self, progress: Progress, prefix: str) -> None:
        self._progress, self._prefix = progress, prefix

    def begin(self, rows: Mapping[str, int], note: str = "") -> None:
        self._progress.begin({self._prefix + task: count for task, count in rows.items()}, note)

    def advance(self, task: str, rows: int, stage: str = "") -> None:
        self._progress.advance(self._prefix + task, rows, stage)

    def finished_on(self, node: str, rows: int) -> None:
        self._progress.finished_on(node, rows)

    def warn(self, message: str) -> None:
        self._progress.warn(self._prefix + message)
