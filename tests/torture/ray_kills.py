"""Kills on a Ray cluster of two nodes, which are processes of this machine: drivers, workers and nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.run.ray_nodes import started_cluster
from tests.tiny import SOURCE
from tests.torture.children import Child, start_cold

SLOW = """

class Slow(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        open(os.path.join(os.environ["TWINLENS_TEST_PIDS"], str(os.getpid())), "w").close()
        time.sleep(0.1)
        return self.model(images)

def slow():
    model = build()
    found = Slow(model)
    found.preprocessing = model.preprocessing
    return found
"""
"""A model that lasts long enough for something to happen in between, and notes in which processes it is called."""


class RayKills:
    """Kills drivers, workers and nodes of runs in the sandbox of a torturer."""

    def __init__(self, torturer) -> None:
        self.torturer, self.box, self.rng = torturer, torturer.box, torturer.rng
        self.pids = self.box.folder.parent / "pids"
        self.pids.mkdir()
        (self.box.folder / "slow_model.py").write_text(f"import os, time\n{SOURCE}{SLOW}")
        os.environ["TWINLENS_TEST_PIDS"] = str(self.pids)  # which nodes, started from here, pass on to their workers
        self.box.environment["TWINLENS_TEST_PIDS"] = str(self.pids)
        subject = self.box.subject
        subject[subject.index("--model") + 1] = f"{self.box.folder / 'slow_model.py'}:slow"
        self.case = torturer.undisturbed(self.box.evaluate(), None, {})

    def torture(self, kills: int) -> None:
        """Kill in turn a driver, a worker and a node."""
        with contextlib.contextmanager(started_cluster)() as nodes:

            def kill_node(driver: Child, workers: list[int]) -> bool:
                nodes.replace_first()
                return True

            kinds: dict[str, Callable[[Child, list[int]], bool]] = {
                "Ray driver": lambda driver, workers: _alive(driver.pid),  # and is killed by who waits for it
                "Ray worker": self._kill_worker,
                "Ray node": kill_node,
            }
            for number in range(kills):
                if time.monotonic() > self.torturer.end:
                    break
                kind = list(kinds)[number % len(kinds)]
                self._round(kind, kinds[kind])

    def _round(self, kind: str, kill: Callable[[Child, list[int]], bool]) -> None:
        tally = self.torturer.tally(kind)
        self.box.prepare(None, {}, self.case.after)
        for pid in self.pids.iterdir():
            pid.unlink()
        driver = self._start()
        workers = self._moment(driver)
        phase = self.box.phase(self.box.contents())[0]
        killed = bool(workers) and kill(driver, workers)
        ended = driver.wait(kill_after=0.0 if kind == "Ray driver" and killed else None)
        if killed:
            tally.kills += 1
            tally.moments[phase] += 1
        if ended.code != 0 and not ended.killed:
            self.torturer.failures.append(f"{kind}: exit code {ended.code}: {ended.said[-800:]}")
        self.torturer.failures += [f"{kind}: {fault}" for fault in self.box.faults(self.box.contents())]
        self.torturer.complete(kind, self.case, tally, self._start())

    def _start(self) -> Child:
        return start_cold([*self.case.command, "--engine", "ray"], environment=self.box.environment)

    def _moment(self, driver: Child) -> list[int]:
        """Wait until workers are at work and a moment longer, and return their processes; none if the run has ended."""
        while not (pids := self._workers(driver)):
            if not _alive(driver.pid):
                return []
            time.sleep(0.02)
        time.sleep(self.rng.uniform(0, 0.6 * self.case.seconds))  # two workers take about half as long
        return pids

    def _workers(self, driver: Child) -> list[int]:
        return [int(path.name) for path in self.pids.iterdir() if int(path.name) != driver.pid]

    def _kill_worker(self, driver: Child, workers: list[int]) -> bool:
        alive = [pid for pid in workers if _alive(pid)]
        if alive:
            os.kill(alive[int(self.rng.integers(len(alive)))], signal.SIGKILL)
        return bool(alive)


def _alive(pid: int) -> bool:
    """Tell whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
