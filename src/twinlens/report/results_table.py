"""The results table as values: columns, rows and cells, which the terminal, the page, papers and notebooks format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from twinlens.run.results import CurveResults, Results
from twinlens.run.wording import name_of, performance_of
from twinlens.statistics.contrasts import RunPair
from twinlens.statistics.margin import fewest_controlled
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import FEWEST

if TYPE_CHECKING:
    from twinlens.run.check_records import Check
    from twinlens.run.stored_run import StoredRun

UNDEFINED = "–"
DIRECTIONS = {
    "better": ("▲", "better than maps from other inputs"),
    "undecided": ("≈", "not decided whether better than maps from other inputs"),
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

    @property
    def title(self) -> str:
        """The heading in one line."""
        return self.heading.replace("-\n", "").replace("\n", " ")


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
    def text(self) -> str:
        """The number with three digits."""
        return UNDEFINED if self.estimate is None else format_number(self.estimate.value, signed=self.signed)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval, or None."""
        return None if self.estimate is None else self.estimate.interval


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method of one run, or between two runs."""

    group: str = field(metadata=_NOT_ON_THE_PAGE)
    """Label of the run, or of both."""
    method: str
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


def format_number(value: float | None, *, signed: bool = False) -> str:
    """Return a number with three digits, without a negative zero."""
    return UNDEFINED if value is None else f"{value:{'+' if signed else ''}z.3f}"


def results_table(evaluations: Sequence[StoredRun], labels: Sequence[str]) -> ResultsTable:
    """Build the table of one or several runs.

    Each metric has a column. The headline metrics of soundness and completeness have their skill next to them, where it
    was measured. Sparseness and numbers from checks follow. Bold is the best method where it is significantly better
    than all other candidates; baseline methods come last and are never bold.
    """
    sides = [side_columns(evaluation) for evaluation in evaluations]
    runs = [evaluation.results for evaluation in evaluations]
    metrics = dict.fromkeys(metric for results in runs for metric in results.settings.metrics)
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
    better, heading = about.higher_is_better, f"{about.heading} {about.arrow}"
    columns = [Column(key=metric, heading=heading, summary=about.summary, descending=better, chance=about.chance)]
    if any(metric in results.sides and results.with_skill(metric) for results in having):
        summary = f"How much better in {name_of(having[0], metric)} than the same maps exchanged between the samples"
        columns.append(Column(key=f"{metric}_skill", heading="skill ↑", summary=summary, kind="skill"))
    return columns


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
    return Cell(estimate=curve.area, bold=method == results.best(metric), details=", ".join(details), curve=curve)


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
    few = [_too_few(fewest_controlled())] if skill.samples < fewest_controlled() else []
    numbers += few if skill.p is None else [f"p = {skill.p:.3f}"]
    return ", ".join([*numbers, f"{skill.samples} samples"]).replace("-", "−")


def _too_few(fewest: int) -> str:
    return f"no interval and no p-value with fewer than {fewest} samples"


def _side_cell(estimate: Estimate | None) -> Cell:
    return Cell() if estimate is None else Cell(estimate=estimate, details=f"{estimate.samples} samples have a value")


def side_columns(evaluation: StoredRun) -> dict[Column, Mapping[str, Estimate]]:
    """Return the columns beside the metrics, each with the number of every method that has one.

    Sparseness comes with every run. Other columns need more model calls and exist once `twinlens check` has run.
    """
    methods = evaluation.results.methods
    sparse = {name: method.properties["sparseness"] for name, method in methods.items() if method.properties}
    columns: dict[Column, Mapping[str, Estimate]] = {}
    if sparse:
        summary = "Gini index of the maps: 0 where attribution is spread evenly, near 1 where few features have it all"
        columns[Column(key="sparseness", heading="sparse-\nness", summary=summary, kind="side")] = sparse
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
    """Build the table of a check, with the methods in this order."""
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


def describe_columns(results: Results) -> str:
    """Return what the columns of a run's table mean, in a few sentences."""
    limits = "".join(
        f" {name_of(results, metric)} up to {performance_of(results, metric)} {high:.2f};"
        for metric, high in results.soundness_up_to.items()
    )
    few = results.data.samples < FEWEST
    intervals = f"no intervals with fewer than {FEWEST} samples" if few else "below, 95% intervals"
    text = f"One number for each curve:{limits} ↑ more is better, ↓ less is better; {intervals}."
    chance = {name_of(results, name): results.about(name).chance for name in results.settings.metrics}
    levels = [f"{name} {level:g}" for name, level in chance.items() if level is not None]
    text += f" By chance: {', '.join(levels)}." if levels else ""
    if any(map(results.with_skill, results.sides)):
        text += " Skill: how much better than the same maps exchanged between the samples; 0 means no better."
    if any(method.properties for method in results.methods.values()):
        text += " Sparseness: near 1 where few features have all attribution; neither more nor less is better."
    return text
