"""Units of work, which engines run.

A unit is one shard of the samples with one method. Units may be repeated: existing files are not made again.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinlens.support.fields import check_types

ORIGINAL = "original inputs"
"""The task of units without a method."""


@dataclass(frozen=True, order=True)
class Unit:
    """One shard of the samples with one method; without a method, the model's answers about the original inputs."""

    shard: int
    method: str | None = None
    stage: int = 0
    """Units of a later stage read files of earlier stages, of any shard."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The resources of the Ray engine's workers."""

    address: str | None = None
    """Address of a Ray cluster, such as "auto" or "10.0.0.1:6379"; by default that of the variable RAY_ADDRESS, or a
    new cluster on this machine that ends with the run."""

    cpus_per_unit: float = 1.0
    """CPUs per worker."""

    gpus_per_unit: float = 0.0
    """GPUs per worker; with 0.25 four workers share one."""

    threads: int | None = None
    """CPU threads per torch operation; by default as many as CPUs."""

    def __post_init__(self) -> None:
        check_types(self)
        if not self.cpus_per_unit > 0:
            raise ValueError(f"`cpus_per_unit` must be greater than 0; got {self.cpus_per_unit:g}.")
        gpus = self.gpus_per_unit
        if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
            raise ValueError(f"`gpus_per_unit` must be a share of one GPU or a whole number of them; got {gpus:g}.")
