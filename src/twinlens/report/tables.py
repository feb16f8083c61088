"""Tables of areas: for papers as LaTeX, Markdown or CSV, and for notebooks as HTML."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinlens.comparison import Comparison
from twinlens.curves import Curve
from twinlens.planning import METRICS
from twinlens.report.content import best_methods, heading, measured_metrics, order_methods, run_labels
from twinlens.report.sketch import sketch_curve
from twinlens.results import Evaluation

KINDS = ("latex", "markdown", "csv")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_CELL = "padding:0.2em 0.7em;text-align:right"


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
    r"""Gives the areas of all curves as a table, one row per run and method, the best of each run in bold.

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
        raise ValueError(f"`kind` must be one of {', '.join(KINDS)}; got {kind!r}.")
    if not evaluations:
        raise ValueError("`evaluations` must hold at least one run; got none.")
    metrics = [name for name in METRICS if any(name in measured_metrics(evaluation) for evaluation in evaluations)]
    rows = _rows(evaluations, metrics)
    return {"latex": _latex, "markdown": _markdown, "csv": _csv}[kind](rows, metrics, len(evaluations) > 1)


def _rows(evaluations: Sequence[Evaluation], metrics: Sequence[str]) -> list[_Row]:
    rows = []
    for evaluation, label in zip(evaluations, run_labels(evaluations), strict=True):
        results = evaluation.results
        best = {metric: best_methods(results, metric) for metric in metrics}
        for method in order_methods(results):
            curves = results["methods"][method]["metrics"]
            cells = {metric: _cell(curves.get(metric, {}), method in best[metric]) for metric in metrics}
            rows.append(_Row(run=label, method=method, cells=cells))
    return rows


def _cell(curve: dict[str, Any], best: bool) -> _Cell:
    ends = curve.get("area_interval")
    interval = (ends[0], ends[1]) if ends and None not in ends else None
    return _Cell(area=curve.get("area"), interval=interval, best=best)


def _latex(rows: Sequence[_Row], metrics: Sequence[str], several: bool) -> str:
    arrows = {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}
    heads = [re.sub("[↑↓]", lambda arrow: arrows[arrow[0]], heading(metric)) for metric in metrics]
    names = ["run", "method"] if several else ["method"]
    lines = [
        rf"\begin{{tabular}}{{{'l' * len(names)}{'r' * len(metrics)}}}",
        r"\toprule",
        " & ".join([*names, *heads]) + r" \\",
        r"\midrule",
    ]
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and before.run != row.run:
            lines.append(r"\midrule")
        own = [row.run, row.method] if several else [row.method]
        cells = [_latex_cell(row.cells[metric]) for metric in metrics]
        lines.append(" & ".join([*map(escape_latex, own), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape_latex(text: str) -> str:
    r"""Gives text that LaTeX prints as it is.

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


def _markdown(rows: Sequence[_Row], metrics: Sequence[str], several: bool) -> str:
    names = ["run", "method"] if several else ["method"]
    lines = [
        _markdown_line([*names, *map(heading, metrics)]),
        _markdown_line([*["---"] * len(names), *["---:"] * len(metrics)]),
    ]
    for row in rows:
        own = [row.run, row.method] if several else [row.method]
        cells = [_markdown_cell(row.cells[metric]) for metric in metrics]
        lines.append(_markdown_line([*(re.sub(r"([\\`*_{}\[\]<>|~])", r"\\\1", text) for text in own), *cells]))
    return "\n".join([*lines, ""])


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: _Cell) -> str:
    if cell.area is None:
        return "–"
    number = f"**{cell.area:z.3f}**" if cell.best else f"{cell.area:z.3f}"
    return number + (f" [{cell.interval[0]:z.3f}, {cell.interval[1]:z.3f}]" if cell.interval else "")


def _csv(rows: Sequence[_Row], metrics: Sequence[str], several: bool) -> str:
    del several  # machines read it, so that columns are always the same
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["run", "method", *(f"{metric}{end}" for metric in metrics for end in ("", "_low", "_high"))])
    for row in rows:
        cells = (row.cells[metric] for metric in metrics)
        numbers = [number for cell in cells for number in (cell.area, *(cell.interval or (None, None)))]
        writer.writerow([row.run, row.method, *numbers])
    return buffer.getvalue()


def html_of(thing: Evaluation | Curve | Comparison) -> str:
    """Gives what a notebook shows of results, a curve or a comparison, as markup that needs no script."""
    if isinstance(thing, Evaluation):
        return _html_of_evaluation(thing)
    if isinstance(thing, Comparison):
        return _html_of_comparison(thing)
    return f"<figure style='margin:0'>{sketch_curve(thing)}<figcaption>{html.escape(repr(thing))}</figcaption></figure>"


def _html_of_evaluation(evaluation: Evaluation) -> str:
    results, metrics = evaluation.results, measured_metrics(evaluation)
    heads = ["method", *map(heading, metrics)]
    body = [
        [html.escape(row.method), *(_html_cell(row.cells[metric]) for metric in metrics)]
        for row in _rows([evaluation], metrics)
    ]
    title = (
        f"{results['model']['name']} on {results['data']['samples']} samples of {results['data']['name']}: accuracy "
        f"{results['accuracy']:.1%}"
    )
    return f"<p><b>{html.escape(title)}</b></p>{_html_table(heads, body)}"


def _html_of_comparison(comparison: Comparison) -> str:
    heads = ["metric", "method", "area", "interval", "rank"]
    body = [
        [
            html.escape(standing.metric),
            html.escape(standing.method),
            f"{standing.area:z.3f}",
            f"[{standing.low:z.3f}, {standing.high:z.3f}]",
            f"{standing.rank} ({standing.best_rank} to {standing.worst_rank})",
        ]
        for standing in comparison.standings
    ]
    verdicts = "".join(f"<li>{html.escape(verdict)}</li>" for verdict in comparison.verdicts)
    return f"{_html_table(heads, body)}<details><summary>In words</summary><ul>{verdicts}</ul></details>"


def _html_table(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th style='{_CELL}'>{html.escape(text)}</th>" for text in heads)
    rows = "".join(f"<tr>{''.join(f'<td style={_CELL!r}>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _html_cell(cell: _Cell) -> str:
    if cell.area is None:
        return "–"
    number = f"<b>{cell.area:z.3f}</b>" if cell.best else f"{cell.area:z.3f}"
    return number + (f"<br><small>{cell.interval[0]:z.3f} to {cell.interval[1]:z.3f}</small>" if cell.interval else "")
