"""The table of submissions: methods × suites as Markdown and as one self-contained page.

Names and reasons come from files of others. They enter the page as data and as text, and Markdown escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import get_args

from twinlens.attribution import METHODS, title_of
from twinlens.errors import RunError
from twinlens.metrics.catalogue import described_metric
from twinlens.report.method_summary import show_setting
from twinlens.report.page import assemble_page, read_part
from twinlens.report.results_table import DIRECTIONS, Cell, Column, ResultsTable, Row
from twinlens.report.styles import BUILT_IN, MethodStyle, styles_of
from twinlens.report.table_formats import escape_markdown, markdown_table, table_html
from twinlens.run.results import CurveResults
from twinlens.suites.definition import Kind
from twinlens.suites.submission import MethodEntry, Score, Submission, TaskEntry
from twinlens.support.estimate import Estimate
from twinlens.support.fields import JSON, to_json
from twinlens.support.files import as_path, write_text

_KINDS = {
    "triangle": "gradients",
    "circle": "gradients along a path",
    "wedge": "propagation of relevance",
    "square": "hidden layers",
    "diamond": "perturbed inputs and bottlenecks",
    "plus": "baseline methods",
    "cross": "baseline methods",
}
"""Kinds of built-in methods, by the symbol of their family."""
_OTHERS = "methods of other packages"
_SCRIPTS = ("elements.js", "downloads.js", "tables.js")
_COST = (
    Column(
        key="milliseconds",
        heading="milliseconds per sample ↓",
        summary="Milliseconds per sample for the maps, on the machine of the run",
        descending=False,
        digits=1,
    ),
    Column(
        key="calls",
        heading="model calls per sample ↓",
        summary="Inputs that the method passes to the model per sample",
        descending=False,
        digits=0,
    ),
)
_LEGEND = (
    "Each number has its 95% interval. Soundness and completeness are ½ by chance. Skill is how much better a method's "
    "maps are than the same maps exchanged between the samples. Model calls are the inputs that a method passes to the "
    "whole model; IBA also calls its later layers. Milliseconds depend on the machine. Methods are sorted by the "
    "sum of their ranks in soundness and completeness, baseline methods last."
)


@dataclass(frozen=True, kw_only=True)
class BoardTask:
    """One task of a suite with the methods of all submissions."""

    label: str
    suite: str
    title: str
    """Title of the suite."""
    kind: str
    about: str
    """Model, data, samples and versions in a line."""
    note: str | None
    table: ResultsTable
    refused: Mapping[str, str]


def write_leaderboard(submissions: Sequence[Submission], out: str) -> Path:
    """Write index.html and leaderboard.md into a folder, and return it."""
    folder, markdown, page = as_path(out), board_markdown(board_tasks(submissions)), board_page(submissions)
    write_text(folder / "leaderboard.md", markdown)
    write_text(folder / "index.html", page)
    return folder


def board_tasks(submissions: Sequence[Submission]) -> list[BoardTask]:
    """Join submissions by task, and by the content of their samples; refuse suites of one name that differ."""
    digests: dict[str, str] = {}
    groups: dict[tuple[str, str, str], list[tuple[Submission, TaskEntry]]] = {}
    for submission in submissions:
        suite = str(submission.suite)
        if digests.setdefault(suite, submission.digest) != submission.digest:
            raise RunError(
                f"Submissions of {suite} measure different things: their digests are {digests[suite][:8]}… and "
                f"{submission.digest[:8]}…. Give one of the suites another name or version."
            )
        for name, task in submission.tasks.items():
            groups.setdefault((suite, name, task.data_digest), []).append((submission, task))
    tasks = [
        _board_task(suite, name, group, _variants(groups, suite, name)) for (suite, name, _), group in groups.items()
    ]
    return sorted(tasks, key=lambda task: (get_args(Kind).index(task.kind), task.suite.split("@")))


def _variants(groups: Mapping[tuple[str, str, str], object], suite: str, name: str) -> int:
    return sum(key[:2] == (suite, name) for key in groups)


def _board_task(suite: str, name: str, group: Sequence[tuple[Submission, TaskEntry]], variants: int) -> BoardTask:
    first, task = group[0]
    metrics = {key: settings for _, each in group for key, settings in each.metrics.items()}
    entries = _entries(group)
    known = {key for entry in entries.values() for key, score in entry.scores.items() if score.truth is not None}
    columns = [*(c for key, settings in metrics.items() for c in _columns(key, settings, known=key in known)), *_COST]
    rows = tuple(
        Row(
            group=suite,
            method=label,
            title=_title(label, entry.method),
            cells=tuple(_cells(entry, columns)),
            baseline=entry.baseline,
        )
        for label, entry in sorted(entries.items(), key=lambda item: _rank(item[1], entries.values()))
    )
    versions = dict.fromkeys(", ".join(f"{k} {v}" for k, v in each.versions.items()) for each, _ in group)
    quality = "" if task.accuracy is None else f", accuracy {task.accuracy:.1%}"
    models = "" if len({each.model_digest for _, each in group}) == 1 else "; digests of the model differ"
    where = "" if variants == 1 else f" ({task.data_digest[:6]})"
    return BoardTask(
        label=(suite if len(first.suite.tasks) == 1 else f"{suite} {name}") + where,
        suite=suite,
        title=first.suite.title,
        kind=first.suite.tasks[name].kind,
        about=f"{task.model} on {task.samples} samples of {task.data}{quality}{models}. {'; '.join(versions)}.",
        note=first.suite.note,
        table=ResultsTable(columns=tuple(columns), rows=rows),
        refused={key: why for _, each in group for key, why in each.refused.items() if key not in entries},
    )


def _entries(group: Sequence[tuple[Submission, TaskEntry]]) -> dict[str, MethodEntry]:
    """Return the methods of all submissions; those of equal names whose numbers differ are numbered."""
    entries: dict[str, MethodEntry] = {}
    for _, task in group:
        for name, entry in task.methods.items():
            label, number = method_label(name, entry), 1
            while label in entries and entries[label].scores != entry.scores:
                number += 1
                label = f"{method_label(name, entry)} [{number}]"
            entries.setdefault(label, entry)
    return entries


def method_label(name: str, entry: MethodEntry) -> str:
    """Return a method's name with the options that are not its defaults."""
    options = ", ".join(f"{key} {show_setting(value)}" for key, value in entry.options.items())
    alias = "" if entry.method in (None, name) else f"{entry.method}, " if options else entry.method
    return f"{name} ({alias}{options})" if alias or options else name


def _title(label: str, method: str | None) -> str:
    """Return a label in which the name of a built-in method is as papers write it.

    The method may be one that this version does not have.
    """
    return label if method not in METHODS else re.sub(rf"\b{method}\b", title_of(method), label, count=1)


def _rank(entry: MethodEntry, entries: Collection[MethodEntry]) -> tuple[bool, int]:
    """Return what sorts methods: baseline methods last, and by the sum of their ranks in soundness and completeness."""
    total = 0
    for metric in ("soundness_rank", "completeness_share"):
        own, values = _value(entry, metric), [_value(each, metric) for each in entries]
        total += sum(value is not None and (own is None or value > own) for value in values)
    return entry.baseline, total


def _value(entry: MethodEntry, metric: str) -> float | None:
    return entry.scores[metric].value if metric in entry.scores else None


def _columns(key: str, settings: Mapping[str, JSON], *, known: bool) -> Iterator[Column]:
    about = described_metric(settings).about
    area = Column(
        key=key,
        heading=f"{about.heading} {about.arrow}",
        summary=about.summary,
        descending=about.higher_is_better,
        chance=about.chance,
    )
    yield area
    if known:
        summary = "The same number from the known Shapley value of every feature"
        yield replace(area, key=f"{key}_truth", heading=f"true {about.heading}", summary=summary, chance=None)
    summary = f"How much better in {about.title.lower()} than the same maps exchanged between the samples"
    yield Column(key=f"{key}_skill", heading=f"skill in {about.heading} ↑", summary=summary, kind="skill")


def _cells(entry: MethodEntry, columns: Sequence[Column]) -> Iterator[Cell]:
    for column in columns:
        metric = column.key.removesuffix("_skill").removesuffix("_truth")
        if column.key == "milliseconds":
            yield Cell(estimate=Estimate(value=None if entry.seconds is None else 1000 * entry.seconds, samples=0))
        elif column.key == "calls":
            yield Cell(estimate=Estimate(value=entry.calls, samples=0))
        elif (score := entry.scores.get(metric)) is None:
            yield Cell()
        elif column.kind == "skill":
            yield _skill_cell(score)
        elif column.key == metric:
            yield Cell(estimate=Estimate(value=score.value, low=score.low, high=score.high, samples=score.samples))
        else:
            yield Cell(estimate=Estimate(value=score.truth, samples=score.samples))


def _skill_cell(score: Score) -> Cell:
    skill = Estimate(value=score.skill, low=score.skill_low, high=score.skill_high, samples=score.samples, p=score.p)
    curve = CurveResults(area=skill, skill=skill, levels=(), performance=(), values=(), low=(), high=())
    details = None if score.control is None else f"exchanged {score.control:z.3f}"
    return Cell(estimate=skill, signed=True, direction=curve.direction, details=details)


def board_markdown(tasks: Sequence[BoardTask]) -> str:
    """Format the tables of all tasks as Markdown."""
    parts = [_LEGEND]
    for task in tasks:
        lines = [f"### {escape_markdown(f'{task.label}: {task.title}')}", escape_markdown(task.about)]
        lines += [escape_markdown(task.note)] if task.note else []
        lines.append(markdown_table(task.table, 3, "inline").rstrip())
        lines += [f"- {escape_markdown(name)}: {escape_markdown(why)}" for name, why in _refusals(task).items()]
        parts.append("\n\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _refusals(task: BoardTask) -> dict[str, str]:
    """Return the reasons for which methods are missing, each once, by the names of the methods."""
    by_reason: dict[str, list[str]] = {}
    for name, why in sorted(task.refused.items()):
        by_reason.setdefault(why.replace(name, "it"), []).append(title_of(name))
    return {f"Refused by {', '.join(names)}": why for why, names in by_reason.items()}


def _styles(submissions: Sequence[Submission]) -> dict[str, tuple[str, MethodStyle]]:
    """Return the name in `METHODS` and the style of every method, by its title."""
    entries = {
        _title(method_label(name, entry), entry.method): (entry.method or name, entry.baseline)
        for submission in submissions
        for task in submission.tasks.values()
        for name, entry in task.methods.items()
    }
    styles = styles_of(
        {name for name, _ in entries.values()}, {name for name, baseline in entries.values() if baseline}
    )
    return {label: (name, styles[name]) for label, (name, _) in entries.items()}


def board_page(submissions: Sequence[Submission]) -> str:
    """Build the page: one HTML file that makes no network requests."""
    tasks, styles = board_tasks(submissions), _styles(submissions)
    own = resources.files("twinlens.suites")
    script, style = ((own / name).read_text(encoding="utf-8") for name in ("leaderboard.js", "leaderboard.css"))
    kinds = {
        label: _KINDS[BUILT_IN[name].symbol] if BUILT_IN.get(name) == each else _OTHERS
        for label, (name, each) in styles.items()
    }
    content: dict[str, JSON] = {
        "runs": [],
        "styles": {label: to_json(each) for label, (_, each) in styles.items()},
        "directions": to_json(DIRECTIONS),
        "legend": _LEGEND,
        "kinds": dict(kinds),
        "tasks": [_described(task) for task in tasks],
    }
    fallback = "".join(
        f"<h2>{html.escape(task.label)}</h2><p>{html.escape(task.about)}</p>{table_html(task.table, several=False)}"
        for task in tasks
    )
    title = "which explanation, on which model"
    scripts = [*map(read_part, _SCRIPTS), script]
    return assemble_page(title, content, read_part("style.css") + style, scripts, fallback)


def _described(task: BoardTask) -> JSON:
    columns, rows = to_json(task.table.columns), to_json(task.table.rows)
    for column in columns:
        del column["headline"]  # all columns are shown
    for row, own in zip(rows, task.table.rows, strict=True):
        row["method"] = own.title
    about: dict[str, JSON] = {
        "label": task.label,
        "suite": task.suite,
        "title": task.title,
        "kind": task.kind,
        "about": task.about,
        "note": task.note,
        "columns": columns,
        "rows": rows,
        "refused": {title_of(name): why for name, why in task.refused.items()},
        "refusals": [f"{names}: {why}" for names, why in _refusals(task).items()],
    }
    return about
