"""The Ray engine, which runs units of work on a Ray cluster.

A worker is a Ray actor: a process on some node that fetches the work once and then does one unit after the other. This
process, the driver, keeps two units queued at each worker, if possible of the shard that it has loaded, and receives
only their outcomes: samples, maps and tables stay with the workers and in the run directory.

Dead workers are replaced where the cluster has room, and their unfinished units return to the queue. An actor restarted
by Ray itself would wait for room together with its units while others are idle.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from twinlens.errors import DamagedError, RunError, first_line
from twinlens.options import DistributionOptions
from twinlens.run.ray_workers import Outcome, Ready, RemoteWorker, import_ray
from twinlens.run.units import ORIGINAL, Cluster, Unit, Work
from twinlens.support.progress import Progress
from twinlens.support.versions import installed_versions

T = TypeVar("T")
R = TypeVar("R")
_IN_HAND = 2  # units per worker: the current one and the next
_ATTEMPTS = 3  # of each unit
_COUNTED_EVERY = 2.0  # seconds between two counts of the nodes of the cluster
_PATIENCE = 60.0  # seconds without any worker before a warning


def choose_cluster(options: DistributionOptions) -> Cluster | None:
    """Return the cluster of the workers; None for the local engine."""
    if options.engine != "ray":
        return None
    import_ray()  # before anything expensive
    cpus, gpus = options.cpus_per_unit, options.gpus_per_unit
    return Cluster(address=options.address, cpus_per_unit=1.0 if cpus is None else cpus, gpus_per_unit=gpus or 0.0)


def choose_devices(device: str | None, cluster: Cluster | None) -> tuple[str | None, str | None]:
    """Return the devices of this process and of remote workers; None for that of the model."""
    if cluster is None:
        return device, None
    elsewhere = "cuda" if cluster.gpus_per_unit else "cpu"
    if device is not None and device.partition(":")[0] != elsewhere:
        raise ValueError(
            f"`device` must be {elsewhere!r} with {cluster.gpus_per_unit:g} GPUs per unit; got {device!r}. On a "
            "cluster it follows from `gpus_per_unit`; leave it out."
        )
    return "cpu" if elsewhere == "cpu" or not torch.cuda.is_available() else "cuda", elsewhere


def run_ray(
    work: Work, units: Iterable[Unit], progress: Progress, cluster: Cluster | None = None
) -> tuple[dict[str, Exception], dict[str, float]]:
    """Run units on a Ray cluster.

    A unit that fails three times is given up. A method is left out if three of its units failed and none succeeded.
    File errors that persist, such as a full disk, and damaged files end the run.

    Returns:
        The errors by method, and the seconds by task over all workers.
    """
    resources = cluster or Cluster()
    with connected(resources) as ray:
        driver = _Driver(ray, work, progress, resources)
        try:
            listed = list(units)
            for stage in sorted({unit.stage for unit in listed}):
                driver.finish(unit for unit in listed if unit.stage == stage)
        finally:
            driver.dismiss()
        return driver.failures(), driver.seconds


def map_ray(function: Callable[[T], R], items: Iterable[T], cluster: Cluster) -> dict[T, R]:
    """Call a function for each item on a connected cluster.

    Returns:
        The results by item, without those that failed or cannot be pickled.
    """
    ray = import_ray()
    try:
        remote = ray.remote(function).options(num_cpus=cluster.cpus_per_unit)
        references = {item: remote.remote(item) for item in items}
    except Exception:  # pickle raises errors of any kind
        return {}
    results: dict[T, R] = {}
    for item, reference in references.items():
        with suppress(ray.exceptions.RayError):
            results[item] = ray.get(reference)
    return results


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """Yield Ray, connected to a cluster; an existing connection of this program is reused."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Workers without GPUs use none, even if they see them; Ray warns unless this is set.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # By default Ray runs workers at niceness 15, and they hardly get any time on a busy machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
    _check_address(address)
    own = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"} if address == "local" else {}
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse an address without a server, for which Ray would wait many minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "//" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise ConnectionError(
                f"`address` must be that of a running Ray cluster; nothing answers at {address!r} ({error}). Start "
                "one with: ray start --head"
            ) from None


@dataclass(kw_only=True, eq=False)
class _Member:
    """The driver's record of a worker."""

    actor: Any
    preparing: Any
    node: str = ""
    name: str = "a node"
    tasks: dict[Any, Unit] = field(default_factory=dict)
    shard: int | None = None


class _Driver:
    """The driver: queues units at workers, and collects their outcomes."""

    def __init__(self, ray: Any, work: Work, progress: Progress, cluster: Cluster) -> None:
        self.ray, self.work, self.progress, self.cluster = ray, work, progress, cluster
        self.threads = cluster.threads or max(1, int(cluster.cpus_per_unit))
        if self.threads > max(1.0, cluster.cpus_per_unit):
            progress.warn(
                f"This run uses {self.threads} threads, on which its last bits depend, and each worker has "
                f"{cluster.cpus_per_unit:g} CPUs. More CPUs per unit would be faster."
            )
        try:
            self.shared = ray.put(work)
        except Exception as error:
            reason = str(error.__cause__ or error).splitlines()[0]  # Ray's own text begins with a dump of the work
            raise TypeError(
                "`engine` 'ray' sends the model, the samples and the methods to other processes, and this cannot be "
                f"sent: {reason}. Give the model by its spec, and methods as functions of a module."
            ) from error
        self.actor = ray.remote(RemoteWorker).options(num_cpus=cluster.cpus_per_unit, num_gpus=cluster.gpus_per_unit)
        self.members: list[_Member] = []
        self.waiting: deque[Unit] = deque()
        self.held: dict[int, list[Unit]] = {}
        self.unfit: list[str] = []
        self.stillborn = 0
        self.attempts: Counter[Unit] = Counter()
        self.failed: dict[Unit, str] = {}
        self.went_well: set[str | None] = set()
        self.left_out: set[str | None] = set()
        self.said: set[str] = set()
        self.vectors: set[str] = set()
        self.seconds: dict[str, float] = {}
        self.capacity, self.counted, self.staffed = 0, -math.inf, time.monotonic()

    def finish(self, units: Iterable[Unit]) -> None:
        """Run all units; the unit without a method before the others of its shard, which read its files."""
        failed = {unit.method for unit in self.failed}  # in an earlier stage
        listed = [unit for unit in units if unit.method not in failed and None not in failed]
        first = {unit.shard for unit in listed if unit.method is None}
        for unit in listed:
            if unit.method is not None and unit.shard in first:
                self.held.setdefault(unit.shard, []).append(unit)
            else:
                self.waiting.append(unit)
        while self.waiting or any(member.tasks for member in self.members):
            self._recruit()
            self._hand_out()
            pending = [ref for member in self.members for ref in (*member.tasks, *_waiting_for(member.preparing))]
            for ref in self.ray.wait(pending, timeout=_COUNTED_EVERY)[0] if pending else ():
                member = next((m for m in self.members if ref in m.tasks or ref == m.preparing), None)
                if member is not None:
                    self._hear(member, ref)

    def failures(self) -> dict[str, Exception]:
        """Return the errors by method."""
        failed: dict[str, list[Unit]] = {}
        for unit in self.failed:
            failed.setdefault(unit.method or ORIGINAL, []).append(unit)
        return {name: RunError(self._explain(units)) for name, units in failed.items()}

    def dismiss(self) -> None:
        """End all workers."""
        for member in self.members:
            with suppress(Exception):
                self.ray.kill(member.actor)

    def _explain(self, units: Sequence[Unit]) -> str:
        more = f" {len(units) - 1} more units failed." if len(units) > 1 else ""
        return f"{self.work.describe(units[0])} failed {_ATTEMPTS} times: {self.failed[units[0]]}{more}"

    def _recruit(self) -> None:
        """Start workers where the cluster has room, and warn if it has none."""
        now = time.monotonic()
        if now - self.counted > _COUNTED_EVERY:
            self.capacity, self.counted = sum(self._room(node) for node in self.ray.nodes()), now
        if self.unfit and len(self.unfit) >= self.capacity and not self.members:
            raise RunError(f"No worker can start. {self.unfit[-1]}")
        most = max(1, self.capacity) - len(self.unfit)  # at least one, for a cluster that grows on demand
        for _ in range(len(self.members), min(most, len(self.waiting))):
            actor = self.actor.remote([self.shared], self.threads, os.getcwd())
            self.members.append(_Member(actor=actor, preparing=actor.prepare.remote(installed_versions())))
        if any(member.preparing is None for member in self.members):
            self.staffed = now
        elif now - self.staffed > _PATIENCE:
            self._say(
                f"No worker has started yet. Each needs {self.cluster.cpus_per_unit:g} CPUs and "
                f"{self.cluster.gpus_per_unit:g} GPUs of one node; the cluster has {self._resources()}. Waiting."
            )

    def _room(self, node: Mapping[str, Any]) -> int:
        """Count the workers for which a node has the resources."""
        needs = {"CPU": self.cluster.cpus_per_unit, "GPU": self.cluster.gpus_per_unit}
        has = node["Resources"]
        return int(min(has.get(name, 0.0) / need for name, need in needs.items() if need)) if node["Alive"] else 0

    def _resources(self) -> str:
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return "; ".join(f"{has.get('CPU', 0):g} CPUs and {has.get('GPU', 0):g} GPUs" for has in nodes) or "no node"

    def _hand_out(self) -> None:
        ready = [member for member in self.members if member.preparing is None]
        for held in range(_IN_HAND):
            for member in ready:
                if len(member.tasks) == held and self.waiting:
                    unit = next((u for u in self.waiting if u.shard == member.shard), self.waiting[0])
                    self.waiting.remove(unit)
                    member.tasks[member.actor.do.remote(unit)] = unit
                    member.shard = unit.shard

    def _hear(self, member: _Member, ref: Any) -> None:
        try:
            report = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            # Exceptions of units arrive as outcomes: this node cannot even import what it receives.
            if ref in member.tasks:
                self._fail(member.tasks.pop(ref), first_line(error), files=False)
            if ref == member.preparing:
                self._reject(member, str(error.cause or error))
        except self.ray.exceptions.RayError:
            self._bury(member)
        else:
            if ref == member.preparing:
                self._welcome(member, report)
            else:
                del member.tasks[ref]
                self._count(member, report)

    def _welcome(self, member: _Member, ready: Ready) -> None:
        member.preparing, member.node, member.name = None, ready.node, f"{ready.host} ({ready.node[:6]})"
        self.vectors.add(ready.vectors)
        if ready.error is not None:
            self._reject(member, ready.error)
        elif len(self.vectors) > 1:
            self._say(f"Nodes compute with {' and '.join(sorted(self.vectors))}: last bits of results may differ.")

    def _reject(self, member: _Member, reason: str) -> None:
        """Dismiss a worker that cannot start, without a replacement."""
        self.unfit.append(f"{member.name}: {reason}")
        self._say(f"A worker cannot start on {self.unfit[-1]}")
        self.members.remove(member)
        self.ray.kill(member.actor)

    def _count(self, member: _Member, outcome: Outcome) -> None:
        for message in outcome.warnings:
            self._say(message)
        if outcome.damaged is not None:
            raise DamagedError(*outcome.damaged)
        if outcome.error is not None:
            self._fail(outcome.unit, outcome.error, files=outcome.files)
            return
        self.went_well.add(outcome.unit.method)
        if outcome.unit.method is None:
            self.waiting.extend(self.held.pop(outcome.unit.shard, ()))
        for task, rows, stage in outcome.rows:
            self.progress.advance(task, rows, stage)
        self.progress.finished_on(member.name, sum(rows for _, rows, _ in outcome.rows))
        for name, seconds in outcome.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _fail(self, unit: Unit, reason: str, *, files: bool) -> None:
        if unit.method in self.left_out:
            return
        self.attempts[unit] += 1
        if self.attempts[unit] < _ATTEMPTS:
            self.waiting.append(unit)
            return
        if files:
            raise OSError(f"{self.work.describe(unit)} failed {_ATTEMPTS} times: {reason}")
        self.failed[unit] = reason
        if unit.method is None:
            self.held.pop(unit.shard, None)
        self._say(f"{unit.method or ORIGINAL}: {self._explain([unit])}")
        failed = sum(other.method == unit.method for other in self.failed)
        if unit.method is not None and failed == _ATTEMPTS and unit.method not in self.went_well:
            self._say(f"{unit.method} fails and is left out: {reason}")
            self.left_out.add(unit.method)
            self.waiting = deque(other for other in self.waiting if other.method != unit.method)
            self.held = {k: [other for other in units if other.method != unit.method] for k, units in self.held.items()}

    def _bury(self, member: _Member) -> None:
        """Requeue the units of a dead worker. The one it was doing counts as failed, unless the whole node died."""
        self.members.remove(member)
        with suppress(Exception):
            self.ray.kill(member.actor)  # it may only be unreachable
        self.counted = -math.inf
        alive = any(node["Alive"] and node["NodeID"] == member.node for node in self.ray.nodes())
        self._say(f"{'A worker' if alive else 'The node'} died, and its units run elsewhere: {member.name}.")
        for ref in list(member.tasks):
            with suppress(self.ray.exceptions.RayError):  # finished before, but not fetched yet
                outcome = self.ray.get(ref, timeout=1.0)
                del member.tasks[ref]
                self._count(member, outcome)
        units = list(member.tasks.values())
        if member.preparing is not None:
            self.stillborn += 1
            if self.stillborn > _ATTEMPTS * max(1, self.capacity):
                raise RunError("Workers die before they have the model, perhaps for want of memory.")
        if alive and units:
            self._fail(units.pop(0), "the process that did it died, perhaps for want of memory", files=False)
        self.waiting.extendleft(reversed(units))

    def _say(self, message: str) -> None:
        """Warn the user, once for each message."""
        if message not in self.said:
            self.said.add(message)
            self.progress.warn(message)


def _waiting_for(ref: Any) -> tuple[Any, ...]:
    return () if ref is None else (ref,)
