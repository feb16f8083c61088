"""What a person sees in the terminal at the end of a command: tables, claims and notes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twinlens.errors import printable_line
from twinlens.outcome import Evaluation
from twinlens.run.check_records import CheckValue
from twinlens.run.results import Results
from twinlens.run.side_columns import join_columns, side_columns
from twinlens.run.wording import describe_stopping, find_headlines, group_warnings, name_of, performance_of
from twinlens.statistics.contrasts import RunComparison, RunPair


def open_console() -> Console:
    """Return the console; a file or a pipe is wide enough for any table."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def print_plain(console: Console, text: str) -> None:
    """Print text as it is: brackets in names are no markup, and a path is not broken in two."""
    console.print(printable_line(text), markup=False, highlight=False, soft_wrap=True)


def print_evaluation(evaluation: Evaluation) -> None:
    """Print the table of a run."""
    console, skipped = open_console(), evaluation.results.data.skipped
    print_plain(console, evaluation.title)
    if evaluation.results.stopping:
        print_plain(console, describe_stopping(evaluation.results.stopping))
    if skipped:
        print_plain(console, f"Left out: {len(skipped)} samples; the first: {skipped[0].reason}")
    if evaluation.metrics:
        console.print(_table([evaluation]))
        console.print(printable_line(_legend(evaluation)), style="dim", markup=False)
    for note in evaluation.notes:
        print_plain(console, f"Note: {note}")
    _print_findings(console, evaluation)
    print_plain(console, f"Everything is in {evaluation.path}")


def print_warnings(evaluation: Evaluation) -> None:
    """Print what there is to say about a run that has no results yet."""
    for warning in evaluation.results.warnings:
        print_plain(open_console(), warning)


def _print_findings(console: Console, evaluation: Evaluation) -> None:
    """Print which explanation to trust, and of each kind of warning the first."""
    for sentence in find_headlines(evaluation.results):
        print_plain(console, f"• {sentence}")
    for alike in group_warnings(evaluation.results.warnings, evaluation.methods):
        more = f" ({len(alike) - 1} more alike, see results.json)" if len(alike) > 1 else ""
        print_plain(console, f"Note: {alike[0]}{more}")


def print_runs(evaluations: Sequence[Evaluation], *, verdicts: bool = False) -> None:
    """Print the tables of several runs as one, and if wanted what each pair of methods differs in."""
    console = open_console()
    console.print(_table(evaluations))
    for evaluation in evaluations:
        print_plain(console, f"{evaluation.path}: {_legend(evaluation)}")
        for note in evaluation.notes:
            print_plain(console, f"  Note: {note}")
        compared = evaluation.comparison() if verdicts else None
        for verdict in compared.verdicts if compared else ():
            print_plain(console, f"  {verdict}")


def print_differences(comparison: RunComparison, evaluations: Sequence[Evaluation], *, verdicts: bool = False) -> None:
    """Print how the methods of several runs differ between the runs, and what a reader has to know of it."""
    console = open_console()
    sides = {name for e in evaluations for name in e.results.sides}  # beside which the table has room for skill
    shown = [p for p in comparison.pairs if p.quantity == "area" or p.metric in sides]
    pairs = {(p.first, p.second, p.method, p.metric, p.quantity): p for p in shown}
    if pairs:
        about = {name: e.results.about(name) for e in reversed(evaluations) for name in e.metrics}
        columns = list(dict.fromkeys(key[3:] for key in pairs))
        table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
        table.add_column("method", no_wrap=True)
        for metric, quantity in columns:
            heading = f"{_plain(about[metric].heading)} {about[metric].arrow}" if quantity == "area" else "skill ↑"
            table.add_column(heading, justify="right", no_wrap=True)
        for first, second in dict.fromkeys(key[:2] for key in pairs):
            table.add_section()
            table.add_row(f"[bold]{_plain(first)} − {_plain(second)}[/bold]")
            for method in dict.fromkeys(key[2] for key in pairs if key[:2] == (first, second)):
                cells = [_difference(pairs.get((first, second, method, *column))) for column in columns]
                table.add_row(_plain(method), *cells)
        console.print(table)
        legend = (
            "Differences between the runs, the first minus the second; below, 95% intervals that hold for all methods "
            "at once; bold: beyond doubt."
        )
        console.print(legend, style="dim", markup=False)
    for note in comparison.notes:
        print_plain(console, f"Note: {note}")
    for verdict in comparison.verdicts if verdicts else ():
        print_plain(console, f"  {verdict}")


def _difference(pair: RunPair | None) -> str:
    if pair is None or math.isnan(pair.difference):
        return "–"
    ends = None if math.isnan(pair.low) else (pair.low, pair.high)
    return _number(pair.difference, ends, "bold" if pair.decided else "", sign="+")


def _table(evaluations: Sequence[Evaluation]) -> Table:
    metrics = {name: e.results.about(name) for e in reversed(evaluations) for name in e.metrics}
    ordered = list(dict.fromkeys(name for e in evaluations for name in e.metrics))
    # Both sides have their skill beside them; a table with that of all metrics would be too wide for a terminal.
    sides = {
        name for e in evaluations for name in e.results.sides if any(e.results.control(m, name) for m in e.methods)
    }
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in ordered:
        table.add_column(f"{_plain(metrics[name].heading)} {metrics[name].arrow}", justify="right", no_wrap=True)
        if name in sides:
            table.add_column("skill ↑", justify="right", no_wrap=True)
    each_beside = [side_columns(evaluation) for evaluation in evaluations]
    beside = join_columns(each_beside)
    for column in beside:
        table.add_column(_plain(column.heading), justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for evaluation, own in zip(evaluations, each_beside, strict=True):
        known = {column.name: column.values for column in own}
        if len(evaluations) > 1:
            table.add_section()
            table.add_row(f"[bold]{_plain(evaluation.path.name)}[/bold]")
        seconds = evaluation.seconds()
        for method in evaluation.results.best_first():
            cells = [cell for name in ordered for cell in _cells(evaluation.results, method, name, name in sides)]
            cells += [_side(known.get(column.name, {}).get(method)) for column in beside]
            style = "dim" if evaluation.results.methods[method].control else ""
            table.add_row(_plain(method), *cells, f"{seconds.get(method, 0.0):.1f} s", style=style)
    return table


def _plain(name: str) -> str:
    """Return a name without meaning for a terminal, and without markup; headings may have two lines."""
    return escape("\n".join(map(printable_line, name.split("\n"))))


def _cells(results: Results, method: str, metric: str, with_skill: bool) -> list[str]:
    """Format the area of a curve, the best one in bold, and its skill, each with its interval below."""
    curve = results.methods[method].metrics.get(metric)
    if curve is None:
        return ["–", "–"] if with_skill else ["–"]
    cells = [_number(curve.area, curve.area_interval, "bold" if method == results.best(metric) else "")]
    if with_skill:
        control = curve.control
        ends = None if control is None or control.low is None or control.high is None else (control.low, control.high)
        style = {True: "green", False: "red", None: ""}[results.knows(method, metric)]
        cells.append(_number(control.skill if control else None, ends, style, sign="+"))
    return cells


def _side(found: CheckValue | None) -> str:
    ends = None if found is None or found.low is None or found.high is None else (found.low, found.high)
    return _number(found.value if found else None, ends, "")


def _number(value: float | None, ends: tuple[float, float] | None, style: str, sign: str = "") -> str:
    if value is None:
        return "–"
    number = f"{value:{sign}z.3f}"
    between = "–".join(f"{end:z.2f}".replace("0.", ".", 1) for end in ends or ())
    return (f"[{style}]{number}[/]" if style else number) + (f"\n[dim]{between}[/dim]" if between else "")


def _legend(evaluation: Evaluation) -> str:
    results = evaluation.results
    ends = "".join(
        f" {name_of(results, name)} up to {performance_of(results, name)} {high:.2f};"
        for name, high in results.soundness_up_to.items()
    )
    text = f"Areas under the curves:{ends} ↑ more is better, ↓ less is better; below, 95% intervals."
    if any(results.control(method, metric) for method in results.methods for metric in results.sides):
        text += " Skill: how much better than maps exchanged between the samples; at 0, a method knows nothing."
    if any(found.properties for found in results.methods.values()):
        text += " Sparseness: near 1 where few features have all attribution; neither more nor less is better."
    return text


def print_selftest(result: pd.DataFrame, method: str, samples: int) -> None:
    """Print how well each metric ranks ever worse versions of a method's maps."""
    console = open_console()
    print_plain(console, f"{method} on {samples} samples, a growing share of each map replaced by noise")
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("metric")
    for name in result.columns[1:]:
        table.add_column(str(name).replace("share ", "").replace("correlation", "Spearman"), justify="right")
    for row in result.itertuples(index=False):
        table.add_row(escape(str(row[0])), *(f"{value:.3f}" for value in row[1:]))
    console.print(table)
    print_plain(
        console, "Spearman: 1 ranks them as the truth does, -1 upside down. Right of it, the area at each share."
    )
