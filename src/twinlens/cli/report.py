"""The commands report and compare."""

from __future__ import annotations

import argparse
import json
import sys

from twinlens.cli.printing import print_runs
from twinlens.errors import printable_line
from twinlens.report import format_table, write_figures, write_report
from twinlens.running.directory import tidy_run
from twinlens.running.run_reader import open_evaluation


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
        for path in write_figures(evaluations, given.figures):
            print(path)
    else:
        if not given.out:
            tidy_run(evaluations[0].path)
        print(write_report(evaluations, given.out or evaluations[0].path / "report.html"))


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens compare`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("--out", metavar="FILE", default="comparison.html", help="the page (comparison.html)")
    parser.add_argument("--verdicts", action="store_true", help="print what each pair of methods differs in, too")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_compare(given: argparse.Namespace) -> None:
    """Print the tables of several runs as one, and write their page."""
    evaluations = [open_evaluation(path) for path in given.runs]
    if given.json:
        print(json.dumps({str(e.path): e.overview() for e in evaluations}, indent=1, ensure_ascii=False))
        return
    print_runs(evaluations, verdicts=given.verdicts)
    print(write_report(evaluations, given.out))
