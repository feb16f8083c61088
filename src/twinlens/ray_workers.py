"""Workers of the Ray engine: what lives in the processes of a cluster, and what they tell the driver."""

from __future__ import annotations

import importlib
import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import torch

from twinlens.engines import AnyJob, AnyWorker, Unit
from twinlens.runs import RunError
from twinlens.tuning import Execution


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one unit went."""

    unit: Unit
    """Which one."""

    error: str | None = None
    """Why it failed."""

    files: bool = False
    """Whether it failed by trouble with files, such as a full disk, which is no fault of the unit."""

    rows: tuple[tuple[str, int, str], ...] = ()
    """Task, number of rows and stage of each advance."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """How long each kind of work took."""

    warnings: tuple[str, ...] = ()
    """What the person should know."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What a worker says of itself once it has the job."""

    node: str
    """Id of its node."""

    host: str
    """Name of the machine."""

    vectors: str
    """Instructions of its processor that torch uses; others round otherwise."""

    error: str | None = None
    """Why it cannot work."""


class _Notes:
    """Progress that is written down, to be told to the driver."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, str]] = []
        self.warnings: list[str] = []

    def begin(self, rows: Mapping[str, int], execution: Execution) -> None:
        """Is said by the driver."""

    def advance(self, task: str, rows: int, stage: str) -> None:
        """Writes down."""
        self.rows.append((task, rows, stage))

    def done_at(self, node: str, rows: int) -> None:
        """Is said by the driver."""

    def warn(self, message: str) -> None:
        """Writes down."""
        self.warnings.append(message)


class RemoteWorker:
    """What lives in a process of Ray: one worker of the job."""

    def __init__(self, job: Sequence[Any], threads: int, folder: str) -> None:
        # The reference is within a list, so that fetching the job can fail in `prepare`, where the reason is told.
        self.job, self.threads, self.folder = job, threads, folder
        self.notes = _Notes()
        self.worker: AnyWorker | None = None

    def prepare(self, versions: Mapping[str, str]) -> Ready:
        """Fetches the job, and with it the model; this happens once."""
        import numba  # noqa: PLC0415 (takes a second to load, and the driver needs none)

        ray = import_ray()
        error = None
        try:
            if (here := versions_here()) != versions:
                raise RunError(f"this node has {_listed(here)}, and the driver {_listed(versions)}.")
            with suppress(OSError):
                os.chdir(self.folder)  # so that relative paths mean what they mean to the driver
            numba.set_num_threads(min(self.threads, numba.get_num_threads()))
            torch.set_num_threads(self.threads)  # after numba, which sets OpenMP's number of threads, and so torch's
            job: AnyJob = ray.get(self.job[0])
            self.worker = job.worker(self.notes)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        node = ray.get_runtime_context().get_node_id()
        return Ready(node=node, host=socket.gethostname(), vectors=torch.backends.cpu.get_cpu_capability(), error=error)

    def do(self, units: Sequence[Unit], seconds: float) -> list[Outcome]:
        """Does units until the time is up, at least one."""
        outcomes, end = list[Outcome](), time.monotonic() + seconds
        for unit in units:
            outcomes.append(self._do(unit))
            if time.monotonic() > end:
                break
        return outcomes

    def _do(self, unit: Unit) -> Outcome:
        assert self.worker is not None  # the driver hands out nothing before
        self.notes.rows, self.notes.warnings = [], []
        before = dict(self.worker.seconds)
        try:
            with warnings.catch_warnings(record=True) as caught:
                self.worker.do(unit)
        except OSError as error:
            time.sleep(1.0)  # network file systems may show late what another node has written
            return Outcome(unit=unit, error=f"{type(error).__name__}: {error}", files=True)
        except Exception as error:
            return Outcome(unit=unit, error=str(error) or type(error).__name__)
        return Outcome(
            unit=unit,
            rows=tuple(self.notes.rows),
            seconds={name: now - before.get(name, 0.0) for name, now in self.worker.seconds.items()},
            warnings=(*self.notes.warnings, *(str(warning.message) for warning in caught)),
        )


def import_ray() -> Any:
    """Gives Ray, which is an extra."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ImportError('The engine "ray" needs Ray: pip install "twinlens[ray]"') from None


def versions_here() -> dict[str, str]:
    """Gives the versions that must be the same on all nodes."""
    return {package: version(package) for package in ("twinlens", "torch", "numpy")}


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in versions.items())
