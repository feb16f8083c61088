"""Worker processes of the Ray engine, and their reports to the driver."""

from __future__ import annotations

import importlib
import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import torch

from twinlens.errors import DamagedError, RunError, install_hint
from twinlens.run.units import Unit
from twinlens.run.work import EvaluationWork, EvaluationWorker
from twinlens.support.memory import keep_freed_memory
from twinlens.support.progress import Quiet
from twinlens.support.versions import installed_versions


class Conditions(NamedTuple):
    """What every worker has in common with the driver."""

    threads: int
    folder: str
    versions: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one unit."""

    node: str
    vectors: str
    """Vector instructions that torch uses there; others round differently."""
    error: str | None = None
    cause: Literal["unit", "files", "damage", "start"] = "unit"
    """What the error is about. File errors, such as a full disk, are not the unit's fault."""
    damaged: str = ""
    rows: tuple[tuple[str, int, str], ...] = ()
    """Task, number of rows and stage of each advance."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class _Notes(Quiet):
    """Progress recorded for the report to the driver."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, str]] = []
        self.warnings: list[str] = []

    def advance(self, task: str, rows: int, stage: str = "") -> None:
        """Record finished rows."""
        self.rows.append((task, rows, stage))

    def warn(self, message: str) -> None:
        """Record a warning."""
        self.warnings.append(message)


_loaded: dict[str, tuple[EvaluationWorker, _Notes]] = {}
"""The worker of this process, by the id of its work; Ray runs many units in one process."""


def do_unit(work: Sequence[Any], unit: Unit, conditions: Conditions) -> Outcome:
    """Do one unit, and report how it went; `work` holds a reference, which is fetched once per process."""
    node = f"{socket.gethostname()} ({import_ray().get_runtime_context().get_node_id()[:6]})"
    report = partial(Outcome, node=node, vectors=torch.backends.cpu.get_cpu_capability())
    try:
        worker, notes = _load(work[0], conditions)
    except Exception as error:
        return report(error=f"{type(error).__name__}: {error}", cause="start")
    notes.rows, notes.warnings = [], []
    before = dict(worker.seconds)
    try:
        with warnings.catch_warnings(record=True) as caught:
            worker.do(unit)
    except OSError as error:
        time.sleep(1.0)  # network file systems may show late what another node has written
        return report(error=f"{type(error).__name__}: {error}", cause="files")
    except DamagedError as error:
        return report(error=error.reason, cause="damage", damaged=str(error.path))
    except Exception as error:
        return report(error=str(error) or type(error).__name__)
    return report(
        rows=tuple(notes.rows),
        seconds={name: now - before.get(name, 0.0) for name, now in worker.seconds.items()},
        warnings=(*notes.warnings, *(str(warning.message) for warning in caught)),
    )


def _load(reference: Any, conditions: Conditions) -> tuple[EvaluationWorker, _Notes]:
    """Return the worker of this process, with its model."""
    key = reference.hex()
    if key not in _loaded:
        _loaded.clear()
        keep_freed_memory()
        if (here := installed_versions()) != conditions.versions:
            raise RunError(f"this node has {_listed(here)}, and the driver {_listed(conditions.versions)}.")
        with suppress(OSError):
            os.chdir(conditions.folder)  # relative paths are those of the driver
        torch.set_num_threads(conditions.threads)
        work: EvaluationWork = import_ray().get(reference)
        notes = _Notes()
        _loaded[key] = work.worker(notes), notes
    return _loaded[key]


def import_ray() -> Any:
    """Import Ray, which is an extra."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ImportError(f'The engine "ray" needs Ray: {install_hint("ray")}') from None


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in versions.items())
