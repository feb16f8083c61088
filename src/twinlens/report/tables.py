"""Tables of areas for papers, as LaTeX, Markdown or CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from twinlens.errors import unknown
from twinlens.run.check_records import CheckValue
from twinlens.run.results import CurveResults, Results
from twinlens.run.side_columns import SideColumn, join_columns, side_columns
from twinlens.run.stored_run import StoredRun, run_labels
from twinlens.support.arguments import checked
from twinlens.support.files import csv_text

KINDS = ("latex", "markdown", "csv")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_ENDS = ("", "_low", "_high", "_control", "_skill", "_skill_low", "_skill_high", "_p")


@dataclass(frozen=True, kw_only=True)
class _Column:
    """What stands below one heading: the areas by a metric, the skill by it, or what stands beside metrics."""

    metric: str
    heading: str
    skill: bool = False
    beside: bool = False


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One method of one run."""

    run: str
    method: str
    curves: dict[str, CurveResults]
    best_in: frozenset[str]
    """Metrics by which it is better than every other method, beyond doubt."""
    beside: dict[str, CheckValue]
    """What stands beside them: sparseness, and what checks found."""


@checked
def format_table(evaluations: Sequence[StoredRun], kind: str) -> str:
    r"""Format the areas of all curves as a table, one row per run and method.

    Soundness and completeness have their skill beside them, where it was measured. Sparseness of the maps comes last,
    and what checks found that belongs beside it. Bold is what is beyond doubt
    the best of those methods of its run that know their input; controls come last and are never bold.

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
    beside = [side_columns(evaluation) for evaluation in evaluations]
    rows, columns = _rows(evaluations, beside), _columns([evaluation.results for evaluation in evaluations])
    columns += [_Column(metric=each.name, heading=each.short, beside=True) for each in join_columns(beside)]
    return {"latex": _latex, "markdown": _markdown, "csv": _csv}[kind](rows, columns, len(evaluations) > 1)


def _columns(runs: Sequence[Results]) -> list[_Column]:
    """Lay out the columns, with a second one for the skill of each headline metric that has it."""
    headings: dict[str, str] = {}
    for results in runs:
        for metric in results.settings.metrics:
            headings.setdefault(metric, results.about(metric).short)
    judged = {
        metric
        for results in runs
        for metric in results.sides
        if any(results.control(method, metric) for method in results.methods)
    }
    columns = []
    for metric, heading in headings.items():
        columns.append(_Column(metric=metric, heading=heading))
        if metric in judged:
            columns.append(_Column(metric=metric, heading="skill ↑", skill=True))
    return columns


def _rows(evaluations: Sequence[StoredRun], beside: Sequence[Sequence[SideColumn]]) -> list[_Row]:
    rows = []
    for evaluation, label, columns in zip(evaluations, run_labels(evaluations), beside, strict=True):
        results = evaluation.results
        best = {metric: results.best(metric) for metric in evaluation.metrics}
        for method in results.best_first():
            best_in = frozenset(metric for metric, name in best.items() if name == method)
            own = {column.name: column.values[method] for column in columns if method in column.values}
            curves = dict(results.methods[method].metrics)
            rows.append(_Row(run=label, method=method, curves=curves, best_in=best_in, beside=own))
    return rows


def _number(row: _Row, column: _Column) -> tuple[str, str | None, str | None] | None:
    """Format the number of a cell and both ends of its interval; None where it is not defined."""
    if column.beside:
        found = row.beside.get(column.metric)
        return None if found is None or found.value is None else _formatted(found.value, found.low, found.high)
    curve = row.curves.get(column.metric)
    control = curve.control if curve is not None else None
    if column.skill:
        if control is None or control.skill is None:
            return None
        ends = [None if end is None else f"{end:z.3f}" for end in (control.low, control.high)]
        return f"{control.skill:+z.3f}", ends[0], ends[1]
    if curve is None or curve.area is None:
        return None
    return _formatted(curve.area, *(curve.area_interval or (None, None)))


def _formatted(value: float, low: float | None, high: float | None) -> tuple[str, str | None, str | None]:
    return f"{value:z.3f}", low if low is None else f"{low:z.3f}", high if high is None else f"{high:z.3f}"


def _latex(rows: Sequence[_Row], columns: Sequence[_Column], several: bool) -> str:
    arrows = {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}
    heads = [re.sub("[↑↓]", lambda arrow: arrows[arrow[0]], escape_latex(column.heading)) for column in columns]
    names = ["run", "method"] if several else ["method"]
    lines = [
        rf"\begin{{tabular}}{{{'l' * len(names)}{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join([*names, *heads]) + r" \\",
        r"\midrule",
    ]
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and before.run != row.run:
            lines.append(r"\midrule")
        own = [row.run, row.method] if several else [row.method]
        cells = [_latex_cell(row, column) for column in columns]
        lines.append(" & ".join([*map(escape_latex, own), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape_latex(text: str) -> str:
    r"""Escape text so that LaTeX prints it as it is.

    Example:
        >>> print(escape_latex("ig_sg 50%"))
        ig\_sg 50\%
    """
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _latex_cell(row: _Row, column: _Column) -> str:
    found = _number(row, column)
    if found is None:
        return "--"
    number, low, high = found
    if column.metric in row.best_in and not column.skill:
        number = rf"\mathbf{{{number}}}"
    return f"${number}" + (rf"\;{{\scriptstyle[{low},\,{high}]}}$" if low and high else "$")


def _markdown(rows: Sequence[_Row], columns: Sequence[_Column], several: bool) -> str:
    names = ["run", "method"] if several else ["method"]
    lines = [
        _markdown_line([*names, *(_escape_markdown(column.heading) for column in columns)]),
        _markdown_line([*["---"] * len(names), *["---:"] * len(columns)]),
    ]
    for row in rows:
        own = [row.run, row.method] if several else [row.method]
        cells = [_markdown_cell(row, column) for column in columns]
        lines.append(_markdown_line([*map(_escape_markdown, own), *cells]))
    return "\n".join([*lines, ""])


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|~])", r"\\\1", text)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(row: _Row, column: _Column) -> str:
    found = _number(row, column)
    if found is None:
        return "–"
    number, low, high = found
    if column.metric in row.best_in and not column.skill:
        number = f"**{number}**"
    return number + (f" [{low}, {high}]" if low and high else "")


def _csv(rows: Sequence[_Row], columns: Sequence[_Column], several: bool) -> str:
    del several  # machines read it, so that columns are always the same
    metrics = [column.metric for column in columns if not column.skill and not column.beside]
    beside = [column.metric for column in columns if column.beside]
    names = [
        f"{name}{end}" for given, ends in ((metrics, _ENDS), (beside, _ENDS[:3])) for name in given for end in ends
    ]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["run", "method", *map(csv_text, names)])
    for row in rows:
        numbers = [number for metric in metrics for number in _all_numbers(row.curves.get(metric))]
        found = [row.beside.get(name) for name in beside]
        numbers += [number for each in found for number in ((each.value, each.low, each.high) if each else [None] * 3)]
        writer.writerow([csv_text(row.run), csv_text(row.method), *numbers])
    return buffer.getvalue()


def _all_numbers(curve: CurveResults | None) -> tuple[float | None, ...]:
    """Return everything about a curve's area, in the order of `_ENDS`."""
    if curve is None:
        return (None,) * len(_ENDS)
    low, high = curve.area_interval or (None, None)
    control = curve.control
    own = (curve.area, low, high)
    return (
        (*own, control.value, control.skill, control.low, control.high, control.p) if control else (*own, *[None] * 5)
    )
