"""The results table as text: LaTeX and Markdown for papers, CSV for programs, HTML for notebooks."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Literal

from twinlens.attribution import METHODS
from twinlens.errors import unknown
from twinlens.report.results_table import (
    DIRECTIONS,
    Cell,
    Column,
    ResultsTable,
    Row,
    describe_columns,
    describe_options,
    describe_settings,
    differences_table,
    results_table,
    without_zeros,
)
from twinlens.run.stored_run import StoredRun, run_labels
from twinlens.run.wording import describe_stopping, find_headlines
from twinlens.statistics.contrasts import RunComparison
from twinlens.support.arguments import checked
from twinlens.support.estimate import Estimate
from twinlens.support.files import csv_text
from twinlens.support.plotting import html_table

KINDS = ("latex", "markdown", "csv")
Intervals = Literal["below", "inline", "none"]
_DIGITS = range(1, 7)
_ONE_COLUMN = 4  # columns of numbers that fit one column of a two-column paper
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"↑": r"$\uparrow$", "↓": r"$\downarrow$", "ε": r"$\varepsilon$", "×": r"$\times$", "–": "--", "−": "$-$"},
}
_COLOURS = {"better": "green", "worse": "red"}


@checked
def format_table(
    evaluations: Sequence[StoredRun],
    kind: str,
    *,
    columns: str | Sequence[str] | None = None,
    digits: int | None = None,
    intervals: Intervals | None = None,
    names: Mapping[str, str] | None = None,
) -> str:
    r"""Format the results table, with one row per run and method.

    The LaTeX table needs the package booktabs. With the headline columns it fits one column of a two-column paper. Its
    caption, like the text below a Markdown table, says how the numbers were measured and what bold means.

    Args:
        evaluations: the results of each run, at least one.
        kind: "latex", "markdown" or "csv" (all digits, and the control of every metric).
        columns: "headline" (soundness and completeness with their skill, the default), "all" (the default of csv), or
            names of columns as in csv, such as ["headline", "calibration"] or ["soundness_rank"].
        digits: digits after the decimal point, 2 by default; not for csv.
        intervals: "below" the numbers (the default of latex), "inline" after them (the default of markdown), or "none";
            not for csv.
        names: your own titles of methods, such as {"mine": "Ours"}. By default built-in methods are called as papers
            write them (IG-SG, GradCAM), except in csv, and your own methods by the names that you gave them.

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
    if columns is not None and not columns:
        raise ValueError("`columns` must name at least one column, headline or all; got none.")
    methods = dict.fromkeys(method for evaluation in evaluations for method in evaluation.methods)
    for name in names or ():
        if name not in methods and name not in METHODS:  # one list of titles may serve several runs
            raise unknown("names", name, methods)
    chosen = ([columns] if isinstance(columns, str) else columns) or ["all" if kind == "csv" else "headline"]
    table = results_table(evaluations, run_labels(evaluations), names).select(chosen)
    if kind == "csv":
        for argument, value in (("digits", digits), ("intervals", intervals)):
            if value is not None:
                raise ValueError(f"`{argument}` is for latex and markdown; csv has all digits and intervals.")
        return _csv(table, names or {})
    if digits is not None and digits not in _DIGITS:
        raise ValueError(f"`digits` must be {_DIGITS[0]} to {_DIGITS[-1]}; got {digits}.")
    if kind == "latex":
        return _latex(table, evaluations, digits or 2, intervals or "below")
    return _markdown(table, evaluations, digits or 2, intervals or "inline")


def _note(table: ResultsTable, evaluations: Sequence[StoredRun], intervals: Intervals) -> str:
    """Return what was measured in each run and how, and what the columns and bold mean."""
    texts = []
    for label, run in zip(run_labels(evaluations), evaluations, strict=True):
        titles = {row.method: row.title for row in table.rows if row.group == label}
        title = f"{label}: {run.title}." if len(evaluations) > 1 else f"{run.title}."
        texts += [title, describe_settings(run, table), describe_options(run, titles)]
    return " ".join(filter(None, [*texts, describe_columns(table, intervals)]))


def _latex(table: ResultsTable, evaluations: Sequence[StoredRun], digits: int, intervals: Intervals) -> str:
    width, several = len(table.columns), len(evaluations) > 1
    environment = "table" if width <= _ONE_COLUMN else "table*"
    baselines = " Below the line are baselines." if any(row.baseline for row in table.rows) else ""
    lines = [
        rf"\begin{{{environment}}}[t]",
        rf"\caption{{{escape_latex(_note(table, evaluations, intervals) + baselines)}}}\smallskip",
        r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\begin{{tabular}}{{@{{}}l{'r' * width}@{{}}}}",
        r"\toprule",
        *_latex_heads(table.columns),
    ]
    for group, members in groupby(table.rows, key=lambda row: row.group):
        if several:
            lines += [r"\midrule", rf"\multicolumn{{{width + 1}}}{{@{{}}l}}{{\emph{{{escape_latex(group)}}}}} \\"]
        for _, rows in groupby(members, key=lambda row: row.baseline):
            lines += [r"\midrule", *(line for row in rows for line in _latex_row(row, digits, intervals))]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", rf"\end{{{environment}}}", ""])


def _latex_heads(columns: Sequence[Column]) -> list[str]:
    """Return the lines of the head: a metric stands over its value and its skill."""
    pairs = [k for k, (one, other) in enumerate(pairwise(columns)) if other.key == f"{one.key}_skill"]
    groups, heads = [""], ["method"]
    for k, column in enumerate(columns):
        if k in pairs:
            groups.append(rf"\multicolumn{{2}}{{c}}{{{escape_latex(column.title)}}}")
            heads += ["value", "skill"]
        elif k - 1 not in pairs:
            lines = r"\\".join(map(escape_latex, column.heading.splitlines()))
            groups.append("")
            heads.append(rf"\shortstack[r]{{{lines}}}")
    rules = [rf"\cmidrule(lr){{{k + 2}-{k + 3}}}" for k in pairs]
    over = [" & ".join(groups) + r" \\", " ".join(rules)] if pairs else []
    return [*over, " & ".join(heads) + r" \\"]


def escape_latex(text: str) -> str:
    """Escape the special characters of LaTeX, and write arrows and the like as its commands."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _latex_row(row: Row, digits: int, intervals: Intervals) -> list[str]:
    """Return the line of a method, and if asked a second one with its intervals."""
    numbers, below = [escape_latex(row.title)], [""]
    for cell in row.cells:
        number = rf"\mathbf{{{cell.text(digits)}}}" if cell.bold else escape_latex(cell.text(digits))
        ends = without_zeros(cell.interval(digits)).replace(", ", r",\,")
        small = rf"{{\scriptstyle{ends}}}" if ends else ""
        inline = rf"\;{small}" if small and intervals == "inline" else ""
        numbers.append(f"${number}{inline}$" if cell.measured else number)
        below.append(f"${small}$" if small else "")
    if intervals != "below" or not any(below):
        return [" & ".join(numbers) + r" \\"]
    return [" & ".join(numbers) + r" \\[-2pt]", " & ".join(below) + r" \\"]


def _markdown(table: ResultsTable, evaluations: Sequence[StoredRun], digits: int, intervals: Intervals) -> str:
    lines = markdown_table(table, digits, intervals, several=len(evaluations) > 1)
    return f"{lines}\n{escape_markdown(_note(table, evaluations, intervals))}\n"


def markdown_table(table: ResultsTable, digits: int, intervals: Intervals, *, several: bool = False) -> str:
    """Format a table as Markdown, with the run of each row if there are several."""
    heads = ["run"] * several + ["method"]
    rows = [
        [*heads, *(escape_markdown(column.title) for column in table.columns)],
        [*["---"] * len(heads), *["---:"] * len(table.columns)],
    ]
    for row in table.rows:
        names = [row.group] * several + [f"{row.title} (baseline)" if row.baseline else row.title]
        pairs = zip(row.cells, table.columns, strict=True)
        cells = [
            _markdown_cell(c, digits if column.digits is None else column.digits, intervals) for c, column in pairs
        ]
        rows.append([*map(escape_markdown, names), *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def escape_markdown(text: str) -> str:
    """Escape the special characters of Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|~])", r"\\\1", text)


def _markdown_cell(cell: Cell, digits: int, intervals: Intervals) -> str:
    number = f"**{cell.text(digits)}**" if cell.bold else cell.text(digits)
    ends = "" if intervals == "none" else cell.interval(digits)
    return f"{number}{'<br>' if intervals == 'below' else ' '}{ends}" if ends else number


def _csv(table: ResultsTable, names: Mapping[str, str]) -> str:
    """Write all digits; every metric has the columns of its control and skill, measured or not."""
    rows = [
        {"run": csv_text(row.group), "method": csv_text(names.get(row.method, row.method))}
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
    table = results_table([evaluation], run_labels([evaluation]))
    texts = [describe_columns(table), describe_settings(evaluation, table), describe_options(evaluation)]
    legend = html.escape(" ".join(filter(None, texts)))
    shown = f"{table_html(table, several=False)}<p><small>{legend}</small></p>"
    return f"<p><b>{html.escape(evaluation.title)}</b></p>{items}{shown}"


def differences_html(comparison: RunComparison, evaluations: Sequence[StoredRun]) -> str:
    """Format the differences between runs, with notes, for browsers without scripts."""
    table = differences_table(comparison.pairs, [evaluation.results for evaluation in evaluations])
    return _html_list(comparison.notes) + table_html(table, several=True)


def _html_list(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(text)}</li>' for text in texts)}</ul>" if texts else ""


def table_html(table: ResultsTable, *, several: bool) -> str:
    """Format a table as HTML, with the run of each row if there are several."""
    body = []
    for row in table.rows:
        group, method = [html.escape(row.group)] * several, html.escape(row.method)
        body.append([*group, f"<i>{method} (baseline)</i>" if row.baseline else method, *map(_html_cell, row.cells)])
    return html_table([*["run"] * several, "method", *(column.title for column in table.columns)], body)


def _html_cell(cell: Cell) -> str:
    number = f"<b>{cell.text()}</b>" if cell.bold else cell.text()
    if cell.direction is not None:
        colour = _COLOURS.get(cell.direction, "inherit")
        number = f"<span style='color:{colour}'>{DIRECTIONS[cell.direction][0]} {number}</span>"
    sign = "+" if cell.signed else ""
    ends = "" if cell.ends is None else " to ".join(f"{end:{sign}z.3f}" for end in cell.ends)
    return f"{number}<br><small>{ends}</small>" if ends else number
