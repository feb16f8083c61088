"""What a person sees in the terminal at the end of a command: tables, claims and notes."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twinlens.errors import printable_line
from twinlens.running.results import CurveResults
from twinlens.running.run_reader import Evaluation


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
    if skipped:
        print_plain(console, f"Left out: {len(skipped)} samples; the first: {skipped[0].reason}")
    if evaluation.metrics:
        console.print(_table([evaluation]))
        console.print(printable_line(_legend(evaluation)), style="dim", markup=False)
    for note in evaluation.notes:
        print_plain(console, f"Note: {note}")
    _print_findings(console, evaluation)
    print_plain(console, f"Everything is in {evaluation.path}")


def _print_findings(console: Console, evaluation: Evaluation) -> None:
    """Print the Pareto front, and of each kind of warning the first."""
    results = evaluation.results
    if results.front:
        print_plain(console, f"Beaten by none in both {' and '.join(results.plane)}: {', '.join(results.front)}")
    about: dict[str, dict[str, str]] = {}
    for method, found in results.methods.items():
        for finding in found.diagnostics:
            if finding.message:
                about.setdefault(finding.kind, {})[method] = finding.message
    for messages in about.values():
        first, others = next(iter(messages)), len(messages) - 1
        alike = f"; {others} more alike, see results.json" if others else ""
        print_plain(console, f"Note ({first}{alike}): {messages[first]}")


def print_runs(evaluations: Sequence[Evaluation], *, verdicts: bool = False) -> None:
    """Print the tables of several runs as one, and if wanted what each pair of methods differs in."""
    console = open_console()
    console.print(_table(evaluations))
    for evaluation in evaluations:
        print_plain(console, f"{evaluation.path}: {_legend(evaluation)}")
        for note in evaluation.notes:
            print_plain(console, f"  Note: {note}")
        for verdict in evaluation.results.verdicts if verdicts else ():
            print_plain(console, f"  {verdict}")


def _table(evaluations: Sequence[Evaluation]) -> Table:
    metrics = {name: e.results.about(name) for e in reversed(evaluations) for name in e.metrics}
    ordered = list(dict.fromkeys(name for e in evaluations for name in e.metrics))
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in ordered:
        table.add_column(f"{_plain(metrics[name].heading)} {metrics[name].arrow}", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for evaluation in evaluations:
        results, seconds = evaluation.results, evaluation.seconds()
        best = {name: results.best(name) for name in evaluation.metrics}
        if len(evaluations) > 1:
            table.add_section()
            table.add_row(f"[bold]{_plain(evaluation.path.name)}[/bold]")
        for method, found in results.methods.items():
            cells = [_cell(found.metrics.get(name), method in best.get(name, ())) for name in ordered]
            table.add_row(_plain(method), *cells, f"{seconds.get(method, 0.0):.1f} s")
    return table


def _plain(name: str) -> str:
    """Return a name without meaning for a terminal, and without markup; headings may have two lines."""
    return escape("\n".join(map(printable_line, name.split("\n"))))


def _cell(curve: CurveResults | None, best: bool) -> str:
    """Format the area of a curve with its interval below, the best one in bold."""
    if curve is None or curve.area is None:
        return "–"
    area = f"[bold]{curve.area:z.3f}[/bold]" if best else f"{curve.area:z.3f}"
    between = "–".join(f"{end:z.2f}".replace("0.", ".", 1) for end in curve.area_interval or ())
    return f"{area}\n[dim]{between}[/dim]" if between else area


def _legend(evaluation: Evaluation) -> str:
    results = evaluation.results
    ends = "".join(
        f" {name} up to {results.question.metrics[name]['performance']} {high:.2f}, which all methods reach;"
        for name, high in results.soundness_up_to.items()
    )
    return f"Areas under the curves:{ends} ↑ more is better, ↓ less is better; below, 95% intervals."


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
