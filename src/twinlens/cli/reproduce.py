"""The command `reproduce`: runs an experiment of the paper, or all of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.markup import escape
from rich.text import Text

from twinlens.cli.flags import add_options, given_flags
from twinlens.cli.printing import new_table, open_console, print_plain
from twinlens.errors import RunError, unknown
from twinlens.reproduction import EXPERIMENTS, ExperimentOptions, StoredExperiment, reproduce, reproduce_all
from twinlens.reproduction.claims import count_verdicts, group_statements, statement_verdict
from twinlens.support.fields import to_json
from twinlens.support.progress import Bars

_STYLES = {"holds": "bold", "does not hold": "bold red"}


def add_reproduce(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens reproduce`."""
    parser.add_argument("name", metavar="NAME", help=f"{', '.join(EXPERIMENTS)}, or all")
    add_options(parser, ExperimentOptions)
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print experiments and claims as JSON and nothing else")


def run_reproduce(arguments: argparse.Namespace) -> None:
    """Run an experiment, or all of them, and print the claims."""
    name = arguments.name
    if name != "all" and name not in EXPERIMENTS:
        raise unknown("name", name, [*EXPERIMENTS, "all"])
    flags = {"out": f"twinlens-reproduce-{name}"} | given_flags(arguments, ExperimentOptions)
    options = ExperimentOptions(**flags)  # type: ignore[arg-type] # checked by the dataclass, option by option
    failures: Mapping[str, Exception] = {}
    with Bars(shown=not (arguments.quiet or arguments.json)) as progress:
        if name == "all":
            complete, failures = reproduce_all(options, progress)
        else:
            complete = [reproduce(name, options, progress)]
    if arguments.json:
        print(json.dumps(to_json(complete), indent=1, ensure_ascii=False))
    elif not arguments.quiet:
        print_experiments(complete, options.out / "report.html")
    if failures:
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        raise RunError(f"{len(failures)} of {len(EXPERIMENTS)} experiments failed. {reasons} The others are complete.")


def print_experiments(experiments: Sequence[StoredExperiment], page: Path) -> None:
    """Print the claims of experiments, each with what was measured."""
    console = open_console()
    for experiment in experiments:
        print_plain(console, f"{experiment.name}: {experiment.title} ({experiment.seconds:.0f} s)")
        if experiment.smoke:
            print_plain(console, f"A smoke run: {experiment.smoke}. Claims it cannot decide are open.")
        table = new_table()
        for heading in ("claim", "here", "measured", "in the paper"):
            table.add_column(heading, ratio={"here": 2, "in the paper": 3}.get(heading, 6))
        for ours in (False, True):
            for text, readings in group_statements(experiment.claims, ours=ours).items():
                if len(readings) > 1:
                    verdict = statement_verdict(readings)
                    table.add_row(escape(text), Text(verdict, style=_STYLES.get(verdict, "")), "", "")
                for claim in readings:
                    reason = f" ({claim.reason})" if claim.reason else ""
                    source = f"our own, on {claim.source}" if claim.ours else claim.source
                    shown = f"– {claim.reading}" if len(readings) > 1 else claim.words
                    verdict_text = Text(claim.verdict, style=_STYLES.get(claim.verdict, ""))
                    table.add_row(escape(shown), verdict_text, escape(claim.measured + reason), escape(source))
        console.print(table)
    claims = [
        replace(claim, text=f"{experiment.name}: {claim.text}")
        for experiment in experiments
        for claim in experiment.claims
    ]
    paper, own = (count_verdicts(claims, ours=ours) for ours in (False, True))
    print_plain(console, f"The paper's statements: {paper}. Our own: {own}. {page}")
