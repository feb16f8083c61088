"""The Ray engine, which runs units of work as tasks of a Ray cluster.

Ray decides where a unit runs, and reuses processes: each loads the work once. This process, the driver, receives only
the outcomes; samples, maps and tables stay with the workers and in the run directory. It repeats units that fail.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from twinlens.errors import DamagedError, RunError, first_line
from twinlens.run.ray_workers import Conditions, Outcome, do_unit, import_ray
from twinlens.run.units import ORIGINAL, Cluster, Unit
from twinlens.run.work import EvaluationWork
from twinlens.support.progress import Progress
from twinlens.support.versions import installed_versions

T = TypeVar("T")
R = TypeVar("R")
_ATTEMPTS = 3  # of each unit
_STARTS = 3  # attempts to start or to connect
_LOOK = 0.5  # seconds between two looks at the processes of a local cluster
_IN_FLIGHT = 1000  # tasks submitted at a time; more would slow down Ray


def run_ray(
    work: EvaluationWork, units: Iterable[Unit], progress: Progress, cluster: Cluster
) -> tuple[dict[str, Exception], dict[str, float]]:
    """Run units on a Ray cluster.

    A unit that fails three times is given up. A method is left out if three of its units failed and none succeeded.
    File errors that persist, such as a full disk, and damaged files end the run.
    Returns the errors by method, and the seconds by task over all workers.
    """
    with connected(cluster) as ray:
        driver = _Driver(ray, work, progress, cluster)
        try:
            listed = list(units)
            for stage in sorted({unit.stage for unit in listed}):
                driver.finish(unit for unit in listed if unit.stage == stage)
        finally:
            driver.cancel(driver.running.values())
        return driver.failures(), driver.seconds


def map_ray(function: Callable[[T], R], items: Iterable[T], cluster: Cluster) -> dict[T, R]:
    """Call a function for each item on a connected cluster; what fails there or cannot be sent has no result."""
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
    there = _local_processes()  # of a cluster that this program started by itself, whose nodes may come and go
    for left in reversed(range(_STARTS)):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
            break
        except Exception as error:  # of any kind
            ray.shutdown()
            # Ray gives its processes half a minute to start, which is not enough on a very busy machine.
            if not left or "timed out" not in str(error):
                raise ConnectionError(f"Ray does not start or connect: {first_line(error)}") from error
    ended = threading.Event()
    started = {number: name for number, name in _local_processes().items() if number not in there}
    threading.Thread(target=_watch, args=(started, ended), daemon=True).start()
    try:
        yield ray
    finally:
        ended.set()
        ray.shutdown()


def _local_processes() -> dict[int, str]:
    """Return the processes of Ray that this one has started, by number; none on other systems.

    Ray ends a program that has started a cluster of its own when one of its processes is gone.
    """
    processes = dict[int, str]()
    for path in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with suppress(OSError):
            for number in map(int, path.read_text().split()):
                name = Path(f"/proc/{number}/comm").read_text().strip()
                if name in ("gcs_server", "raylet"):
                    processes[number] = name
    return processes


def _watch(processes: Mapping[int, str], ended: threading.Event) -> None:
    """End this process in a line when one of these is gone.

    Ray itself would end it within a minute, after many lines, and no error can be caught.
    """
    while processes and not ended.wait(_LOOK):
        for number, name in processes.items():
            if not _is_alive(number) and not ended.is_set():
                text = f"twinlens: error: {name} of the Ray cluster is gone, perhaps for want of memory. Finished work "
                os.write(2, f"{text}is kept; run the same command again to resume.\n".encode())
                os._exit(2)


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


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


class _Driver:
    """Submits units as tasks of Ray, and collects their outcomes."""

    def __init__(self, ray: Any, work: EvaluationWork, progress: Progress, cluster: Cluster) -> None:
        self.ray, self.work, self.progress = ray, work, progress
        threads = cluster.threads or max(1, int(cluster.cpus_per_unit))
        if threads > max(1.0, cluster.cpus_per_unit):
            progress.warn(
                f"This run uses {threads} threads, on which its last bits depend, and each worker has "
                f"{cluster.cpus_per_unit:g} CPUs. More CPUs per unit would be faster."
            )
        self._warn_of_size(cluster)
        try:
            self.shared = ray.put(work)
        except Exception as error:
            reason = str(error.__cause__ or error).splitlines()[0]  # Ray's own text begins with a dump of the work
            raise TypeError(
                "`engine` 'ray' sends the model, the samples and the methods to other processes, and this cannot be "
                f"sent: {reason}. Give the model by its spec, and methods as functions of a module."
            ) from error
        needs = {"num_cpus": cluster.cpus_per_unit, "num_gpus": cluster.gpus_per_unit}
        # Processes are reused (`max_calls`), also with GPUs. The driver itself repeats units, and reports why.
        self.task = ray.remote(max_calls=0, max_retries=0, **needs)(do_unit)
        self.conditions = Conditions(threads, os.getcwd(), installed_versions())
        self.waiting: deque[Unit] = deque()
        self.held: dict[int, list[Unit]] = {}
        self.running: dict[Any, Unit] = {}
        self.attempts: Counter[Unit] = Counter()
        self.failed: dict[Unit, str] = {}
        self.went_well: set[str | None] = set()
        self.said: set[str] = set()
        self.vectors: set[str] = set()
        self.seconds: dict[str, float] = {}

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
        while self.waiting or self.running:
            while self.waiting and len(self.running) < _IN_FLIGHT:
                unit = self.waiting.popleft()
                self.running[self.task.remote([self.shared], unit, self.conditions)] = unit
            for reference in self.ray.wait(list(self.running))[0]:
                self._hear(self.running.pop(reference), reference)

    def failures(self) -> dict[str, Exception]:
        """Return the errors by method."""
        failed: dict[str, list[Unit]] = {}
        for unit in self.failed:
            failed.setdefault(unit.method or ORIGINAL, []).append(unit)
        return {name: RunError(self._explain(units)) for name, units in failed.items()}

    def cancel(self, units: Iterable[Unit]) -> None:
        """Cancel units that were submitted."""
        cancelled = set(units)
        for reference in [reference for reference, unit in self.running.items() if unit in cancelled]:
            del self.running[reference]
            with suppress(self.ray.exceptions.RayError):  # the cluster may be gone
                self.ray.cancel(reference, force=True)

    def _explain(self, units: Sequence[Unit]) -> str:
        more = f" {len(units) - 1} more units failed." if len(units) > 1 else ""
        return f"{self.work.describe(units[0])} failed {_ATTEMPTS} times: {self.failed[units[0]]}{more}"

    def _warn_of_size(self, cluster: Cluster) -> None:
        """Warn if no node has room for a worker; a cluster that grows on demand may get one."""
        needs = {"CPU": cluster.cpus_per_unit, "GPU": cluster.gpus_per_unit}
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if not any(all(has.get(name, 0.0) >= need for name, need in needs.items()) for has in nodes):
            sizes = "; ".join(f"{has.get('CPU', 0):g} CPUs and {has.get('GPU', 0):g} GPUs" for has in nodes)
            self.progress.warn(
                f"No worker can start yet. Each needs {needs['CPU']:g} CPUs and {needs['GPU']:g} GPUs of one node; the "
                f"nodes of the cluster have {sizes}. Waiting."
            )

    def _hear(self, unit: Unit, reference: Any) -> None:
        try:
            outcome: Outcome = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:  # errors of units arrive as outcomes
            raise RunError(f"A worker cannot start. {error.cause or error}") from error
        except self.ray.exceptions.RayError:
            self._say("A worker or its node died, and its units run elsewhere.")
            self._fail(unit, "the process that did it died, perhaps for want of memory")
            return
        for message in outcome.warnings:
            self._say(message)
        self.vectors.add(outcome.vectors)
        if len(self.vectors) > 1:
            self._say(f"Nodes compute with {' and '.join(sorted(self.vectors))}: last bits of results may differ.")
        if outcome.error is None:
            self._count(unit, outcome)
        elif outcome.cause == "start":
            raise RunError(f"A worker cannot start on {outcome.node}: {outcome.error}")
        elif outcome.cause == "damage":
            raise DamagedError(outcome.damaged, outcome.error)
        else:
            self._fail(unit, outcome.error, files=outcome.cause == "files")

    def _count(self, unit: Unit, outcome: Outcome) -> None:
        self.went_well.add(unit.method)
        if unit.method is None:
            self.waiting.extend(self.held.pop(unit.shard, ()))
        for task, rows, stage in outcome.rows:
            self.progress.advance(task, rows, stage)
        self.progress.finished_on(outcome.node, sum(rows for _, rows, _ in outcome.rows))
        for name, seconds in outcome.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _fail(self, unit: Unit, reason: str, *, files: bool = False) -> None:
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
            self.cancel([other for other in self.running.values() if other.method == unit.method])
            self.waiting = deque(other for other in self.waiting if other.method != unit.method)
            self.held = {k: [other for other in units if other.method != unit.method] for k, units in self.held.items()}

    def _say(self, message: str) -> None:
        """Warn the user, once for each message."""
        if message not in self.said:
            self.said.add(message)
            self.progress.warn(message)
