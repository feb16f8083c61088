"""The results table as text: LaTeX and Markdown for papers, CSV for programs, HTML for notebooks."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence
from itertools import groupby

from twinlens.errors import unknown
from twinlens.report.results_table import DIRECTIONS, Cell, ResultsTable, Row, differences_table, results_table
from twinlens.run.stored_run import StoredRun, run_labels
from twinlens.run.wording import describe_stopping, find_headlines
from twinlens.statistics.contrasts import RunComparison
from twinlens.support.arguments import checked
from twinlens.support.estimate import Estimate
from twinlens.support.files import csv_text
from twinlens.support.plotting import html_table

KINDS = ("latex", "markdown", "csv")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_COLOURS = {"better": "green", "worse": "red"}


@checked
def format_table(evaluations: Sequence[StoredRun], kind: str) -> str:
    r"""Format the results table, with one row per run and method.

    Args:
        evaluations: the results of each run, at least one.
        kind: "latex" (for the package booktabs), "markdown" or "csv" (all digits, and the control of every metric).

    Example:
        >>> format_table([], "html")
        Traceback (most recent call last):
            ...
        ValueError: `kind` must be one of latex, markdown, csv; got 'html'.
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    if not evaluations:
        raise ValueError("`evaluations` must hold at least one run; got none.")
    table = results_table(evaluations, run_labels(evaluations))
    if kind == "csv":
        return _csv(table)
    several = len(evaluations) > 1
    return _latex(table, several) if kind == "latex" else _markdown(table, several)


def _heads(several: bool) -> list[str]:
    return ["run", "method"] if several else ["method"]


def _names(row: Row, several: bool) -> list[str]:
    return [row.group, row.method] if several else [row.method]


def _latex(table: ResultsTable, several: bool) -> str:
    arrows = {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}
    heads = [re.sub("[↑↓]", lambda arrow: arrows[arrow[0]], escape_latex(column.title)) for column in table.columns]
    names = _heads(several)
    lines = [
        rf"\begin{{tabular}}{{{'l' * len(names)}{'r' * len(heads)}}}",
        r"\toprule",
        " & ".join([*names, *heads]) + r" \\",
    ]
    for _, rows in groupby(table.rows, key=lambda row: row.group):
        lines.append(r"\midrule")
        for row in rows:
            cells = [*map(escape_latex, _names(row, several)), *map(_latex_cell, row.cells)]
            lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape_latex(text: str) -> str:
    """Escape the special characters of LaTeX."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _latex_cell(cell: Cell) -> str:
    if cell.estimate is None or cell.estimate.value is None:
        return "--"
    number = rf"\mathbf{{{cell.text}}}" if cell.bold else cell.text
    interval = "" if cell.ends is None else rf"\;{{\scriptstyle[{cell.ends[0]:z.3f},\,{cell.ends[1]:z.3f}]}}"
    return f"${number}{interval}$"


def _markdown(table: ResultsTable, several: bool) -> str:
    names = _heads(several)
    rows = [
        [*names, *(_escape_markdown(column.title) for column in table.columns)],
        [*["---"] * len(names), *["---:"] * len(table.columns)],
        *([*map(_escape_markdown, _names(row, several)), *map(_markdown_cell, row.cells)] for row in table.rows),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|~])", r"\\\1", text)


def _markdown_cell(cell: Cell) -> str:
    number = f"**{cell.text}**" if cell.bold else cell.text
    return number if cell.ends is None else f"{number} [{cell.ends[0]:z.3f}, {cell.ends[1]:z.3f}]"


def _csv(table: ResultsTable) -> str:
    """Write all digits; every metric has the columns of its control and skill, measured or not."""
    rows = [
        {"run": csv_text(row.group), "method": csv_text(row.method)}
        | {csv_text(name): number for name, number in _numbers(table, row).items()}
        for row in table.rows
    ]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, rows[0] if rows else ["run", "method"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _numbers(table: ResultsTable, row: Row) -> dict[str, float | None]:
    numbers: dict[str, float | None] = {}
    for column, cell in zip(table.columns, row.cells, strict=True):
        if column.kind == "skill":  # written with its metric
            continue
        numbers |= _value_and_ends(column.key, cell.estimate)
        if column.kind == "area":
            control, skill = (cell.curve.control, cell.curve.skill) if cell.curve else (None, None)
            numbers[f"{column.key}_control"] = control.value if control else None
            numbers |= _value_and_ends(f"{column.key}_skill", skill)
            numbers[f"{column.key}_p"] = skill.p if skill else None
    return numbers


def _value_and_ends(key: str, estimate: Estimate | None) -> dict[str, float | None]:
    value, low, high = (estimate.value, estimate.low, estimate.high) if estimate else (None, None, None)
    return {key: value, f"{key}_low": low, f"{key}_high": high}


def notebook_html(evaluation: StoredRun) -> str:
    """Format a run for notebooks: its title, notes, headlines and table, without style sheets."""
    results = evaluation.results
    stopping = [describe_stopping(results.stopping)] if results.stopping else []
    items = _html_list([*evaluation.notes, *stopping, *find_headlines(results)])
    table = _html_table(results_table([evaluation], run_labels([evaluation])), several=False)
    return f"<p><b>{html.escape(evaluation.title)}</b></p>{items}{table}"


def differences_html(comparison: RunComparison, evaluations: Sequence[StoredRun]) -> str:
    """Format the differences between runs, with notes, for browsers without scripts."""
    table = differences_table(comparison.pairs, [evaluation.results for evaluation in evaluations])
    return _html_list(comparison.notes) + _html_table(table, several=True)


def _html_list(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(text)}</li>' for text in texts)}</ul>" if texts else ""


def _html_table(table: ResultsTable, *, several: bool) -> str:
    body = []
    for row in table.rows:
        *group, method = map(html.escape, _names(row, several))
        body.append([*group, f"<i>{method} (baseline)</i>" if row.baseline else method, *map(_html_cell, row.cells)])
    return html_table([*_heads(several), *(column.title for column in table.columns)], body)


def _html_cell(cell: Cell) -> str:
    number = f"<b>{cell.text}</b>" if cell.bold else cell.text
    if cell.direction is not None:
        colour = _COLOURS.get(cell.direction, "inherit")
        number = f"<span style='color:{colour}'>{DIRECTIONS[cell.direction][0]} {number}</span>"
    sign = "+" if cell.signed else ""
    ends = "" if cell.ends is None else " to ".join(f"{end:{sign}z.3f}" for end in cell.ends)
    return f"{number}<br><small>{ends}</small>" if ends else number
