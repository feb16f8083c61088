"""The definition of a suite: what is measured on which model and samples, as a TOML file holds it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from twinlens.errors import unknown
from twinlens.metrics.catalogue import describe_metric
from twinlens.models.loading import PRETRAINED
from twinlens.options import Options
from twinlens.run.directory import check_name
from twinlens.suites.task_sources import SOURCES
from twinlens.support.fields import JSON, check_count, check_types, fields_of, from_json, to_json
from twinlens.support.files import read_whole

Kind = Literal["images", "tables", "text", "language models", "signals", "volumes", "laboratory"]
_LARGEST = 2**20  # bytes of a TOML file
_NOT_MEASURED = ("title", "question", "note", "methods")
"""Fields of a suite that change no number: a method's number does not depend on other methods."""
_OWN = ("metrics", "limit", "until", "show", "out", "strict", "progress", "maps", "tokenizer", "target", "weights")
_ELSEWHERE = (*_OWN, "engine", "address", "cpus_per_unit", "gpus_per_unit", "part", "device", "skip_bad", "allow_code")
"""Options of `evaluate` that a suite sets itself, or that do not belong to it."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a task should find, so that another machine notices deviations."""

    samples: str | None = None
    """Digest of ids, labels and content of the samples."""

    confidence: float | None = None
    """Mean probability of the labels on the samples, with nothing removed: that of another model differs."""


@dataclass(frozen=True, kw_only=True)
class SuiteTask:
    """One model with its samples."""

    kind: Kind
    """Kind of inputs, by which tables are filtered."""

    model: str | None = None
    """Spec of the model, as for `twinlens evaluate`; if it is missing, --model is required."""

    weights: str = PRETRAINED
    """Weights of the model, as for `twinlens evaluate`."""

    data: str | None = None
    """Spec of the data, as for `twinlens evaluate`; if it is missing, --data is required."""

    source: str | None = None
    """Model and data that no spec can name: a built-in source instead of `model` and `data`."""

    ids: tuple[str, ...] | None = None
    """Ids of the samples, in this order."""

    first: int | None = None
    """Number of samples from the beginning of the data."""

    limit: int | None = None
    """Number of samples drawn by the seed. Without `ids`, `first` and `limit` all samples are measured."""

    seed: int = 0
    """Random seed."""

    options: Mapping[str, JSON] = field(default_factory=dict)
    """Other options of `twinlens evaluate`, in addition to those of the suite."""

    expected: Expected = Expected()
    """What the task should find."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.source is not None and (self.model is not None or self.data is not None):
            raise ValueError("`source` brings its own model and data. Leave out `model` and `data`, or `source`.")
        if self.source is not None and self.source not in SOURCES:
            raise unknown("source", self.source, SOURCES)
        chosen = [name for name in ("ids", "first", "limit") if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise ValueError(f"`{chosen[0]}` and `{chosen[1]}` both choose samples. Leave one of them out.")
        for name in ("first", "limit"):
            if (count := getattr(self, name)) is not None:
                check_count(name, count, 2**53)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite of tasks with common metrics."""

    name: str
    """Name in small letters, digits and hyphens."""

    version: int
    """Version; another version may give other numbers."""

    title: str
    """Title of the suite."""

    question: str
    """What the suite asks."""

    note: str | None = None
    """What a reader of its numbers should know, such as that it is small."""

    methods: tuple[str, ...] | Mapping[str, JSON]
    """Methods that run by default: names, or a table from names to a method's options, as for `twinlens evaluate`."""

    metrics: tuple[str, ...] | Mapping[str, JSON]
    """Metrics: names, or a table from names to a metric's options, as for `twinlens evaluate`."""

    options: Mapping[str, JSON] = field(default_factory=dict)
    """Other options of `twinlens evaluate` for all tasks, such as `control_share`."""

    packages: tuple[str, ...] = ()
    """Packages that it needs; their versions are stored with the results."""

    tasks: Mapping[str, SuiteTask]
    """Tasks by name."""

    def __post_init__(self) -> None:
        check_types(self)
        if re.fullmatch("[a-z][a-z0-9-]{0,39}", self.name) is None:
            raise ValueError(f"`name` must be small letters, digits and hyphens; got {self.name!r}.")
        check_count("version", self.version, 10**6)
        if not self.tasks:
            raise ValueError("`tasks` must hold at least one task; add a table [tasks.NAME].")
        for name, task in self.tasks.items():
            check_name(name, "tasks")
            self.checked_options(task)

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    def checked_options(self, task: SuiteTask) -> Options:
        """Return the options of a task, checked; all numbers are computed in float32."""
        names = [each.name for each in fields_of(Options) if each.name not in _ELSEWHERE]
        own: dict[str, Any] = {**self.options, **task.options}
        for name in own:
            if name not in names:
                raise unknown("options", name, names)
        arguments: dict[str, Any] = {"precision": "float32", **own, "seed": task.seed, "limit": task.limit}
        metrics: Any = dict(self.metrics) if isinstance(self.metrics, Mapping) else list(self.metrics)
        return Options(metrics=metrics, **arguments)

    def digest(self) -> str:
        """Hash what is measured: tasks with their samples, and metrics and options with all their settings."""
        content = to_json(self)
        for name in _NOT_MEASURED:
            del content[name]
        for name, task in self.tasks.items():
            del content["tasks"][name]["expected"]
            metrics = self.checked_options(task).metric_values
            content["tasks"][name]["metrics"] = {key: describe_metric(metric) for key, metric in metrics.items()}
        return content_digest(content)

    def check_packages(self) -> dict[str, str]:
        """Return the versions of the packages that the suite needs, or refuse to run without them."""
        versions = {}
        for name in self.packages:
            try:
                versions[name] = version(name)
            except PackageNotFoundError:
                raise ImportError(f"{self} needs {name}, which is not installed. Run: pip install {name}") from None
        return versions


def content_digest(content: JSON) -> str:
    """Hash JSON, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def built_in_suites() -> dict[str, Suite]:
    """Return the suites that come with twinlens, by NAME@VERSION."""
    files = [each for each in resources.files("twinlens.suites").iterdir() if each.name.endswith(".toml")]
    suites = [
        _parsed(each.read_text(encoding="utf-8"), each.name) for each in sorted(files, key=lambda each: each.name)
    ]
    return {str(suite): suite for suite in suites}


def find_suite(name: str) -> Suite:
    """Return a suite: a built-in one by NAME@VERSION, or by NAME in its latest version; or one in a TOML file."""
    if name.endswith(".toml"):
        try:
            return _parsed(read_whole(os.path.abspath(name), _LARGEST).decode(), name)
        except UnicodeDecodeError as error:
            raise ValueError(f"`{name}` is not a valid TOML file: {error}") from None
    suites = built_in_suites()
    latest = {suite.name: str(suite) for suite in sorted(suites.values(), key=lambda suite: suite.version)}
    if (key := latest.get(name, name)) not in suites:
        raise unknown("name", name, suites, or_else=", or a file of your own: NAME.toml")
    return suites[key]


def _parsed(text: str, name: str) -> Suite:
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"`{name}` is not a valid TOML file: {error}") from None
    try:
        _check_plain(content, "")
        return from_json(Suite, content, "suite")
    except (ValueError, TypeError) as error:
        raise ValueError(f"`{name}`: {error}") from None


def _check_plain(value: object, where: str) -> None:
    """Refuse what TOML has and JSON has not: dates, infinity and NaN."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_plain(item, f"{where}.{key}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            _check_plain(item, where)
    elif not isinstance(value, (bool, int, str)) and not (isinstance(value, float) and math.isfinite(value)):
        raise TypeError(f"`{where}` must be text, a finite number, true, false, a list or a table; got {value}.")


def requested_methods(suite: Suite, names: list[str] | None) -> dict[str, JSON]:
    """Return methods with their options by name: those of the suite, or other names, which keep their options."""
    own: dict[str, JSON] = {name: name for name in suite.methods}
    if isinstance(suite.methods, Mapping):
        own = dict(suite.methods)
    return own if names is None else {name: own.get(name, name) for name in names}


def with_overrides(suite: Suite, **given: str | None) -> dict[str, SuiteTask]:
    """Return the tasks of a suite with the model, weights and data that it leaves to the user; refuse others."""
    tasks = dict(suite.tasks)
    for argument, value in given.items():
        open_tasks = [name for name, task in tasks.items() if task.source is None and _leaves_open(task, argument)]
        if value is not None and not open_tasks:
            raise ValueError(f"`{argument}` belongs to {suite}, which names its own. Leave out --{argument}.")
        if value is None and open_tasks and argument != "weights":
            raise ValueError(
                f"`{argument}` is missing: {suite} needs --{argument}. `twinlens suite show {suite}` says more."
            )
        if value is not None:
            changed: dict[str, Any] = {argument: value}
            tasks |= {name: dataclasses.replace(tasks[name], **changed) for name in open_tasks}
    return tasks


def _leaves_open(task: SuiteTask, argument: str) -> bool:
    return (task.model if argument == "weights" else getattr(task, argument)) is None
