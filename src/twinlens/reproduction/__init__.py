"""Reproduction: the paper's experiments, and the networks and data that they need."""

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
    synthetic,
)
from twinlens.reproduction.claims import Claim
from twinlens.reproduction.experiment import MAP_READINGS, Experiment, ExperimentOptions, Outcome, refuse_options
from twinlens.reproduction.experiment_page import build_page
from twinlens.reproduction.experiment_storage import StoredExperiment, find_stored, store
from twinlens.support.files import write_text
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
    "retraining": retraining.RETRAINING,
    "spurious-edge": retraining.SPURIOUS_EDGE,
    "semi-natural": semi_natural.EXPERIMENT,
    "semi-natural-road": semi_natural_road.EXPERIMENT,
    "order-vs-value": order_vs_value.EXPERIMENT,
    "ensembles": ensemble_gains.EXPERIMENT,
    "benchmark": benchmark.EXPERIMENT,
}
"""Every experiment by its name on the command line."""


def reproduce(name: str, options: ExperimentOptions, progress: Progress) -> StoredExperiment:
    """Run an experiment, and write its numbers, claims, figures and page; a complete one is not run again."""
    if name not in EXPERIMENTS:
        raise unknown("name", name, EXPERIMENTS)
    stored = find_stored(name, options)
    if stored is None:
        options.out.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        outcome = EXPERIMENTS[name].run(options, progress)
        stored = store(name, EXPERIMENTS[name], options, outcome, time.perf_counter() - start)
    write_text(options.out / "report.html", build_page([stored]))
    return stored


def reproduce_all(
    options: ExperimentOptions, progress: Progress
) -> tuple[list[StoredExperiment], Mapping[str, Exception]]:
    """Run a smoke run of every experiment, each in its own directory, and write one page about all of them.

    Returns:
        The complete experiments, and why others failed, by name.
    """
    unused = ["paper", "data", "classes", "model", "weights", "limit", "leave_out", "epochs", "compile", *MAP_READINGS]
    refuse_options(options, unused, "all of them run in their small form")
    complete, failures = [], dict[str, Exception]()
    for number, name in enumerate(EXPERIMENTS, start=1):
        progress.begin({}, f"{number}/{len(EXPERIMENTS)} {name}")
        try:
            complete.append(reproduce(name, dataclasses.replace(options, out=options.out / name), progress))
        except OSError:  # such as a full disk, which the next one would meet, too
            raise
        except Exception as error:
            failures[name] = error
    write_text(options.out / "report.html", build_page(complete, failures))
    return complete, failures
