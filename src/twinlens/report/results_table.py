"""The results table as values: columns, rows and cells, which the terminal, the page, papers and notebooks format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from twinlens.attribution import title_of
from twinlens.errors import unknown
from twinlens.report.method_summary import changed_options
from twinlens.run.results import CurveResults, Results
from twinlens.run.wording import listed, name_of, performance_of
from twinlens.statistics.contrasts import RunPair
from twinlens.statistics.margin import fewest_controlled
from twinlens.support.estimate import Estimate
from twinlens.support.fields import JSON
from twinlens.support.resampling import FEWEST

if TYPE_CHECKING:
    from twinlens.run.check_records import Check
    from twinlens.run.stored_run import StoredRun

UNDEFINED = "–"
DIRECTIONS = {
    "better": ("▲", "better than maps from other inputs"),
    "undecided": ("≈", "neither clearly better nor clearly worse than maps from other inputs"),
    "worse": ("▼", "worse than maps from other inputs"),
}
"""Sign and meaning of a skill."""
_NOT_ON_THE_PAGE = {"stored": False}


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of numbers."""

    key: str
    """Its name in CSV files and data frames."""
    heading: str
    """Its title with an arrow towards better values; it may have line breaks."""
    summary: str = ""
    kind: Literal["area", "skill", "side"] = "area"
    """The area by a metric, the skill by the metric before it, or a number beside the metrics."""
    descending: bool = True
    """Whether sorting by it puts large values first."""
    chance: float | None = None
    """The area of random maps, where the metric knows it."""
    headline: bool = False
    """Whether it belongs to the headline metrics: soundness and completeness, each with its skill."""
    digits: int | None = None
    """Digits after the decimal point; by default those of the table."""

    @property
    def title(self) -> str:
        """The heading in one line."""
        return self.heading.replace("\n", " ")

    @property
    def name(self) -> str:
        """The heading in one line, without its arrow."""
        return self.title.rstrip(" ↑↓")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of the table."""

    estimate: Estimate | None = None
    """None where it was not measured."""
    signed: bool = False
    bold: bool = False
    """Whether it is clear of all others in a headline column, or a significant difference."""
    direction: str | None = None
    """For a skill, a key of `DIRECTIONS`; None without an interval."""
    details: str | None = None
    """More about it, in a line."""
    remark: str | None = None
    """A short note below the number."""
    curve: CurveResults | None = field(default=None, metadata=_NOT_ON_THE_PAGE)
    """For an area, the curve with its exchanged control and skill."""

    @property
    def measured(self) -> bool:
        """Whether there is a number."""
        return self.estimate is not None and self.estimate.value is not None

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval, or None."""
        return None if self.estimate is None else self.estimate.interval

    def text(self, digits: int = 3) -> str:
        """Return the number with this many digits."""
        return format_number(self.estimate.value if self.estimate else None, signed=self.signed, digits=digits)

    def interval(self, digits: int) -> str:
        """Return the interval with this many digits, or nothing."""
        return "" if self.ends is None else "[{}, {}]".format(*(format_number(e, digits=digits) for e in self.ends))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method of one run, or between two runs."""

    group: str = field(metadata=_NOT_ON_THE_PAGE)
    """Label of the run, or of both."""
    method: str
    title: str = field(default="", metadata=_NOT_ON_THE_PAGE)
    """The method's name as papers write it; empty in tables that are not for papers."""
    cells: tuple[Cell, ...]
    baseline: bool = False
    front: float | None = None
    """Share of resamples in which it is on the Pareto front; None for a method that is not on it."""
    seconds: float | None = field(default=None, metadata=_NOT_ON_THE_PAGE)


@dataclass(frozen=True, kw_only=True)
class ResultsTable:
    """A table with one row per method, by group and then best first."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def select(self, columns: Sequence[str]) -> ResultsTable:
        """Return the table with some columns, by key; "headline" and "all" stand for several."""
        keys = [column.key for column in self.columns]
        groups = {"headline": [column.key for column in self.columns if column.headline] or keys, "all": keys}
        for name in columns:
            if name not in (*keys, *groups):
                raise unknown("columns", name, [*groups, *keys])
        chosen = dict.fromkeys(key for name in columns for key in groups.get(name, [name]))
        places = [keys.index(key) for key in chosen]
        alone = [k for before, k in pairwise([-1, *places]) if self.columns[k].kind == "skill" and before != k - 1]
        heads = {k: replace(self.columns[k], heading=f"{self.columns[k - 1].name} skill ↑") for k in alone}
        return ResultsTable(
            columns=tuple(heads.get(k, self.columns[k]) for k in places),
            rows=tuple(replace(row, cells=tuple(row.cells[k] for k in places)) for row in self.rows),
        )


def format_number(value: float | None, *, signed: bool = False, digits: int = 3) -> str:
    """Return a number with this many digits, without a negative zero."""
    return UNDEFINED if value is None else f"{value:{'+' if signed else ''}z.{digits}f}"


def without_zeros(text: str) -> str:
    """Return text whose numbers begin with the decimal point, for narrow columns.

    Example:
        >>> without_zeros("[-0.10, 10.25]")
        '[-.10, 10.25]'
    """
    return re.sub(r"(?<![0-9])0\.", ".", text)


def method_title(run: StoredRun, method: str) -> str:
    """Return the name of a run's method as papers write it; your own names and methods keep theirs."""
    record = run.manifest.methods.get(method)
    return title_of(method) if record is not None and record.method == method else method


def method_options(run: StoredRun, method: str) -> dict[str, JSON]:
    """Return the options of a run's method that differ from its defaults and may change its maps."""
    record = run.manifest.methods.get(method)
    return {} if record is None else changed_options(record)


def results_table(
    evaluations: Sequence[StoredRun], labels: Sequence[str], names: Mapping[str, str] | None = None
) -> ResultsTable:
    """Build the table of one or several runs; `names` are your own titles of methods.

    Each metric has a column. The headline metrics, soundness and completeness, come first, with their skill next to
    them where it was measured. Sparseness and numbers from checks are last. Bold is the best method of a headline
    column, where it is clearly better than all others with skill; baseline methods come last and are never bold.
    """
    sides = [side_columns(evaluation) for evaluation in evaluations]
    runs = [evaluation.results for evaluation in evaluations]
    headline = [metric for results in runs for metric in results.sides]
    metrics = dict.fromkeys([*headline, *(metric for results in runs for metric in results.settings.metrics)])
    columns = [column for metric in metrics for column in _metric_columns(runs, metric)]
    columns += {column.key: column for columns in reversed(sides) for column in columns}.values()
    rows = []
    for evaluation, label, own in zip(evaluations, labels, sides, strict=True):
        numbers = {column.key: values for column, values in own.items()}
        results, seconds = evaluation.results, evaluation.seconds()
        rows += [
            Row(
                group=label,
                method=method,
                title=(names or {}).get(method, method_title(evaluation, method)),
                cells=tuple(
                    _side_cell(numbers.get(column.key, {}).get(method))
                    if column.kind == "side"
                    else _metric_cell(results, method, column)
                    for column in columns
                ),
                baseline=results.methods[method].baseline,
                front=results.front.get(method),
                seconds=seconds.get(method),
            )
            for method in results.best_first()
        ]
    return ResultsTable(columns=tuple(columns), rows=tuple(rows))


def _metric_columns(runs: Sequence[Results], metric: str) -> list[Column]:
    """Return the column of a metric, and that of its skill if it is a headline metric that has one."""
    having = [results for results in runs if metric in results.settings.metrics]
    about = having[0].about(metric)
    area = Column(
        key=metric,
        heading=f"{about.heading} {about.arrow}",
        summary=about.summary,
        descending=about.higher_is_better,
        chance=about.chance,
        headline=any(metric in results.sides for results in having),
    )
    if not (area.headline and any(results.with_skill(metric) for results in having)):
        return [area]
    summary = f"How much better in {name_of(having[0], metric)} than the same maps exchanged between the samples"
    return [area, Column(key=f"{metric}_skill", heading="skill ↑", summary=summary, kind="skill", headline=True)]


def _metric_cell(results: Results, method: str, column: Column) -> Cell:
    metric = column.key if column.kind == "area" else column.key.removesuffix("_skill")
    curve = results.methods[method].metrics.get(metric)
    if curve is None:
        return Cell()
    skill = _skill_details(curve)
    if column.kind == "skill":
        return Cell(estimate=curve.skill, signed=True, direction=curve.direction, details=skill)
    ranks = [row for row in results.ranking if (row.metric, row.method) == (metric, method)]
    spans = ["rank " + " to ".join(map(str, dict.fromkeys((row.best_rank, row.worst_rank)))) for row in ranks]
    details = [UNDEFINED if curve.area.value is None else repr(curve.area.value), *spans, *([skill] if skill else [])]
    best = len(results.methods) > 1 and method == results.best(metric)
    return Cell(estimate=curve.area, bold=best, details=", ".join(details), curve=curve)


def _skill_details(curve: CurveResults) -> str | None:
    skill, control = curve.skill, curve.control
    if skill is None or skill.value is None:
        return None
    ends = "" if skill.interval is None else " ({} to {})".format(*(f"{end:+z.3f}" for end in skill.interval))
    meaning = "" if curve.direction is None else f": {DIRECTIONS[curve.direction][1]}"
    numbers = [
        f"skill {skill.value:+z.3f}{ends}{meaning}",
        f"exchanged {format_number(control.value if control else None)}",
    ]
    texts = [number.replace("-", "−") for number in numbers]
    few = [_too_few(fewest_controlled())] if skill.samples < fewest_controlled() else []
    texts += few if skill.p is None else [f"p = {skill.p:.3f}"]
    return ", ".join([*texts, f"{skill.samples} samples"])


def _too_few(fewest: int) -> str:
    return f"no interval and no p-value with fewer than {fewest} samples"


def _side_cell(estimate: Estimate | None) -> Cell:
    return Cell() if estimate is None else Cell(estimate=estimate, details=f"{estimate.samples} samples have a value")


def side_columns(evaluation: StoredRun) -> dict[Column, Mapping[str, Estimate]]:
    """Return the columns beside the metrics, each with the number of every method that has one.

    Sparseness comes with every run. Other columns need more model calls and exist once `twinlens check` has run.
    """
    methods = evaluation.results.methods
    properties = {name: method.properties for name, method in methods.items()}
    sparse = {name: own["sparseness"] for name, own in properties.items() if "sparseness" in own}
    columns: dict[Column, Mapping[str, Estimate]] = {}
    if sparse:
        summary = "Gini index of the maps: 0 where attribution is spread evenly, near 1 where few features have it all"
        columns[Column(key="sparseness", heading="sparseness", summary=summary, kind="side")] = sparse
    for check in evaluation.checks().values() if methods else ():
        for k, column in enumerate(check.columns):
            if column.beside is not None:
                side = Column(
                    key=check.name.replace("-", "_"),
                    heading=f"{column.beside}{column.arrow}",
                    summary=f"{check.title}, {column.title}, on {check.samples} samples. {check.question}",
                    kind="side",
                    descending=column.better != "lower",
                )
                columns[side] = {name: check.methods[name].values[k] for name in methods if name in check.methods}
    return columns


def check_table(check: Check, methods: Sequence[str]) -> ResultsTable:
    """Build the table of a check, with the methods, or its other rows, in this order."""
    columns = tuple(Column(key=column.title, heading=column.heading, kind="side") for column in check.columns)
    rows = [
        Row(
            group=check.name,
            method=method,
            cells=tuple(_check_cell(estimate, check.samples) for estimate in check.methods[method].values),
        )
        for method in methods
    ]
    return ResultsTable(columns=columns, rows=tuple(rows))


def check_steps_table(check: Check) -> ResultsTable:
    """Build the table of a check's steps: one row per step, one column per row of the check."""
    columns = tuple(Column(key=name, heading=name, kind="side") for name in check.methods)
    rows = [
        Row(
            group=check.name,
            method=step,
            cells=tuple(_check_cell(row.course[k], check.samples) for row in check.methods.values()),
        )
        for k, step in enumerate(check.steps)
    ]
    return ResultsTable(columns=columns, rows=tuple(rows))


def _check_cell(estimate: Estimate, samples: int) -> Cell:
    share = f"{estimate.samples} of {samples}"
    remark = share if estimate.samples < samples else None
    return Cell(estimate=estimate, details=f"{share} samples have a value", remark=remark)


def differences_table(pairs: Sequence[RunPair], runs: Sequence[Results]) -> ResultsTable:
    """Build the table of differences between runs; as in `results_table`, only headline metrics have their skill."""
    sides = {metric for results in runs for metric in results.sides}
    shown = [pair for pair in pairs if pair.quantity == "area" or pair.metric in sides]
    keys = list(dict.fromkeys((pair.metric, pair.quantity) for pair in shown))
    columns = []
    for metric, quantity in keys:
        about = next(results.about(metric) for results in runs if metric in results.settings.metrics)
        area = quantity == "area"
        heading = f"{about.heading} {about.arrow}" if area else "skill ↑"
        columns.append(Column(key=metric if area else f"{metric}_skill", heading=heading, kind=quantity))
    numbers = {(pair.first, pair.second, pair.method, pair.metric, pair.quantity): pair for pair in shown}
    rows = [
        Row(
            group=f"{first} − {second}",
            method=method,
            cells=tuple(_difference_cell(numbers.get((first, second, method, *key))) for key in keys),
        )
        for first, second, method in dict.fromkeys(key[:3] for key in numbers)
    ]
    return ResultsTable(columns=tuple(columns), rows=tuple(rows))


def _difference_cell(pair: RunPair | None) -> Cell:
    if pair is None:
        return Cell()
    p, alone = (format_number(p) for p in (pair.difference.p, pair.p_alone))
    fewest = FEWEST if pair.quantity == "area" else fewest_controlled()
    without = _too_few(fewest) if pair.difference.samples < fewest else "without an interval"
    details = without if pair.difference.p is None else f"p = {p}, by itself {alone}"
    details += f", {describe_samples_of(pair)}"
    return Cell(estimate=pair.difference, signed=True, bold=pair.decided, details=details)


def describe_samples_of(pair: RunPair) -> str:
    """Return how many samples of two runs were compared."""
    one, other = pair.samples
    return f"{one} samples, paired" if pair.paired else f"{one} and {other} independent samples"


def describe_columns(table: ResultsTable, intervals: str = "below") -> str:
    """Return what the columns and the bold numbers of a run's table mean; `intervals` is where they are, or "none"."""
    down = any("↓" in column.heading for column in table.columns)
    where = {"below": "; below, 95% intervals", "inline": "; in brackets, 95% intervals", "none": ""}[intervals]
    curves = [cell.curve for row in table.rows for cell in row.cells if cell.curve]
    if where and curves and all(curve.area.samples < FEWEST for curve in curves):
        where = f"; no intervals with fewer than {FEWEST} samples"
    sentences = [f"↑ more is better{', ↓ less is better' if down else ''}{where}."]
    chance: dict[float, list[str]] = {}
    for column in table.columns:
        if column.chance is not None:
            chance.setdefault(column.chance, []).append(column.name)
    sentences += [
        f"By chance, {listed(names)} {'is' if len(names) == 1 else 'are'} {level:g}." for level, names in chance.items()
    ]
    if any(column.kind == "skill" for column in table.columns):
        sentences.append("Skill: how much better than the same maps exchanged between the samples; 0 means no better.")
    if any(column.key == "sparseness" for column in table.columns):
        sentences.append("Sparseness: near 1 where few features have all attribution; neither more nor less is better.")
    if any(column.headline for column in table.columns):
        cells = [cell for row in table.rows for cell in row.cells]
        bold, skill = any(cell.bold for cell in cells), any(cell.curve and cell.curve.skill for cell in cells)
        clear = f"clearly better than {'the baselines and all other methods with skill' if skill else 'all others'}"
        sentences.append(f"Bold: {clear}." if bold else f"Nothing is bold: no method is {clear}.")
    return " ".join(sentences)


def describe_settings(run: StoredRun, table: ResultsTable) -> str:
    """Return in how many steps or levels a run measured the columns of a table; empty for columns of other runs."""
    groups: dict[str, list[str]] = {}
    for column in table.columns:
        if column.kind == "area" and column.key in run.results.settings.metrics:
            groups.setdefault(_measured(run.results, column.key), []).append(column.name)
    text = "; ".join(f"{listed(names)}: {measured}" for measured, names in groups.items())
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def describe_options(run: StoredRun, names: Mapping[str, str] | None = None) -> str:
    """Return the options of the methods that do not have their defaults, in a sentence; `names` are other names."""
    texts = []
    for method in run.results.best_first():
        options = [f"{key.replace('_', ' ')} {value}" for key, value in method_options(run, method).items()]
        texts += [f"{(names or {}).get(method, method)} {', '.join(options)}"] if options else []
    return f"Options: {'; '.join(texts)}." if texts else ""


def _measured(results: Results, metric: str) -> str:
    """Return the steps or levels of a metric, and what else its numbers depend on."""
    settings = results.settings.metrics[metric]
    if not results.kind(metric).needs_performance:
        return f"{settings['steps']} steps"
    levels = max(
        (len(method.metrics[metric].levels) for method in results.methods.values() if metric in method.metrics),
        default=0,
    )
    measure, high = performance_of(results, metric), results.soundness_up_to.get(metric)
    epsilon = f", ε = {settings['epsilon']:g}" if "epsilon" in settings else ""
    return f"{levels} levels, {measure}{'' if high is None else f' up to {high:.2f}'}{epsilon}"
