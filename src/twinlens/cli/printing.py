"""Terminal output of the commands: tables, headlines and notes."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twinlens.errors import printable_line
from twinlens.laboratory.mixing import describe_selftest
from twinlens.outcome import Evaluation
from twinlens.report.results_table import (
    UNDEFINED,
    Cell,
    ResultsTable,
    describe_columns,
    describe_options,
    describe_settings,
    differences_table,
    results_table,
    without_zeros,
)
from twinlens.run.stored_run import run_labels
from twinlens.run.wording import describe_stopping, group_warnings, split_headlines
from twinlens.statistics.contrasts import RunComparison

_COLOURS = {"better": "green", "worse": "red"}
_MOST_COLUMNS = 8  # columns of numbers in a table


class _PipedConsole(Console):
    """Reports a reader that is gone, such as `head`, as an error; rich exits."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def open_console() -> Console:
    """Return the console, with a fixed width for files and pipes."""
    console = _PipedConsole()
    return console if console.is_terminal else _PipedConsole(width=120)


def new_table(title: str | None = None, space: int = 1) -> Table:
    """Return an empty table in the style of all commands."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, space), pad_edge=False, title=title)


def print_plain(console: Console, text: str) -> None:
    """Print text without markup and line breaks."""
    console.print(printable_line(text), markup=False, highlight=False, soft_wrap=True)


def print_evaluation(evaluation: Evaluation, where: str | None = None) -> None:
    """Print the table of a run, its headlines, its warnings, and where it is stored."""
    console, results = open_console(), evaluation.results
    skipped = results.data.skipped
    print_plain(console, evaluation.title)
    if results.stopping:
        print_plain(console, describe_stopping(results.stopping))
    if skipped:
        print_plain(console, f"Skipped: {len(skipped)} samples; the first: {skipped[0].reason}")
    if evaluation.metrics:
        _print_results(console, [evaluation])
    advised, others = split_headlines(results)
    for sentence in advised:
        print_plain(console, f"• {sentence}")
    notes = [*([" ".join(others)] if others else []), *(group.summary for group in group_warnings(results))]
    for note in [*evaluation.notes, *notes]:
        print_plain(console, f"Note: {note}")
    page = evaluation.path / "report.html"
    print_plain(console, where or (f"Page: {page}" if page.exists() else f"All files are in {evaluation.path}"))


def print_runs(evaluations: Sequence[Evaluation], *, verdicts: bool = False) -> None:
    """Print the tables of several runs as one, and on request a sentence about each pair of methods."""
    console = open_console()
    _print_results(console, evaluations)
    for evaluation in evaluations:
        for note in evaluation.notes:
            print_plain(console, f"Note: {evaluation.path}: {note}")
        compared = evaluation.comparison() if verdicts else None
        for verdict in compared.verdicts if compared else ():
            print_plain(console, f"  {evaluation.path}: {verdict}")


def print_differences(comparison: RunComparison, evaluations: Sequence[Evaluation], *, verdicts: bool = False) -> None:
    """Print the differences of each method between several runs, with notes."""
    console = open_console()
    table = differences_table(comparison.pairs, [evaluation.results for evaluation in evaluations])
    if table.rows:
        _print_table(console, table, groups=True, times=False, elsewhere="are on the page")
        legend = (
            "Differences between the runs, the first minus the second; below, 95% intervals that hold simultaneously "
            "for all methods; bold: significant."
        )
        console.print(legend, style="dim", markup=False)
    for note in comparison.notes:
        print_plain(console, f"Note: {note}")
    for verdict in comparison.verdicts if verdicts else ():
        print_plain(console, f"  {verdict}")


def _print_results(console: Console, evaluations: Sequence[Evaluation]) -> None:
    """Print the table of one or several runs, with what its columns mean and how they were measured."""
    table = results_table(evaluations, run_labels(evaluations))
    runs = " ".join(shlex.quote(str(evaluation.path)) for evaluation in evaluations)
    command = f"are shown by: twinlens report {runs} --table markdown --columns all"
    shown = _print_table(console, table, groups=len(evaluations) > 1, times=True, elsewhere=command)
    lines = [describe_columns(shown)]
    for run in evaluations:
        start = f"{run.path}: {run.title}. " if len(evaluations) > 1 else ""
        lines += [start + describe_settings(run, shown), describe_options(run)]
    for line in filter(None, lines):
        console.print(printable_line(line), style="dim", markup=False, highlight=False)


def _print_table(console: Console, results: ResultsTable, *, groups: bool, times: bool, elsewhere: str) -> ResultsTable:
    """Print the first columns, as many as fit, say where the others are, and return what was printed."""
    columns, wide = min(_MOST_COLUMNS, len(results.columns) + times), console.options.update(width=10_000)
    table = _layout(results, columns, groups=groups)
    while columns > 2 and console.measure(table, options=wide).maximum > console.width:
        columns -= 1
        table = _layout(results, columns, groups=groups)
    console.print(table)
    if hidden := [column.name for column in results.columns[columns:]]:
        print_plain(console, f"More columns ({', '.join(hidden)}) {elsewhere}")
    return results.select([column.key for column in results.columns[:columns]])


def _layout(results: ResultsTable, columns: int, *, groups: bool) -> Table:
    """Lay out the first columns for the terminal, with a heading for each group of rows; time is the last column."""
    table = new_table(space=0)
    table.add_column("method", no_wrap=True)
    for heading in [*(column.heading for column in results.columns), "time"][:columns]:
        table.add_column(plain(heading), justify="right", no_wrap=True)
    for group, rows in groupby(results.rows, key=lambda row: row.group):
        if groups:
            table.add_section()
            table.add_row(f"[bold]{plain(group)}[/bold]")
        for row in rows:
            cells = [*map(_cell, row.cells), f"{row.seconds or 0.0:.1f} s"][:columns]
            table.add_row(plain(row.method), *cells, style="dim" if row.baseline else "")
    return table


def plain(name: str) -> str:
    """Return a name without markup and control characters; headings may have several lines."""
    return escape("\n".join(map(printable_line, name.split("\n"))))


def _cell(cell: Cell) -> str:
    """Format a number with its interval below."""
    if not cell.measured:
        return UNDEFINED
    style, text = "bold" if cell.bold else _COLOURS.get(cell.direction or "", ""), cell.text()
    ends = without_zeros("–".join(f"{end:z.2f}" for end in cell.ends or ()))
    return (f"[{style}]{text}[/]" if style else text) + (f"\n[dim]{ends}[/dim]" if ends else "")


def print_selftest(result: pd.DataFrame, samples: int) -> None:
    """Print what each metric says of mixtures of own and exchanged maps, and a verdict on each metric."""
    console, shares = open_console(), [name for name in result.columns if str(name).startswith("share ")]
    print_plain(console, f"{samples} samples; below, the share of exchanged maps in the mixture")
    table = new_table(space=0)
    table.add_column("metric")
    table.add_column("method")
    for heading in (*(str(name)[6:] for name in shares), "Spearman", "off the line", "blurred"):
        table.add_column(heading, justify="right")
    for metric, rows in result.groupby("metric", sort=False):
        table.add_section()
        for index, row in enumerate(rows.to_dict("records")):
            numbers = [f"{row[name]:.3f}" for name in (*shares, "correlation")]
            table.add_row(
                plain(str(metric)) if index == 0 else "",
                plain(row["method"]),
                *numbers,
                *(_with_ends(row, name) for name in ("departure", "blurred")),
            )
    console.print(table)
    legend = (
        "Spearman: 1 if the value worsens steadily as exchanged maps are mixed in. Off the line: the value farthest "
        "from the straight line between both ends, on which true soundness lies; other metrics need not follow it. "
        "Blurred: how much better a blurred copy scores than the map. 95% intervals."
    )
    console.print(legend, style="dim", markup=False)
    for sentence in describe_selftest(result).values():
        print_plain(console, f"• {sentence}")


def _with_ends(row: Mapping[Hashable, float], name: str) -> str:
    value, high = row[name], row[f"{name}_high"]
    return UNDEFINED if np.isnan(value) else f"{value:+z.3f}" + ("" if np.isnan(high) else f" ± {high - value:.3f}")
