"""Submissions: the numbers of a suite in one small file, without maps, and what can be checked without the run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twinlens.attribution import METHODS
from twinlens.errors import RunError, first_line, short_repr
from twinlens.metrics.catalogue import described_metric
from twinlens.metrics.metric import About
from twinlens.outcome import Evaluation
from twinlens.report.method_summary import changed_options
from twinlens.run.directory import is_name
from twinlens.run.manifest import MethodRecord, differences
from twinlens.run.results import CurveResults
from twinlens.suites.definition import Suite, built_in_suites, content_digest
from twinlens.suites.running import SuiteRun, TaskRecord, deviations
from twinlens.support.estimate import Estimate
from twinlens.support.fields import JSON, from_json, to_json
from twinlens.support.files import as_path, read_whole

FORMAT = 1
_LARGEST = 2**24  # bytes of a submission
_ROUNDING = 1e-9
_SHARES = ("soundness_rank", "completeness_share", "calibration")
"""Metrics whose numbers lie within 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One method by one metric; null where a number is not defined or was not measured."""

    value: float | None
    """Area of the curve."""
    low: float | None
    """Lower end of its 95% interval."""
    high: float | None
    """Upper end."""
    control: float | None
    """The same for maps exchanged between the samples."""
    skill: float | None
    """How much better the method's own maps are: value less control, or control less value where less is better."""
    skill_low: float | None
    """Lower end of its 95% interval."""
    skill_high: float | None
    """Upper end."""
    p: float | None
    """Two-sided p-value of no skill."""
    samples: int
    """Number of samples behind the value."""
    truth: float | None = None
    """The same number from known Shapley values; only in the laboratory."""


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """One method on one task."""

    method: str | None
    """Its name among the built-in methods; null for those of other packages."""
    source: str | None = None
    """Digest of the source of a method of another package."""
    options: Mapping[str, JSON] = field(default_factory=dict)
    """Options that differ from the method's defaults."""
    baseline: bool
    """Whether it is a baseline method, which ignores the model."""
    seconds: float | None
    """Seconds per sample for its maps, on the machine of the run."""
    calls: float | None
    """Inputs that it passes to the model per sample."""
    scores: Mapping[str, Score]
    """Numbers by metric."""


@dataclass(frozen=True, kw_only=True)
class TaskEntry:
    """One task of the suite."""

    model: str
    """Name of the model."""
    model_digest: str
    """Digest of its code, weights and packages."""
    data: str
    """Name of the data."""
    data_digest: str
    """Digest of ids, labels and content of the samples."""
    samples: int
    """Number of samples."""
    accuracy: float | None
    """Accuracy of the model; null for a regression."""
    confidence: float | None
    """Mean probability of the labels; null for a regression."""
    metrics: Mapping[str, Mapping[str, JSON]]
    """Metrics with all their settings."""
    methods: Mapping[str, MethodEntry]
    """Methods by name."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Methods that refuse this model or these samples, with their reasons."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """The numbers of one run of a suite."""

    format: int = FORMAT
    """Version of the layout."""
    suite: Suite
    """The suite that was run."""
    digest: str
    """Digest of what it measures."""
    versions: Mapping[str, str]
    """Versions of twinlens, Python and the packages that compute results."""
    tasks: Mapping[str, TaskEntry]
    """Tasks by name."""
    content: str = ""
    """Digest of all other fields. It shows accidents, not forgery: anybody can compute it."""


def make_submission(run: SuiteRun) -> Submission:
    """Return the numbers of the run of a suite."""
    record = run.record
    tasks = {name: _task_entry(run.evaluations[name], own) for name, own in record.tasks.items()}
    made = Submission(suite=record.suite, digest=record.digest, versions=record.versions, tasks=tasks)
    return Submission(**{**vars(made), "content": _content(made)})


def _content(submission: Submission) -> str:
    return content_digest({name: value for name, value in to_json(submission).items() if name != "content"})


def _task_entry(evaluation: Evaluation, record: TaskRecord) -> TaskEntry:
    results = evaluation.results
    seconds = evaluation.run.seconds_by_task()
    return TaskEntry(
        model=results.model.name,
        model_digest=results.model.digest,
        data=results.data.name,
        data_digest=results.data.digest,
        samples=results.data.samples,
        accuracy=None if math.isnan(results.accuracy) else results.accuracy,
        confidence=record.confidence,
        metrics=results.settings.metrics,
        methods={
            name: _method_entry(evaluation, record, name, seconds.get(f"{name}/maps")) for name in results.best_first()
        },
        refused=record.refused,
    )


def _method_entry(evaluation: Evaluation, record: TaskRecord, name: str, seconds: float | None) -> MethodEntry:
    results = evaluation.results.methods[name]
    origin = evaluation.manifest.methods.get(name, MethodRecord())
    known = record.truth.get(name, {})
    return MethodEntry(
        method=origin.method if origin.method in METHODS else None,
        source=origin.source or origin.maps,
        options=changed_options(origin),
        baseline=results.baseline,
        seconds=None if seconds is None else round(seconds / evaluation.results.data.samples, 6),
        calls=record.calls.get(name),
        scores={metric: _score(curve, known.get(metric)) for metric, curve in results.metrics.items()},
    )


def _score(curve: CurveResults, truth: float | None) -> Score:
    none = Estimate(value=None, samples=0)
    area, control, skill = curve.area, curve.control or none, curve.skill or none
    return Score(
        value=area.value,
        low=area.low,
        high=area.high,
        control=control.value,
        skill=skill.value,
        skill_low=skill.low,
        skill_high=skill.high,
        p=skill.p,
        samples=area.samples,
        truth=truth,
    )


def read_submission(path: str | Path) -> Submission:
    """Read a submission, and refuse what is none; its numbers are checked by `problems`."""
    file = as_path(path)

    def refuse(number: str) -> None:
        raise ValueError(f"it holds {number}, which is no number of JSON")

    try:
        stored = json.loads(read_whole(file, _LARGEST).decode(), parse_constant=refuse)
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise ValueError(f"`format` must be {FORMAT}: it is no submission, or one of another twinlens")
        submission = from_json(Submission, stored, "submission")
    except (ValueError, TypeError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else first_line(error).rstrip(".")
        raise RunError(f"{str(file)!r} is no submission: {reason}. `twinlens suite export` makes one.") from None
    names = [
        *submission.tasks,
        *(name for task in submission.tasks.values() for name in (*task.methods, *task.refused)),
    ]
    for name in names:
        if not is_name(name):
            raise RunError(f"{str(file)!r} is no submission: {short_repr(name)} is no name of a task or method.")
    return submission


def problems(submission: Submission) -> list[str]:
    """Return what is wrong with a submission, as far as it shows without the run; empty if nothing."""
    suite, found = submission.suite, list[str]()
    if submission.content != _content(submission):
        found.append("the file was changed after it was exported: `content` is not its digest")
    if submission.digest != suite.digest():
        found.append(f"{suite} measures something else: `digest` is not that of `suite`")
    here = built_in_suites().get(str(suite))
    if here is not None and here.digest() != suite.digest():
        changed = differences(to_json(here), to_json(suite), places=("in the submission", "in this twinlens"))
        found.append(f"{suite} is not the one of this twinlens: {'; '.join(changed[:3])}")
    for name in suite.tasks:
        if name not in submission.tasks:
            found.append(f"{name}: the task is missing")
    for name, task in submission.tasks.items():
        if name not in suite.tasks:
            found.append(f"{name}: {suite} has no such task")
            continue
        found += deviations(
            here if here is not None and name in here.tasks else suite, name, task.data_digest, task.confidence
        )
        found += [f"{name}: {problem}" for problem in _task_problems(task)]
    return found


def _task_problems(task: TaskEntry) -> Iterator[str]:
    if task.samples < 1:
        yield f"`samples` must be at least 1; it is {task.samples}"
    for number, where in ((task.accuracy, "accuracy"), (task.confidence, "confidence")):
        if number is not None and not 0 <= number <= 1:
            yield f"`{where}` must lie within 0 and 1; it is {number:g}"
    for name, entry in task.methods.items():
        for cost in ("seconds", "calls"):
            if (number := getattr(entry, cost)) is not None and number < 0:
                yield f"{name}: `{cost}` must not be negative; it is {number:g}"
        if name in task.refused:
            yield f"{name}: it has numbers, and refuses the task"
        for metric in {*task.metrics, *entry.scores}:
            if metric not in task.metrics or metric not in entry.scores:
                yield f"{name}: {metric} is not among its scores and the task's metrics alike"
        for metric, score in entry.scores.items():
            if metric not in task.metrics:
                continue
            settings = task.metrics[metric]
            try:
                about = described_metric(settings).about
            except (KeyError, ValueError, TypeError) as error:
                yield f"{metric}: its settings cannot be read: {first_line(error)}"
                continue
            shares = settings.get("metric") in _SHARES
            yield from (f"{name}, {metric}: {text}" for text in _score_problems(score, task.samples, about, shares))


def _score_problems(score: Score, samples: int, about: About, shares: bool) -> Iterator[str]:
    if not 0 <= score.samples <= samples:
        yield f"`samples` must lie within 0 and {samples}; it is {score.samples}"
    if score.p is not None and not 0 <= score.p <= 1:
        yield f"`p` must lie within 0 and 1; it is {score.p:g}"
    for number, name in ((score.value, "value"), (score.truth, "truth")):
        if shares and number is not None and not -_ROUNDING <= number <= 1 + _ROUNDING:
            yield f"`{name}` must lie within 0 and 1; it is {number:g}"
    for low, number, high, name in (
        (score.low, score.value, score.high, "value"),
        (score.skill_low, score.skill, score.skill_high, "skill"),
    ):
        if (low is None) != (high is None) or (low is not None and number is None):
            yield f"the interval of `{name}` is incomplete"
        elif (
            low is not None
            and high is not None
            and number is not None
            and not low - _ROUNDING <= number <= high + _ROUNDING
        ):
            yield f"`{name}` {number:g} lies outside its interval"
    if score.skill is not None:
        sign = 1 if about.higher_is_better else -1
        gained = None if score.value is None or score.control is None else sign * (score.value - score.control)
        if gained is None or not math.isclose(score.skill, gained, abs_tol=_ROUNDING):
            yield f"`skill` {score.skill:g} is not the difference of `value` and `control`"
