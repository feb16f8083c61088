"""Units of work: what an engine runs, wherever it runs.

A unit is one shard of the samples with one method. Units are independent of each other and may be repeated: a part
that exists is not made again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from twinlens.support.fields import check_types
from twinlens.support.progress import Progress

UNTOUCHED = "untouched inputs"
"""The task of the units without a method."""


@dataclass(frozen=True, order=True)
class Unit:
    """One shard of the samples with one method, or without one: what the model says of the untouched inputs."""

    shard: int
    method: str | None = None
    stage: int = 0
    """Units of a later stage rely on what those of earlier stages left behind, in whatever shard."""


def in_stages(units: Iterable[Unit]) -> list[list[Unit]]:
    """Group units by stage, the first stage first.

    Example:
        >>> in_stages([Unit(0, "a"), Unit(0, "a", stage=1), Unit(1, "a")])
        [[Unit(shard=0, method='a', stage=0), Unit(shard=1, method='a', stage=0)], [Unit(shard=0, method='a', stage=1)]]
    """
    stages: dict[int, list[Unit]] = {}
    for unit in units:
        stages.setdefault(unit.stage, []).append(unit)
    return [stages[stage] for stage in sorted(stages)]


class Worker(Protocol):
    """Does units of some job."""

    seconds: dict[str, float]
    """How long each kind of work took so far."""

    def do(self, unit: Unit) -> None:
        """Do what is not done yet of a unit."""


class Job(Protocol):
    """Work in units that an engine can run: an evaluation, or networks to be trained.

    Units without a method come first: those of the same shard may rely on what they leave behind. To run on several
    machines a job must be one that pickle can send.
    """

    def describe(self, unit: Unit) -> str:
        """Name a unit for the person who has to look after it."""

    def worker(self, progress: Progress) -> Worker:
        """Create a worker for this job; each process needs its own."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """On what the workers of the Ray engine run; the local engine needs none of it."""

    address: str | None = None
    """Address of a Ray cluster, such as "auto" or "10.0.0.1:6379". Without one that of the variable RAY_ADDRESS, or a
    cluster of this machine alone, which ends with the run."""

    cpus_per_unit: float = 1.0
    """CPUs that each worker, and so each unit, has for itself."""

    gpus_per_unit: float = 0.0
    """GPUs that each worker has for itself; 0.25 lets four of them share one."""

    threads: int | None = None
    """Threads within one operation of torch; as many as CPUs where it is None."""

    def __post_init__(self) -> None:
        check_types(self)
        if not self.cpus_per_unit > 0:
            raise ValueError(f"`cpus_per_unit` must be greater than 0; got {self.cpus_per_unit:g}.")
        gpus = self.gpus_per_unit
        if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
            raise ValueError(f"`gpus_per_unit` must be a share of one GPU or a whole number of them; got {gpus:g}.")
