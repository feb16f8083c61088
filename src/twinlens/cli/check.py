"""The command check: a test of another paper, on the methods of a run."""

from __future__ import annotations

import argparse
import json

from rich import box
from rich.markup import escape
from rich.table import Table

from twinlens.checks import check_catalogue as checks
from twinlens.checks.check_catalogue import CHECKS
from twinlens.checks.check_setup import CheckOptions
from twinlens.cli.flags import add_options, given_flags, names_of
from twinlens.cli.printing import open_console, print_plain
from twinlens.errors import printable_line, unknown
from twinlens.options import SubjectOptions
from twinlens.run.check_records import Check
from twinlens.run.run_reader import open_evaluation
from twinlens.support.estimate import Estimate
from twinlens.support.fields import to_json
from twinlens.support.progress import Bars


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens check`."""
    parser.add_argument("name", metavar="NAME", help=", ".join(CHECKS))
    parser.add_argument("run", metavar="RUN", help="a run directory")
    parser.add_argument("--methods", metavar="A,B,…", help="methods of the run; all by default")
    parser.add_argument(
        "--model",
        metavar="SPEC",
        help="the run's model, if it is code (FILE.py:FUNCTION or FILE.pt2): code that a run names is not loaded",
    )
    add_options(parser, SubjectOptions, ["allow_code"])
    add_options(parser, CheckOptions)
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print the stored record as JSON and nothing else")


def run_check(given: argparse.Namespace) -> None:
    """Make a check, store it in its run, and print its table."""
    if given.name not in CHECKS:
        raise unknown("name", given.name, CHECKS)
    options = CheckOptions(**given_flags(given, CheckOptions))  # type: ignore[arg-type] # checked by the dataclass
    evaluation = open_evaluation(given.run)
    with Bars(shown=not (given.quiet or given.json)) as progress:
        check = checks.run_check(
            evaluation,
            given.name,
            methods=tuple(names_of(given.methods)) if given.methods else None,
            options=options,
            model=given.model,
            allow_code=bool(given.allow_code),
            progress=progress,
        )
    if given.json:
        print(json.dumps(to_json(check), indent=1, ensure_ascii=False))
    elif not given.quiet:
        print_check(check)
        print_plain(open_console(), f"Stored in {evaluation.path}; `twinlens report {given.run}` shows it.")


def print_check(check: Check) -> None:
    """Print what a check found, with a table of its steps where there are some."""
    console = open_console()
    print_plain(console, f"{check.title}. {check.question} {check.samples} samples.")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for heading in ("method", *(column.heading for column in check.columns)):
        table.add_column(_plain(heading), justify="left" if heading == "method" else "right", no_wrap=True)
    for name, found in check.methods.items():
        table.add_row(_plain(name), *(_plain(str(value)) for value in found.values))
    console.print(table)
    if check.steps:
        _print_course(check)
    for text in (check.reading, *check.notes):
        print_plain(console, text)


def _print_course(check: Check) -> None:
    """Print the value of each method at each step, a step a row."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, title=_plain(check.course_title or ""))
    table.add_column(_plain(check.step_title or "step"))
    for name in check.methods:
        table.add_column(_plain(name), justify="right", no_wrap=True)
    for k, step in enumerate(check.steps):
        table.add_row(_plain(step), *(_in_two_lines(found.course[k]) for found in check.methods.values()))
    open_console().print(table)


def _in_two_lines(found: Estimate) -> str:
    """Format a number with its interval below, so that many methods find room beside each other."""
    number, _, between = str(found).partition(" ")
    return _plain(number) + (f"\n[dim]{_plain(between)}[/dim]" if between else "")


def _plain(text: str) -> str:
    return escape(printable_line(text))
