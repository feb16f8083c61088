"""The commands report and compare."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator

from twinlens.cli.printing import print_differences, print_runs
from twinlens.errors import RunError, printable_line, short_repr
from twinlens.outcome import Evaluation, open_evaluation
from twinlens.report import format_table, write_figures, write_report
from twinlens.run.directory import tidy_run
from twinlens.run.run_comparison import compare_evaluations
from twinlens.run.stored_run import run_labels
from twinlens.statistics.contrasts import RunComparison
from twinlens.support.fields import JSON, to_json


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens report`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("--out", metavar="FILE", help="the page; report.html in the first run by default")
    parser.add_argument("--figures", metavar="DIR", help="write every chart as PDF, SVG and PNG instead")
    parser.add_argument("--table", choices=("latex", "markdown", "csv"), help="print the table for a paper instead")


def run_report(given: argparse.Namespace) -> None:
    """Write a page, figures, or a table."""
    evaluations = [open_evaluation(path) for path in given.runs]
    if given.table:
        for line in format_table(evaluations, given.table).splitlines():
            print(printable_line(line))
        found = [f"{evaluation.path}: {note}" for evaluation in evaluations for note in evaluation.notes]
        for note in map(printable_line, found):
            print(f"twinlens: warning: {note}", file=sys.stderr)
            if given.table == "latex":
                print(f"% {note}")  # so that a table in a file says so, too; CSV has no comments
            elif given.table == "markdown":
                print(f"\n{note}")
    elif given.figures:
        with writing_to(given.figures, "figures"):
            paths = write_figures(evaluations, given.figures)
        for path in paths:
            print(printable_line(str(path)))
    else:
        if not given.out:
            tidy_run(evaluations[0].path)
        with writing_to(given.out, "out"):
            page = write_report(evaluations, given.out or evaluations[0].path / "report.html")
        print(printable_line(str(page)))


@contextlib.contextmanager
def writing_to(path: str | None, option: str) -> Iterator[None]:
    """Name the option whose path cannot be written to."""
    try:
        yield
    except OSError as error:
        if path is None:
            raise
        raise RunError(f"`{option}` {short_repr(path)} cannot be written: {error.strerror or error}.") from error
    except ValueError as error:
        if path is None or not str(error).startswith(("`path`", "`directory`")):
            raise
        raise ValueError(f"`{option}` {str(error).partition('` ')[2]}") from None


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens compare`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("--out", metavar="FILE", default="comparison.html", help="the page (comparison.html)")
    parser.add_argument("--verdicts", action="store_true", help="print what each pair differs in, in words, too")
    parser.add_argument(
        "--resamples",
        type=int,
        metavar="N",
        default=1000,
        help="resamples behind differences between the runs (1000); 0 leaves these out",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_compare(given: argparse.Namespace) -> None:
    """Print the tables of several runs as one, and how the runs differ, and write their page."""
    evaluations = [open_evaluation(path) for path in given.runs]
    runs = dict(zip(run_labels(evaluations), evaluations, strict=True))
    several = len(runs) > 1 and given.resamples != 0
    comparison = compare_evaluations(runs, resamples=given.resamples) if several else None
    if given.json:
        found = {str(run.path): _overview(label, run, comparison) for label, run in runs.items()}
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    print_runs(evaluations, verdicts=given.verdicts)
    if comparison is not None:
        print_differences(comparison, evaluations, verdicts=given.verdicts)
    with writing_to(given.out, "out"):
        page = write_report(evaluations, given.out, comparison=comparison)
    print(printable_line(str(page)))


def _overview(label: str, run: Evaluation, comparison: RunComparison | None) -> dict[str, JSON]:
    """Return the numbers of a run, and those by which it differs from the runs behind it."""
    if comparison is None:
        return run.overview()
    pairs = [to_json(pair) for pair in comparison.pairs if pair.first == label]
    return {**run.overview(), "differences": pairs, "notes": to_json(comparison.notes)}
