"""Every experiment of the paper, one file each."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

from twinlens.experiments import (
    benchmark,
    ensembles,
    order_vs_value,
    retraining,
    semi_natural,
    semi_natural_road,
    spurious_edge,
    synthetic,
)
from twinlens.experiments.outcome import Claim, Experiment, Options, Outcome, Tell
from twinlens.experiments.page import write_page
from twinlens.experiments.settings import refuse_options
from twinlens.experiments.stored import Stored, find_stored, store

__all__ = ["EXPERIMENTS", "Claim", "Experiment", "Options", "Outcome", "Stored", "reproduce", "reproduce_all"]

EXPERIMENTS: dict[str, Experiment] = {
    "synthetic": synthetic.EXPERIMENT,
    "retraining": retraining.EXPERIMENT,
    "spurious-edge": spurious_edge.EXPERIMENT,
    "semi-natural": semi_natural.EXPERIMENT,
    "semi-natural-road": semi_natural_road.EXPERIMENT,
    "order-vs-value": order_vs_value.EXPERIMENT,
    "ensembles": ensembles.EXPERIMENT,
    "benchmark": benchmark.EXPERIMENT,
}
"""Every experiment by its name on the command line."""


def reproduce(name: str, options: Options, tell: Tell) -> Stored:
    """Does an experiment and writes its numbers, claims, figures and page; one that is there already is not done again.

    Args:
        name: a name in `EXPERIMENTS`.
        options: what a person can choose.
        tell: is told how it goes.

    Returns:
        What is in its directory.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"`name` must be one of {', '.join(EXPERIMENTS)}; got {name!r}.")
    stored = find_stored(name, options)
    if stored is None:
        options.out.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        outcome = EXPERIMENTS[name].run(options, tell)
        stored = store(name, EXPERIMENTS[name], options, outcome, time.perf_counter() - start)
    write_page([stored], options.out / "report.html")
    return stored


def reproduce_all(options: Options, tell: Tell) -> tuple[list[Stored], Mapping[str, Exception]]:
    """Does every experiment in its small form, each in a directory of its own, and writes one page about them.

    Args:
        options: where to write, the seed, and the device; the rest belongs to single experiments.
        tell: is told how it goes.

    Returns:
        What was found, and why experiments failed, by name.
    """
    unused = ["paper", "data", "classes", "model", "weights", "limit"]
    refuse_options(options, unused, "all of them run in their small form")
    found, failures = [], dict[str, Exception]()
    for place, name in enumerate(EXPERIMENTS, start=1):

        def tell_all(what: str, done: int, total: int, head: str = f"{place}/{len(EXPERIMENTS)} {name}") -> None:
            tell(f"{head}: {what}", done, total)

        try:
            found.append(reproduce(name, dataclasses.replace(options, out=Path(options.out, name)), tell_all))
        except OSError:  # a full disk, and whatever else will hit the next one too
            raise
        except Exception as error:
            failures[name] = error
    write_page(found, Path(options.out, "report.html"), failures=failures)
    return found, failures
