"""Engines: where units of work run.

A unit is one shard of the samples with one method: it makes the method's maps and asks all probes about them, leaving
parts in the run directory. Units are independent of each other and may be repeated: a part that exists is not made
again. The local engine runs them in a row, the Ray engine (`twinlens.ray_engine`) on the machines of a cluster.

Shapes: B samples of one shard, C channels, S = spatial shape.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from twinlens.attribution import attribute
from twinlens.imputation import ConstantImputer, Imputer
from twinlens.maps import check_maps, spatial_shape
from twinlens.models import LoadedModel
from twinlens.ordering import Schedule
from twinlens.planning import Sweep
from twinlens.probing import find_device, probe
from twinlens.runs import Run, RunError
from twinlens.samples import Samples, subset
from twinlens.stored_maps import StoredMaps
from twinlens.table import ProbeTable
from twinlens.tuning import Execution, Prepared

UNTOUCHED = "untouched inputs"
_NAMED = 16  # ids of samples that a message lists
_REFERENCE_SAMPLES = 64  # from which methods that compare with other inputs, such as IBA, estimate what is usual


class Progress(Protocol):
    """Whoever wants to know how the work goes."""

    def begin(self, rows: Mapping[str, int], execution: Execution) -> None:
        """Is told how many rows each task has, and how the model is called."""

    def advance(self, task: str, rows: int, stage: str) -> None:
        """Is told that so many more rows of a task are done, and what is being done."""

    def done_at(self, node: str, rows: int) -> None:
        """Is told that one of several machines has done so many more rows, which `advance` was told of, too."""

    def warn(self, message: str) -> None:
        """Is told what the person should know now."""


class Quiet:
    """Progress that nobody watches; warnings become Python's."""

    def begin(self, rows: Mapping[str, int], execution: Execution) -> None:
        """Says nothing."""

    def advance(self, task: str, rows: int, stage: str) -> None:
        """Says nothing."""

    def done_at(self, node: str, rows: int) -> None:
        """Says nothing."""

    def warn(self, message: str) -> None:
        """Passes the warning on."""
        warnings.warn(message, stacklevel=3)


@dataclass(frozen=True, kw_only=True)
class Method:
    """Where the maps of one name come from."""

    name: str
    """Name in the results."""

    source: str | Callable[..., Tensor] | StoredMaps
    """A name in `METHODS`, a function of the same signature, or maps made elsewhere."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the method."""

    identity: Mapping[str, Any]
    """What run.json says about it, so that another method of the same name is noticed."""


@dataclass(frozen=True, order=True)
class Unit:
    """One shard of the samples with one method, or without one: what the model says of the untouched inputs."""

    shard: int
    method: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """Everything that units of a run have in common."""

    run: Run
    model: LoadedModel
    execution: Execution
    samples: Samples
    methods: Mapping[str, Method]
    sweeps: Sequence[Sweep]
    imputers: Mapping[str, Imputer]
    shard_size: int
    seed: int
    workers: int
    device: str = "cpu"
    """Where other processes put the model."""

    reload: Callable[[], LoadedModel] | None = None
    """How other processes load the model; without it they are sent the module."""

    def __getstate__(self) -> dict[str, Any]:
        """Gives what another process needs of the job."""
        state = dict(self.__dict__)
        if self.reload is not None:
            state["model"] = None
        elif find_device(self.model.module, None)[0].type != "cpu":
            # A GPU of this machine may have another number there, or none.
            state["model"] = dataclasses.replace(self.model, module=copy.deepcopy(self.model.module).cpu())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Makes the job of what another process sent."""
        self.__dict__.update(state)
        if self.reload is not None:
            self.__dict__["model"] = self.reload()
            if self.model.digest() != self.run.manifest["model"]["digest"]:
                raise RunError(
                    f"The model {self.model.name!r} that is loaded here differs from the one of {self.run}. Make the "
                    "same files and packages available on all nodes, or pass the module itself."
                )
        self.model.module.to(self.device)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-len(self.samples) // self.shard_size)

    def units(self) -> list[Unit]:
        """Lists all units: first the untouched inputs, then shard by shard, so that a method that fails fails early."""
        methods = [Unit(shard, name) for shard in range(self.shards) for name in self.methods]
        return [*(Unit(shard) for shard in range(self.shards)), *methods]

    def rows(self) -> dict[str, int]:
        """Counts the rows of each task."""
        per_sample = sum(len(sweep.schedule.levels) for sweep in self.sweeps)
        return {UNTOUCHED: len(self.samples)} | {name: len(self.samples) * per_sample for name in self.methods}

    def describe(self, unit: Unit) -> str:
        """Names a unit for the person who has to look after it, with the ids of its samples."""
        start = unit.shard * self.shard_size
        ids = self.samples.ids[start : start + self.shard_size]
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        return f"shard {unit.shard} (samples {', '.join(map(repr, ids[:_NAMED]))}{more})"

    def worker(self, progress: Progress) -> Worker:
        """Makes one that does the units."""
        return Worker(self, progress)


class AnyWorker(Protocol):
    """Does units of some job."""

    seconds: dict[str, float]
    """How long each kind of work took so far."""

    def do(self, unit: Unit) -> None:
        """Does what is not done yet of a unit."""


class AnyJob(Protocol):
    """Work in units that an engine can run: an evaluation, or networks to be trained.

    Units without a method come first: those of the same shard may rely on what they leave behind. To run on several
    machines a job must be one that pickle can send.
    """

    def describe(self, unit: Unit) -> str:
        """Names a unit for the person who has to look after it."""

    def worker(self, progress: Progress) -> AnyWorker:
        """Makes one that does the units; each process needs its own."""


class Worker:
    """Does units of one job; holds the model, and the inputs of one shard at a time."""

    def __init__(self, job: Job, progress: Progress) -> None:
        self.job, self.progress = job, progress
        self.model = Prepared(job.model.module, job.execution)
        self.seconds: dict[str, float] = {}
        self._loaded: tuple[int, Samples, Tensor] | None = None

    def do(self, unit: Unit) -> None:
        """Makes the parts of a unit that are not there yet."""
        run, job = self.job.run, self.job
        if unit.method is None:
            if not run.untouched_part(unit.shard).exists():
                self._timed(UNTOUCHED, lambda: self._ask_untouched(unit.shard))
            self.progress.advance(UNTOUCHED, self._count(unit.shard), "asked")
            return
        method = job.methods[unit.method]
        if not run.maps_part(method.name, unit.shard).exists():
            self.progress.advance(method.name, 0, "maps")
            self._timed(f"{method.name}/maps", lambda: self._explain(method, unit.shard))
        for sweep in job.sweeps:
            if run.probes_part(method.name, sweep.name, unit.shard).exists():
                self.progress.advance(method.name, self._count(unit.shard) * len(sweep.schedule.levels), sweep.name)
            else:
                self._timed(f"{method.name}/probes", lambda s=sweep: self._probe(method, s, unit.shard))  # type: ignore[misc]

    def _timed(self, what: str, work: Callable[[], None]) -> None:
        start = time.perf_counter()
        work()
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - start

    def _count(self, shard: int) -> int:
        return min(self.job.shard_size, len(self.job.samples) - shard * self.job.shard_size)

    def _shard(self, shard: int) -> tuple[Samples, Tensor]:
        if self._loaded is None or self._loaded[0] != shard:
            self._loaded = None  # so that two shards are never in memory at once
            start = shard * self.job.shard_size
            part = self.job.samples.take(range(start, start + self._count(shard)))
            self._loaded = shard, part, load_inputs(part, self.job.model, self.job.workers)
        return self._loaded[1:]

    @cached_property
    def _reference(self) -> Tensor:
        drawn = subset(self.job.samples, _REFERENCE_SAMPLES, self.job.seed)
        return load_inputs(drawn, self.job.model, self.job.workers)

    def _ask_untouched(self, shard: int) -> None:
        samples, inputs = self._shard(shard)
        nothing = torch.zeros(len(samples), *spatial_shape(inputs.shape))
        table = self._ask(samples, inputs, nothing, Schedule(by="area", order="morf", levels=(0.0,)))
        table.save(self.job.run.untouched_part(shard))

    def _explain(self, method: Method, shard: int) -> None:
        samples, inputs = self._shard(shard)
        if isinstance(method.source, StoredMaps):
            maps = torch.stack([torch.from_numpy(method.source.read(samples, i)) for i in range(len(samples))])
        else:
            options = dict(method.options)
            if isinstance(method.source, str) and method.source in ("iba", "input_iba"):
                # What is usual must not depend on which samples share a shard.
                options.setdefault("reference", self._reference)
            seed, module = self.job.seed, self.job.model.module
            maps = attribute(module, inputs, samples.labels, method.source, ids=samples.ids, seed=seed, **options)
        checked = check_maps(maps, spatial_shape(inputs.shape), ids=samples.ids)
        self.job.run.save_maps(method.name, shard, checked.float(), samples.ids)

    def _probe(self, method: Method, sweep: Sweep, shard: int) -> None:
        samples, inputs = self._shard(shard)
        table = self._ask(
            samples,
            inputs,
            self.job.run.load_maps(method.name, shard),
            sweep.schedule,
            imputer=self.job.imputers[sweep.imputer],
            untouched=ProbeTable.load(self.job.run.untouched_part(shard)),
            advance=lambda rows: self.progress.advance(method.name, rows, sweep.name),
        )
        table.save(self.job.run.probes_part(method.name, sweep.name, shard))

    def _ask(
        self,
        samples: Samples,
        inputs: Tensor,
        maps: Tensor,
        schedule: Schedule,
        *,
        imputer: Imputer = ConstantImputer(),
        untouched: ProbeTable | None = None,
        advance: Callable[[int], None] | None = None,
    ) -> ProbeTable:
        return probe(
            self.model,
            inputs,
            samples.labels,
            maps,
            schedule=schedule,
            imputer=imputer,
            untouched=untouched,
            ids=samples.ids,
            seed=self.job.seed,
            batch_size=self.job.execution.batch_size,
            progress=advance or False,
        )


def load_inputs(samples: Samples, model: LoadedModel, workers: int) -> Tensor:
    """Reads samples as the model expects them, (B, C, *S) or (B, D)."""
    with ThreadPoolExecutor(workers) as pool:
        inputs = list(pool.map(lambda i: model.preprocessing(samples.read(i)), range(len(samples))))
    for name, one in zip(samples.ids, inputs, strict=True):
        if one.shape != inputs[0].shape:
            raise ValueError(
                f"All inputs must have one size; sample {name!r} has {tuple(one.shape)} and {samples.ids[0]!r} "
                f"{tuple(inputs[0].shape)}. Resize and crop them, as with --resize and --crop."
            )
    return torch.stack(inputs)


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
        if not self.cpus_per_unit > 0:
            raise ValueError(f"`cpus_per_unit` must be greater than 0; got {self.cpus_per_unit:g}.")
        gpus = self.gpus_per_unit
        if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
            raise ValueError(f"`gpus_per_unit` must be a share of one GPU or a whole number of them; got {gpus:g}.")


def run_local(
    job: AnyJob, units: Iterable[Unit], progress: Progress, cluster: Cluster | None = None
) -> tuple[dict[str, Exception], dict[str, float]]:
    """Runs units in this process, one after the other.

    A method that fails is left out from then on, and the others go on; a full disk or any other trouble with the run
    directory ends it.

    Returns:
        Why methods failed, by name, and the seconds that each kind of work took.
    """
    del cluster
    worker, failures = job.worker(progress), dict[str, Exception]()
    for unit in units:
        if unit.method in failures:
            continue
        try:
            worker.do(unit)
        except OSError:
            raise
        except Exception as error:
            if unit.method is None:
                raise
            failures[unit.method] = error
            progress.warn(f"{unit.method} fails and is left out: {error}")
    return failures, worker.seconds


def run_ray(
    job: AnyJob, units: Iterable[Unit], progress: Progress, cluster: Cluster | None = None
) -> tuple[dict[str, Exception], dict[str, float]]:
    """Runs units on a Ray cluster; see `twinlens.ray_engine.run_ray`."""
    from twinlens import ray_engine  # noqa: PLC0415 (it stands on this module)

    return ray_engine.run_ray(job, units, progress, cluster or Cluster())


ENGINES = {"local": run_local, "ray": run_ray}
"""Every engine by its name."""


def describe_source(source: str | Callable[..., Tensor]) -> dict[str, Any]:
    """Says of a method what tells it from others: its name, and for a function its source."""
    if isinstance(source, str):
        return {"method": source}
    name = getattr(source, "__qualname__", type(source).__qualname__)
    try:
        text = inspect.getsource(source if inspect.isroutine(source) else type(source))
    except (OSError, TypeError):  # typed at a prompt, or compiled
        text = name
    return {"function": name, "source": hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}
