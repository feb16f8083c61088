"""The commands report and compare."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from twinlens.cli.printing import print_differences, print_runs
from twinlens.errors import RunError, printable_line, short_repr
from twinlens.outcome import Evaluation, open_evaluation
from twinlens.report import format_table, write_false_features, write_figures, write_report
from twinlens.report.false_features import file_names
from twinlens.run.directory import RunDirectory
from twinlens.run.run_comparison import compare_evaluations
from twinlens.run.stored_run import run_labels
from twinlens.support.fields import to_json


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens report`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    _add_results(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="output page (default: report.html in the first run; report-NAME.html for a query)",
    )
    parser.add_argument("--figures", metavar="DIR", help="write every chart as PDF, SVG and PNG instead")
    parser.add_argument(
        "--false-features",
        metavar="DIR",
        help="write a PNG per sample and method of what soundness judged false instead",
    )
    parser.add_argument("--table", choices=("latex", "markdown", "csv"), help="print the table for a paper instead")


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results",
        metavar="NAME",
        help="results of a query that `twinlens ask` stored in each run, or its file (default: the run's own results)",
    )


def run_report(arguments: argparse.Namespace) -> None:
    """Write a page, figures, or a table."""
    evaluations = [open_evaluation(path, results=arguments.results) for path in arguments.runs]
    if arguments.table:
        _print_table(evaluations, arguments.table)
    elif arguments.figures:
        with writing_to(arguments.figures, "figures"):
            paths = write_figures(evaluations, arguments.figures)
        for path in paths:
            print(printable_line(str(path)))
    elif arguments.false_features:
        _write_false_features(evaluations, arguments.false_features)
    else:
        if not arguments.out:
            with contextlib.suppress(RunError), RunDirectory(evaluations[0].path):
                pass  # removes what killed processes left, unless the run is in use
        with writing_to(arguments.out, "out"):
            page = write_report(evaluations, arguments.out or _page_of(evaluations[0]))
        print(printable_line(str(page)))


def _page_of(evaluation: Evaluation) -> Path:
    """Return the page of a run, or of a query."""
    name = "report.html" if evaluation.query is None else f"report-{evaluation.query}.html"
    return evaluation.path / name


def _write_false_features(evaluations: Sequence[Evaluation], directory: str) -> None:
    """Write pictures of false attribution; those of several runs into a folder for each."""
    names = file_names(run_labels(evaluations))
    for run, name in zip(evaluations, names, strict=True):
        folder = directory if len(evaluations) == 1 else os.path.join(directory, name)
        with writing_to(folder, "false_features"):
            try:
                count = len(write_false_features(run, folder))
            except ValueError as error:
                if not str(error).startswith("`evaluation`"):
                    raise
                raise ValueError(str(error).replace("`evaluation`", f"`false_features`: {run.path}", 1)) from None
        print(printable_line(f"{count} pictures in {folder}"))


def _print_table(evaluations: Sequence[Evaluation], kind: str) -> None:
    """Print the table; notes go to stderr and, as comments, into LaTeX and Markdown."""
    for line in format_table(evaluations, kind).splitlines():
        print(printable_line(line))
    for note in (printable_line(f"{run.path}: {note}") for run in evaluations for note in run.notes):
        print(f"twinlens: warning: {note}", file=sys.stderr)
        if kind != "csv":
            print(f"% {note}" if kind == "latex" else f"\n{note}")


@contextlib.contextmanager
def writing_to(path: str | None, option: str) -> Iterator[None]:
    """Name the option in errors about a path that cannot be written."""
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
    _add_results(parser)
    parser.add_argument("--out", metavar="FILE", default="comparison.html", help="output page (default: %(default)s)")
    parser.add_argument("--verdicts", action="store_true", help="also print each comparison as a sentence")
    parser.add_argument(
        "--resamples",
        type=int,
        metavar="N",
        default=1000,
        help="resamples for differences between the runs (default: %(default)s); 0 leaves them out",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_compare(arguments: argparse.Namespace) -> None:
    """Print the tables of several runs as one and the differences between the runs, and write their page."""
    evaluations = [open_evaluation(path, results=arguments.results) for path in arguments.runs]
    runs = dict(zip(run_labels(evaluations), evaluations, strict=True))
    several = len(runs) > 1 and arguments.resamples != 0
    comparison = compare_evaluations(runs, resamples=arguments.resamples) if several else None
    if arguments.json:
        content = {str(run.path): run.overview() for run in evaluations}
        if comparison is not None:
            for label, run in runs.items():
                pairs = [to_json(pair.row()) for pair in comparison.pairs if pair.first == label]  # with later runs
                content[str(run.path)] |= {"differences": pairs, "notes": to_json(comparison.notes)}
        print(json.dumps(content, indent=1, ensure_ascii=False))
        return
    print_runs(evaluations, verdicts=arguments.verdicts)
    if comparison is not None:
        print_differences(comparison, evaluations, verdicts=arguments.verdicts)
    with writing_to(arguments.out, "out"):
        page = write_report(evaluations, arguments.out, comparison=comparison)
    print(printable_line(str(page)))
