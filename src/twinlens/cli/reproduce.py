"""The command reproduce: an experiment of the paper, or all of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from twinlens.cli.flags import add_options, given_flags
from twinlens.cli.printing import open_console, print_plain
from twinlens.errors import RunError, unknown
from twinlens.reproduction import EXPERIMENTS, ExperimentOptions, StoredExperiment, reproduce, reproduce_all
from twinlens.reproduction.outcome import Verdict, count_verdicts
from twinlens.support.progress import Bars


def add_reproduce(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens reproduce`."""
    parser.add_argument("name", metavar="NAME", help=f"{', '.join(EXPERIMENTS)}, or all")
    add_options(parser, ExperimentOptions)
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print the claims as JSON and nothing else")


def run_reproduce(given: argparse.Namespace) -> None:
    """Do an experiment, or all of them, and print the claims."""
    everything = given.name == "all"
    if not everything and given.name not in EXPERIMENTS:
        raise unknown("name", given.name, [*EXPERIMENTS, "all"])
    flags = {"out": f"twinlens-reproduce-{given.name}"} | given_flags(given, ExperimentOptions)
    options = ExperimentOptions(**flags)  # type: ignore[arg-type] # checked by the dataclass, option by option
    failures: Mapping[str, Exception] = {}
    with Bars(shown=not (given.quiet or given.json)) as progress:
        if everything:
            found, failures = reproduce_all(options, progress)
        else:
            found = [reproduce(given.name, options, progress)]
    if given.json:
        print(json.dumps([experiment.overview() for experiment in found], indent=1, ensure_ascii=False))
    elif not given.quiet:
        print_experiments(found, options.out / "report.html")
    if failures:
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        raise RunError(f"{len(failures)} of {len(EXPERIMENTS)} experiments failed. {reasons} The others are kept.")


_VERDICTS: dict[Verdict, str] = {
    "holds": "[bold]holds[/bold]",
    "does not hold": "[bold red]does not[/bold red]",
    "open": "open",
    "by construction": "by construction",
}


def print_experiments(experiments: Sequence[StoredExperiment], page: Path) -> None:
    """Print the claims of experiments, each with what was measured."""
    console = open_console()
    for experiment in experiments:
        took = "" if experiment.seconds is None else f" ({experiment.seconds:.0f} s)"
        print_plain(console, f"{experiment.name}: {experiment.title}{took}")
        if experiment.smoke:
            print_plain(console, f"A smoke run: {experiment.smoke}. What it cannot decide is open.")
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for heading in ("claim", "here", "measured", "in the paper"):
            table.add_column(heading, ratio={"here": 2, "in the paper": 3}.get(heading, 6))
        for claim in experiment.claims:
            why = f" ({claim.reason})" if claim.reason else ""
            source = f"our own, on {claim.source}" if claim.ours else claim.source
            table.add_row(escape(claim.text), _VERDICTS[claim.verdict], escape(claim.measured + why), escape(source))
        console.print(table)
    claims = [claim for experiment in experiments for claim in experiment.claims]
    paper, ours = (count_verdicts(claim for claim in claims if claim.ours is own) for own in (False, True))
    print_plain(console, f"The paper's claims: {paper}. Our own: {ours}. {page}")
