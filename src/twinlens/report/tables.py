"""Tables of areas for papers, as LaTeX, Markdown or CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twinlens.core.files import csv_text
from twinlens.errors import unknown
from twinlens.report.run_summary import run_labels
from twinlens.running.results import CurveResults
from twinlens.running.run_reader import Evaluation

KINDS = ("latex", "markdown", "csv")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """The area of one curve."""

    area: float | None
    interval: tuple[float, float] | None
    best: bool


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One method of one run."""

    run: str
    method: str
    cells: dict[str, _Cell]


def format_table(evaluations: Sequence[Evaluation], kind: str) -> str:
    r"""Format the areas of all curves as a table, one row per run and method, the best of each run in bold.

    Args:
        evaluations: the results of each run, at least one.
        kind: "latex" (for the package booktabs), "markdown" or "csv" (all digits).

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
    headings: dict[str, str] = {}
    for evaluation in evaluations:
        for metric in evaluation.metrics:
            headings.setdefault(metric, evaluation.results.about(metric).short)
    rows = _rows(evaluations, list(headings))
    return {"latex": _latex, "markdown": _markdown, "csv": _csv}[kind](rows, headings, len(evaluations) > 1)


def _rows(evaluations: Sequence[Evaluation], metrics: Sequence[str]) -> list[_Row]:
    rows = []
    for evaluation, label in zip(evaluations, run_labels(evaluations), strict=True):
        results = evaluation.results
        best = {metric: results.best(metric) for metric in evaluation.metrics}
        for method in results.best_first():
            curves = results.methods[method].metrics
            cells = {metric: _cell(curves.get(metric), method in best.get(metric, ())) for metric in metrics}
            rows.append(_Row(run=label, method=method, cells=cells))
    return rows


def _cell(curve: CurveResults | None, best: bool) -> _Cell:
    if curve is None:
        return _Cell(area=None, interval=None, best=False)
    return _Cell(area=curve.area, interval=curve.area_interval, best=best)


def _latex(rows: Sequence[_Row], headings: Mapping[str, str], several: bool) -> str:
    arrows = {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}
    heads = [re.sub("[↑↓]", lambda arrow: arrows[arrow[0]], escape_latex(head)) for head in headings.values()]
    names = ["run", "method"] if several else ["method"]
    lines = [
        rf"\begin{{tabular}}{{{'l' * len(names)}{'r' * len(headings)}}}",
        r"\toprule",
        " & ".join([*names, *heads]) + r" \\",
        r"\midrule",
    ]
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and before.run != row.run:
            lines.append(r"\midrule")
        own = [row.run, row.method] if several else [row.method]
        cells = [_latex_cell(row.cells[metric]) for metric in headings]
        lines.append(" & ".join([*map(escape_latex, own), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape_latex(text: str) -> str:
    r"""Escape text so that LaTeX prints it as it is.

    Example:
        >>> print(escape_latex("ig_sg 50%"))
        ig\_sg 50\%
    """
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _latex_cell(cell: _Cell) -> str:
    if cell.area is None:
        return "--"
    number = rf"\mathbf{{{cell.area:z.3f}}}" if cell.best else f"{cell.area:z.3f}"
    ends = rf"\;{{\scriptstyle[{cell.interval[0]:z.3f},\,{cell.interval[1]:z.3f}]}}" if cell.interval else ""
    return f"${number}{ends}$"


def _markdown(rows: Sequence[_Row], headings: Mapping[str, str], several: bool) -> str:
    names = ["run", "method"] if several else ["method"]
    lines = [
        _markdown_line([*names, *map(_escape_markdown, headings.values())]),
        _markdown_line([*["---"] * len(names), *["---:"] * len(headings)]),
    ]
    for row in rows:
        own = [row.run, row.method] if several else [row.method]
        cells = [_markdown_cell(row.cells[metric]) for metric in headings]
        lines.append(_markdown_line([*map(_escape_markdown, own), *cells]))
    return "\n".join([*lines, ""])


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|~])", r"\\\1", text)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: _Cell) -> str:
    if cell.area is None:
        return "–"
    number = f"**{cell.area:z.3f}**" if cell.best else f"{cell.area:z.3f}"
    return number + (f" [{cell.interval[0]:z.3f}, {cell.interval[1]:z.3f}]" if cell.interval else "")


def _csv(rows: Sequence[_Row], headings: Mapping[str, str], several: bool) -> str:
    del several  # machines read it, so that columns are always the same
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        ["run", "method", *(csv_text(f"{metric}{end}") for metric in headings for end in ("", "_low", "_high"))]
    )
    for row in rows:
        cells = (row.cells[metric] for metric in headings)
        numbers = [number for cell in cells for number in (cell.area, *(cell.interval or (None, None)))]
        writer.writerow([csv_text(row.run), csv_text(row.method), *numbers])
    return buffer.getvalue()
