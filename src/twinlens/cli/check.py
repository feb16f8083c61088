"""The command check: tests of the methods of a run, and of the measurement itself."""

from __future__ import annotations

import argparse
import json

from twinlens.checks import check_catalogue
from twinlens.checks.check_catalogue import CHECKS
from twinlens.checks.check_definition import CheckOptions
from twinlens.cli.flags import add_model, add_options, given_flags, names_of
from twinlens.cli.printing import new_table, open_console, plain, print_plain
from twinlens.errors import unknown
from twinlens.outcome import open_evaluation
from twinlens.run.check_records import Check
from twinlens.support.estimate import Estimate
from twinlens.support.fields import to_json
from twinlens.support.progress import Bars


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens check`."""
    parser.add_argument("name", metavar="NAME", help=", ".join(CHECKS))
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument("--methods", metavar="A,B,…", help="methods to check (default: all methods of the run)")
    add_model(parser)
    add_options(parser, CheckOptions)
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_argument("--json", action="store_true", help="print only the stored record, as JSON")


def run_check(arguments: argparse.Namespace) -> None:
    """Run a check, store its record in the run, and print its table."""
    if arguments.name not in CHECKS:
        raise unknown("name", arguments.name, CHECKS)
    options = CheckOptions(**given_flags(arguments, CheckOptions))  # type: ignore[arg-type] # checked by the dataclass
    evaluation = open_evaluation(arguments.run)
    with Bars(shown=not (arguments.quiet or arguments.json)) as progress:
        check = check_catalogue.run_check(
            evaluation,
            arguments.name,
            methods=tuple(names_of(arguments.methods)) if arguments.methods else None,
            options=options,
            model=arguments.model,
            allow_code=bool(arguments.allow_code),
            progress=progress,
        )
    if arguments.json:
        print(json.dumps(to_json(check), indent=1, ensure_ascii=False))
    elif not arguments.quiet:
        print_check(check)
        print_plain(open_console(), f"Stored in {evaluation.path}; `twinlens report {arguments.run}` shows it.")


def print_check(check: Check) -> None:
    """Print the results of a check: one line per row, such as a method, and one per step for a check with steps."""
    console = open_console()
    print_plain(console, f"{check.title}. {check.question} {check.samples} samples.")
    if check.line is not None:
        print_plain(console, check.line)
    table = new_table()
    table.add_column(plain(check.rows), no_wrap=True)
    for column in check.columns:
        table.add_column(plain(column.heading), justify="right", no_wrap=True)
    for name, result in check.methods.items():
        table.add_row(plain(name), *(plain(str(value)) for value in result.values))
    console.print(table)
    if check.steps:
        steps = new_table(plain(check.course_title or ""))
        steps.add_column(plain(check.step_title or "step"), no_wrap=True)
        for name in check.methods:
            steps.add_column(plain(name), justify="right")
        for k, step in enumerate(check.steps):
            steps.add_row(plain(step), *(_two_lines(result.course[k]) for result in check.methods.values()))
        console.print(steps)
    for text in (check.reading, *check.notes):
        print_plain(console, text)


def _two_lines(estimate: Estimate) -> str:
    """Format a number with its interval below it: narrow columns leave room for many methods."""
    number, _, interval = str(estimate).partition(" ")
    return plain(number) + (f"\n[dim]{plain(interval)}[/dim]" if interval else "")
