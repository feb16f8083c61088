"""The results table as text: LaTeX and Markdown for papers, CSV for programs, HTML for notebooks."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence

from twinlens.errors import unknown
from twinlens.report.results_table import DIRECTIONS, Cell, ResultsTable, Row, results_table
from twinlens.run.stored_run import StoredRun, run_labels
from twinlens.run.wording import describe_stopping, find_headlines
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


def _names(row: Row, several: bool) -> list[str]:
    return [row.group, row.method] if several else [row.method]


def _latex(table: ResultsTable, several: bool) -> str:
    arrows = {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}
    heads = [re.sub("[↑↓]", lambda arrow: arrows[arrow[0]], escape_latex(column.title)) for column in table.columns]
    names = ["run", "method"] if several else ["method"]
    lines = [
        rf"\begin{{tabular}}{{{'l' * len(names)}{'r' * len(heads)}}}",
        r"\toprule",
        " & ".join([*names, *heads]) + r" \\",
        r"\midrule",
    ]
    for before, row in zip([None, *table.rows], table.rows, strict=False):
        if before is not None and before.group != row.group:
            lines.append(r"\midrule")
        lines.append(" & ".join([*map(escape_latex, _names(row, several)), *map(_latex_cell, row.cells)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape_latex(text: str) -> str:
    r"""Escape the special characters of LaTeX.

    Example:
        >>> print(escape_latex("ig_sg 50%"))
        ig\_sg 50\%
    """
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _latex_cell(cell: Cell) -> str:
    if cell.estimate is None or cell.estimate.value is None:
        return "--"
    number = rf"\mathbf{{{cell.text}}}" if cell.bold else cell.text
    interval = "" if cell.ends is None else rf"\;{{\scriptstyle[{cell.ends[0]:z.3f},\,{cell.ends[1]:z.3f}]}}"
    return f"${number}{interval}$"


def _markdown(table: ResultsTable, several: bool) -> str:
    names = ["run", "method"] if several else ["method"]
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
    places = [k for k, column in enumerate(table.columns) if column.kind != "skill"]
    header = ["run", "method"]
    for column in (table.columns[k] for k in places):
        ends = ["", "_low", "_high"]
        if column.kind == "area":
            ends += ["_control", "_skill", "_skill_low", "_skill_high", "_p"]
        header += [csv_text(f"{column.key}{end}") for end in ends]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        numbers = [number for k in places for number in _numbers(row.cells[k], area=table.columns[k].kind == "area")]
        writer.writerow([csv_text(row.group), csv_text(row.method), *numbers])
    return buffer.getvalue()


def _numbers(cell: Cell, *, area: bool) -> list[float | None]:
    numbers = _value_and_ends(cell.estimate)
    if area:
        control, skill = (cell.curve.control, cell.curve.skill) if cell.curve else (None, None)
        numbers += [_value_and_ends(control)[0], *_value_and_ends(skill), skill.p if skill else None]
    return numbers


def _value_and_ends(estimate: Estimate | None) -> list[float | None]:
    return [None] * 3 if estimate is None else [estimate.value, estimate.low, estimate.high]


def notebook_html(evaluation: StoredRun) -> str:
    """Format a run for notebooks: its title, notes, headlines and table, without style sheets."""
    results = evaluation.results
    table = results_table([evaluation], run_labels([evaluation]))
    body = []
    for row in table.rows:
        name = html.escape(row.method)
        body.append([f"<i>{name} (baseline)</i>" if row.baseline else name, *map(_html_cell, row.cells)])
    stopping = [describe_stopping(results.stopping)] if results.stopping else []
    texts = [html.escape(text) for text in (*evaluation.notes, *stopping, *find_headlines(results))]
    items = f"<ul>{''.join(f'<li>{text}</li>' for text in texts)}</ul>" if texts else ""
    heads = ["method", *(column.title for column in table.columns)]
    return f"<p><b>{html.escape(evaluation.title)}</b></p>{items}{html_table(heads, body)}"


def _html_cell(cell: Cell) -> str:
    number = f"<b>{cell.text}</b>" if cell.bold else cell.text
    if cell.direction is not None:
        colour = _COLOURS.get(cell.direction, "inherit")
        number = f"<span style='color:{colour}'>{DIRECTIONS[cell.direction][0]} {number}</span>"
    sign = "+" if cell.signed else ""
    ends = "" if cell.ends is None else " to ".join(f"{end:{sign}z.3f}" for end in cell.ends)
    return f"{number}<br><small>{ends}</small>" if ends else number
