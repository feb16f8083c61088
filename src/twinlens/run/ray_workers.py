"""Workers of the Ray engine: actors on the nodes of a cluster, and their reports to the driver."""

from __future__ import annotations

import importlib
import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from twinlens.errors import DamagedError, RunError
from twinlens.run.units import Unit, Work, Worker
from twinlens.support.memory import keep_freed_memory
from twinlens.support.progress import Quiet
from twinlens.support.versions import installed_versions


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one unit."""

    unit: Unit
    error: str | None = None
    """Error message; None on success."""
    files: bool = False
    """Whether it is a file error, such as a full disk, which is not the unit's fault."""
    damaged: tuple[str, str] | None = None
    """Path of a damaged file that it read, and what is wrong with it."""
    rows: tuple[tuple[str, int, str], ...] = ()
    """Task, number of rows and stage of each advance."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by task."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The report of a worker that has loaded the work."""

    node: str
    """Id of its node."""
    host: str
    vectors: str
    """Vector instructions that torch uses there; others round differently."""
    error: str | None = None
    """Why it cannot work."""


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


class RemoteWorker:
    """A worker as a Ray actor, in its own process."""

    def __init__(self, work: Sequence[Any], threads: int, folder: str) -> None:
        # The reference is inside a list: Ray then fetches the work in `prepare`, which reports errors.
        self.work, self.threads, self.folder = work, threads, folder
        self.notes = _Notes()
        self.worker: Worker | None = None

    def prepare(self, versions: Mapping[str, str]) -> Ready:
        """Fetch the work with its model, once."""
        ray = import_ray()
        keep_freed_memory()
        error = None
        try:
            if (here := installed_versions()) != versions:
                raise RunError(f"this node has {_listed(here)}, and the driver {_listed(versions)}.")
            with suppress(OSError):
                os.chdir(self.folder)  # relative paths are those of the driver
            torch.set_num_threads(self.threads)
            work: Work = ray.get(self.work[0])
            self.worker = work.worker(self.notes)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        node = ray.get_runtime_context().get_node_id()
        return Ready(node=node, host=socket.gethostname(), vectors=torch.backends.cpu.get_cpu_capability(), error=error)

    def do(self, unit: Unit) -> Outcome:
        """Do one unit, and report how it went."""
        assert self.worker is not None  # after `prepare`
        self.notes.rows, self.notes.warnings = [], []
        before = dict(self.worker.seconds)
        try:
            with warnings.catch_warnings(record=True) as caught:
                self.worker.do(unit)
        except OSError as error:
            time.sleep(1.0)  # network file systems may show late what another node has written
            return Outcome(unit=unit, error=f"{type(error).__name__}: {error}", files=True)
        except DamagedError as error:
            return Outcome(unit=unit, error=str(error), damaged=(str(error.path), error.reason))
        except Exception as error:
            return Outcome(unit=unit, error=str(error) or type(error).__name__)
        return Outcome(
            unit=unit,
            rows=tuple(self.notes.rows),
            seconds={name: now - before.get(name, 0.0) for name, now in self.worker.seconds.items()},
            warnings=(*self.notes.warnings, *(str(warning.message) for warning in caught)),
        )


def import_ray() -> Any:
    """Import Ray, which is an extra."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ImportError('The engine "ray" needs Ray: pip install "twinlens[ray]"') from None


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in versions.items())
