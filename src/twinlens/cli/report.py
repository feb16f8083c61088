"""The commands report and compare."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from twinlens.cli.flags import names_of, read_toml
from twinlens.cli.printing import print_differences, print_runs
from twinlens.errors import RunError, printable_line, short_repr
from twinlens.outcome import Evaluation, open_evaluation
from twinlens.report import format_table, write_false_features, write_figures, write_report
from twinlens.report.false_features import file_names
from twinlens.report.table_formats import KINDS, Intervals
from twinlens.run.directory import RunDirectory
from twinlens.run.run_comparison import compare_evaluations
from twinlens.run.stored_run import run_labels
from twinlens.support.fields import convert, to_json


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
    parser.add_argument("--table", choices=KINDS, help="print the table for a paper instead")
    parser.add_argument(
        "--columns",
        metavar="A,B,…",
        help="columns of the table: headline (default), all (default of csv), or names such as soundness_rank",
    )
    parser.add_argument("--digits", type=int, metavar="N", help="digits after the decimal point (default: 2)")
    parser.add_argument(
        "--intervals",
        choices=get_args(Intervals),
        help="where the table has intervals (default: below in latex, inline in markdown)",
    )
    parser.add_argument(
        "--names",
        action="append",
        metavar="NAME=TITLE|FILE",
        help='title of a method in the table, or a TOML file of lines NAME = "TITLE"; repeatable',
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results",
        metavar="NAME",
        help="results of a query that `twinlens ask` stored in each run, or its file (default: the run's own results)",
    )


def run_report(arguments: argparse.Namespace) -> None:
    """Write a page, figures, or a table."""
    evaluations = [open_evaluation(path, results=arguments.results) for path in arguments.runs]
    if not arguments.table:
        for name in ("columns", "digits", "intervals", "names"):
            if getattr(arguments, name) is not None:
                raise ValueError(f"`{name}` is an option of tables: add --table {'|'.join(KINDS)}.")
    if arguments.table:
        _print_table(evaluations, arguments)
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


def _print_table(evaluations: Sequence[Evaluation], arguments: argparse.Namespace) -> None:
    """Print the table; notes go to stderr and, as comments, into LaTeX and Markdown."""
    kind, columns = arguments.table, arguments.columns
    text = format_table(
        evaluations,
        kind,
        columns=None if columns is None else names_of(columns),
        digits=arguments.digits,
        intervals=arguments.intervals,
        names=_read_names(arguments.names or ()),
    )
    for line in text.splitlines():
        print(printable_line(line))
    for note in (printable_line(f"{run.path}: {note}") for run in evaluations for note in run.notes):
        print(f"twinlens: warning: {note}", file=sys.stderr)
        if kind != "csv":
            print(f"% {note}" if kind == "latex" else f"\n{note}")


def _read_names(texts: Sequence[str]) -> dict[str, str]:
    """Return titles of methods; each text is NAME=TITLE or the path of a TOML file."""
    names: dict[str, str] = {}
    for text in texts:
        name, equals, title = text.partition("=")
        if bool(name and title) != bool(equals) or not (equals or Path(text).is_file()):
            raise ValueError(f"`names` must be NAME=TITLE or the path of a TOML file; got {short_repr(text)}.")
        names |= {name: title} if equals else convert(read_toml(text), Mapping[str, str], "names")
    return names


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
