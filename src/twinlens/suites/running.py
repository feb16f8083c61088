"""Running a suite: every task is a run of `evaluate`, and suite.json beside them says what was measured.

DIR/suite.json     the suite, its digest, and what identifies the model, samples and settings of every task
DIR/TASK/          the run of a task
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from twinlens.attribution import find_ensemble
from twinlens.data.samples import Samples
from twinlens.data.sources import open_data
from twinlens.errors import DataError, RunError, first_line
from twinlens.evaluation import evaluate
from twinlens.laboratory.truth import true_steps
from twinlens.metrics.step_curve import area_under
from twinlens.outcome import Evaluation, open_evaluation
from twinlens.run.manifest import Manifest, MethodRecord, Settings, differences
from twinlens.suites.definition import Suite, SuiteTask
from twinlens.suites.task_sources import SOURCES
from twinlens.support.arrays import Floats
from twinlens.support.fields import from_json, to_json
from twinlens.support.files import as_path, read_whole, write_json
from twinlens.support.progress import Progress
from twinlens.support.versions import environment

FORMAT = 1
FILE = "suite.json"
_LARGEST = 2**24  # bytes of suite.json
_CLOSE = 1e-3  # mean probabilities that are those of one model on two machines


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """What identifies the measurement of a task."""

    model_digest: str
    """Digest of the model, as in run.json."""

    data_digest: str
    """Digest of ids, labels and content of the samples, as in run.json."""

    seed: int
    """Random seed."""

    settings: Settings
    """Metrics and settings, as in results.json."""

    confidence: float | None
    """Mean probability of the labels with nothing removed; None for a regression."""

    calls: Mapping[str, float] = field(default_factory=dict)
    """Inputs that each method passes to the model per sample."""

    refused: Mapping[str, str] = field(default_factory=dict)
    """Methods that refuse this model or these samples, with their reasons."""

    truth: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By method and metric, the same number from known Shapley values; only in the laboratory."""


@dataclass(frozen=True, kw_only=True)
class SuiteRecord:
    """The content of suite.json."""

    format: int = FORMAT
    """Version of the layout."""

    suite: Suite
    """The suite."""

    digest: str
    """Digest of what the suite measures."""

    versions: Mapping[str, str]
    """Versions of twinlens, Python and the packages that compute results."""

    tasks: Mapping[str, TaskRecord]
    """The tasks that are complete."""


@dataclass(frozen=True, kw_only=True)
class SuiteRun:
    """A run of a suite."""

    path: Path
    record: SuiteRecord
    evaluations: Mapping[str, Evaluation]
    """The results of each task."""


class CallCounter:
    """Passes on the progress of a run, and counts the inputs on which methods call the model to make their maps."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.rows, self.shards = progress, Counter[str](), Counter[str]()
        self._model: nn.Module | None = None
        self._method, self._hook = "", register_module_forward_pre_hook(self._first)

    def _first(self, module: nn.Module, _: object) -> None:
        self._model = self._model or module  # a run calls the model to try it before anything else
        self._hook.remove()

    def _count(self, module: nn.Module, inputs: Any) -> None:
        if module is self._model:
            self.rows[self._method] += len(inputs[0])

    def advance(self, task: str, rows: int, stage: str = "") -> None:
        """Count while maps are made."""
        self._hook.remove()
        if stage == "maps":
            self._method = task
            self.shards[task] += 1
            self._hook = register_module_forward_pre_hook(self._count)
        self.progress.advance(task, rows, stage)

    def begin(self, rows: Mapping[str, int], note: str = "") -> None:
        """Pass it on."""
        self.progress.begin(rows, note)

    def finished_on(self, node: str, rows: int) -> None:
        """Pass it on."""
        self.progress.finished_on(node, rows)

    def warn(self, message: str) -> None:
        """Pass it on."""
        self.progress.warn(message)

    def stop(self) -> None:
        """Count no longer."""
        self._hook.remove()

    def per_sample(self, manifest: Manifest) -> dict[str, float]:
        """Return the inputs per sample of each method; an interrupted run resumes with a method's last shards."""
        calls = {}
        for name, shards in self.shards.items():
            first = manifest.positions(manifest.shards - shards).start
            calls[name] = float(round(self.rows[name] / (manifest.data.samples - first)))
        return calls


@contextmanager
def _counting(progress: Progress) -> Iterator[CallCounter]:
    counter = CallCounter(progress)
    try:
        yield counter
    finally:
        counter.stop()


def run_suite(
    suite: Suite, tasks: Mapping[str, SuiteTask], methods: Mapping[str, Any], out: str, progress: Progress
) -> SuiteRun:
    """Run tasks of a suite in a directory, or resume; `tasks` are those of the suite with what it leaves open.

    A method that refuses a model is recorded with its reason. Other methods of an existing run are kept.
    """
    path = as_path(out)
    record = SuiteRecord(suite=suite, digest=suite.digest(), versions=environment() | suite.check_packages(), tasks={})
    if (path / FILE).exists():
        stored = read_record(path)
        if changes := _changes(record, stored):
            raise RunError(f"`out` {str(path)!r} holds another suite: {changes}. Choose another directory.")
        record = dataclasses.replace(record, tasks=stored.tasks)
    write_json(path / FILE, to_json(record))
    evaluations = {}
    for name, task in tasks.items():
        earlier = record.tasks.get(name)
        evaluation, own = _run_task(suite, task, methods, path / name, earlier, progress)
        record = dataclasses.replace(record, tasks={**record.tasks, name: own})
        write_json(path / FILE, to_json(record))
        evaluations[name] = evaluation
    return SuiteRun(path=path, record=record, evaluations=evaluations)


def _run_task(
    suite: Suite,
    task: SuiteTask,
    methods: Mapping[str, Any],
    out: Path,
    earlier: TaskRecord | None,
    progress: Progress,
) -> tuple[Evaluation, TaskRecord]:
    model, data, effects, arguments = _opened(suite, task)
    evaluating: Any = evaluate
    with _counting(progress) as counter:
        evaluation: Evaluation = evaluating(model, data, dict(methods), out=str(out), progress=counter, **arguments)
    known = earlier or TaskRecord(**_identity(evaluation))
    calls = _with_siblings({**counter.per_sample(evaluation.manifest), **known.calls}, evaluation.manifest.methods)
    refused = {name: _reason(error) for name, error in evaluation.failures.items()}
    own = TaskRecord(
        **_identity(evaluation),
        calls={name: calls[name] for name in sorted(calls) if name in evaluation.methods},
        refused={
            name: why for name, why in sorted({**known.refused, **refused}.items()) if name not in evaluation.methods
        },
        truth={} if effects is None else {name: _truth(evaluation, name, effects) for name in evaluation.methods},
    )
    return evaluation, own


def _with_siblings(calls: Mapping[str, float], methods: Mapping[str, MethodRecord]) -> dict[str, float]:
    """Add the calls of ensembles whose maps were made from the noisy copies of another one."""
    copies = {
        name: (ensemble[0], {key: value for key, value in record.options.items() if key != "ensemble"})
        for name, record in methods.items()
        if record.method is not None and (ensemble := find_ensemble(record.method, record.options)) is not None
    }
    shared = {
        name: calls[other] for name in copies for other in copies if other in calls and copies[name] == copies[other]
    }
    return shared | dict(calls)


def _opened(suite: Suite, task: SuiteTask) -> tuple[Any, Any, Floats | None, dict[str, Any]]:
    """Return model, data, known effects and options of a task as `evaluate` takes them."""
    arguments: dict[str, Any] = {"precision": "float32", **suite.options, **task.options}
    arguments |= {"seed": task.seed, "limit": task.limit, "metrics": suite.checked_options(task).metric_values}
    if task.source is not None:
        source = SOURCES[task.source]()
        return source.model, _chosen(suite, task, source.samples), source.effects, {**source.options, **arguments}
    arguments["weights"] = task.weights
    if task.ids is None and task.first is None:
        return task.model, task.data, None, arguments
    samples = open_data(str(task.data), classes=arguments.pop("classes", None))
    return task.model, _chosen(suite, task, samples), None, arguments


def _chosen(suite: Suite, task: SuiteTask, samples: Samples) -> Samples:
    """Return the samples that a task names."""
    if task.first is not None and task.first > len(samples):
        raise DataError(f"{suite} needs the first {task.first} samples; {samples.name} has {len(samples)}.")
    where = {name: position for position, name in enumerate(samples.ids)}
    names = samples.ids[: task.first] if task.ids is None else task.ids
    if missing := [name for name in names if name not in where]:
        raise DataError(f"{suite} needs sample {missing[0]!r}, which {samples.name} lacks. Check --data.")
    return samples.take([where[name] for name in names])


def _reason(error: Exception) -> str:
    usual = isinstance(error, (ValueError, TypeError))
    return first_line(error) if usual else f"{type(error).__name__}: {first_line(error)}"


def _identity(evaluation: Evaluation) -> dict[str, Any]:
    """Return what identifies a measurement, as the run has it."""
    results, manifest = evaluation.results, evaluation.manifest
    confidence = float(np.mean(evaluation.run.load_original(manifest.shards).probability[:, 0]))
    return {
        "model_digest": results.model.digest,
        "data_digest": results.data.digest,
        "seed": results.seed,
        "settings": results.settings,
        "confidence": None if math.isnan(confidence) else round(confidence, 6),
    }


def _truth(evaluation: Evaluation, method: str, effects: Floats) -> dict[str, float]:
    """Return what a method's numbers would be if the Shapley value of every feature were measured exactly."""
    maps, ids = evaluation.maps(method).double().numpy(), evaluation.ids()
    own = effects[[int(name) for name in ids]]  # ids of arrays are positions
    exact = true_steps(maps, own, ids=ids, seed=evaluation.results.seed)
    each = {
        "soundness_rank": exact.soundness()[:, -1],
        "completeness_share": area_under(exact.kept(), exact.completeness()).sum(axis=1),
    }
    return {name: float(np.nanmean(values)) for name, values in each.items() if name in evaluation.metrics}


def _changes(here: SuiteRecord, stored: SuiteRecord) -> str:
    """Return how the suite of a directory differs from another one, by field; empty if they measure the same."""
    if here.digest == stored.digest:
        return ""
    changed = differences(to_json(here.suite), to_json(stored.suite))
    return "; ".join(changed[:3]) or "the default settings of its metrics have changed since"


def read_record(path: Path) -> SuiteRecord:
    """Read suite.json, and refuse one that was changed."""
    file = path / FILE
    if not file.is_file():
        raise RunError(f"{str(path)!r} holds no run of a suite: {FILE} is missing. `twinlens suite run` makes one.")
    try:
        stored = json.loads(read_whole(file, _LARGEST).decode())
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}.")
        return from_json(SuiteRecord, stored, FILE)
    except (ValueError, TypeError, RecursionError) as error:
        raise RunError(
            f"{str(file)!r} is damaged: {first_line(error)} Run the suite again in another directory."
        ) from None


def open_suite_run(path: str) -> SuiteRun:
    """Open the run of a suite, and refuse one whose samples, model or settings are not those that it recorded."""
    folder = as_path(path)
    record = read_record(folder)
    if missing := [name for name in record.suite.tasks if name not in record.tasks]:
        raise RunError(f"{str(folder)!r} is unfinished: {missing[0]} has no results. Run the suite again to resume it.")
    evaluations = {name: open_evaluation(folder / name) for name in record.tasks}
    for name, evaluation in evaluations.items():
        own = TaskRecord(**_identity(evaluation))
        stored = dataclasses.replace(record.tasks[name], calls={}, refused={}, truth={})
        if changes := differences(
            to_json(own), to_json(stored), f"tasks.{name}", places=("in suite.json", "in the run")
        ):
            raise RunError(
                f"{str(folder)!r} does not hold what the suite measured: {'; '.join(changes[:3])}. Run the suite "
                "again in another directory."
            )
    return SuiteRun(path=folder, record=record, evaluations=evaluations)


def deviations(suite: Suite, name: str, data_digest: str, confidence: float | None) -> list[str]:
    """Return how the samples and the model of a task deviate from what the suite expects."""
    expected, found = suite.tasks[name].expected, []
    if expected.samples not in (None, data_digest):
        found.append(f"{name}: the samples are not those of {suite}: their digest is {data_digest[:12]}…")
    if expected.confidence is not None and (confidence is None or abs(confidence - expected.confidence) > _CLOSE):
        found.append(
            f"{name}: the model is not that of {suite}: its mean probability of the labels is {confidence}, and not "
            f"{expected.confidence}"
        )
    return found
