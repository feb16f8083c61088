"""Torture: commands that are killed at any moment, twice at once, and on a full disk; what they leave must be whole.

    python -m tests.torture.torturing --kills 1000 --ray 20 --seed 0       (make torture)

A round starts a command in a directory, kills it (SIGKILL), starts it again, and so on, and lets it end at last. After
each kill every file must be what it was or what it should become, nothing outside may have been touched, and the
directory must open or say what it lacks. After each round every file must have the bytes of an undisturbed run.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from tests.torture.children import (
    IMPORTED,
    NEVER,
    Child,
    Ended,
    fork,
    kill_at_operation,
    kill_at_size,
    limit_files,
    limit_memory,
    start_cold,
)
from tests.torture.sandbox import PHASES, UNFINISHED, Contents, Sandbox

SHARES = {
    "evaluate": 0.45,
    "evaluate, added to": 0.15,
    "ask": 0.1,
    "report": 0.1,
    "two at once": 0.1,
    "cold start": 0.1,
}
"""What is killed, and which share of the kills each has."""
LIMITS = {"full disk": "fills", "short memory": "limits"}
REFUSED = re.compile("in use by another twinlens|Another twinlens has just begun a run")
AGAIN = 0.7  # chance that a run that was killed is killed once more before it may end


@dataclass
class Tally:
    """What happened to one kind of command."""

    kills: int = 0
    fills: int = 0
    rounds: int = 0
    equal: int = 0
    moments: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command, and the run before and after it."""

    command: list[str]
    start: Path | None
    before: Contents
    after: Contents
    seconds: float
    operations: int


class Torturer:
    """Kills commands in a sandbox of their own, and counts."""

    def __init__(self, folder: Path, seed: int, end: float = math.inf) -> None:
        self.box, self.rng, self.end = Sandbox(folder), np.random.default_rng(seed), end
        self.tallies: dict[str, Tally] = {}
        self.failures: list[str] = []
        _import_everything(self.box)
        plain, grown = (
            self.box.evaluate(),
            self.box.evaluate("random,saliency,centre", "completeness,deletion,insertion"),
        )
        run = str(self.box.run)
        first = self.undisturbed(plain, None, {})
        self.cases = {"evaluate": first, "two at once": first}
        kept = self._keep("whole", without="")
        self.cases["evaluate, added to"] = self.undisturbed(grown, kept, first.after)
        self.cases["ask"] = self.undisturbed(["ask", run, "--performance", "probability", "--quiet"], kept, first.after)
        bare = self._keep("bare", without="report.html", of=kept)
        before = {name: content for name, content in first.after.items() if name != "report.html"}
        self.cases["report"] = self.undisturbed(["report", run], bare, before)

    def undisturbed(self, command: list[str], start: Path | None, before: Contents) -> Case:
        """Run a command that nobody disturbs, and note what it leaves and how long it takes."""
        self.box.prepare(start, before, {})
        began = time.monotonic()
        ended = fork(command, environment=self.box.environment, setup=kill_at_operation(self.box.run, NEVER)).wait()
        assert ended.code == 0, ended.said
        operations = int(re.findall(r"operations (\d+)", ended.said)[-1])
        seconds, after = time.monotonic() - began, self.box.contents()
        assert before != after
        return Case(command=command, start=start, before=before, after=after, seconds=seconds, operations=operations)

    def _keep(self, name: str, *, without: str, of: Path | None = None) -> Path:
        """Copy the run for later rounds; beside the sandbox, so that it is nothing that could be touched."""
        kept = self.box.folder.parent / name
        shutil.copytree(of or self.box.run, kept)
        if without:
            (kept / without).unlink()
        return kept

    def torture(self, kills: int, kinds: Sequence[str] = tuple(SHARES)) -> None:
        """Kill commands of these kinds, each by its share, at least this many times and each kind once."""
        while (self.kills < kills or self._spared(kinds)) and time.monotonic() < self.end:
            kind = min(kinds, key=lambda kind: self.tally(kind).kills / SHARES[kind])
            if kind not in self.cases:
                self.cases[kind] = self._cold_case()
            case, tally = self.cases[kind], self.tally(kind)
            if tally.rounds > 20 + 5 * tally.kills:
                raise RuntimeError(f"{kind} cannot be killed: {tally}")
            self.box.prepare(case.start, case.before, case.after)
            self._round(kind, case, tally)

    def _spared(self, kinds: Sequence[str]) -> bool:
        return any(not self.tally(kind).kills for kind in kinds)

    @property
    def kills(self) -> int:
        """Kills so far."""
        return sum(tally.kills for tally in self.tallies.values())

    def _cold_case(self) -> Case:
        """Return the evaluation in a new process, which takes longer."""
        case = self.cases["evaluate"]
        self.box.prepare(None, {}, case.after)
        began = time.monotonic()
        ended = start_cold(case.command, environment=self.box.environment).wait()
        assert ended.code == 0, ended.said
        return dataclasses.replace(case, seconds=time.monotonic() - began)

    def _round(self, kind: str, case: Case, tally: Tally) -> None:
        """Kill a command again and again until it has ended, or may."""
        kill = {"two at once": self._kill_two, "cold start": self._kill_cold}.get(kind, self._kill)
        while True:
            began = time.monotonic()
            endings = kill(case)
            killed = sum(ended.killed for ended in endings)
            if not killed:  # kills by the clock come too late once a machine is less busy than when it was timed
                case = self.cases[kind] = dataclasses.replace(
                    case, seconds=min(case.seconds, 1.2 * (time.monotonic() - began))
                )
            self._expect(kind, [ended for ended in endings if not ended.killed])
            if killed:
                imports = kind == "cold start" and IMPORTED not in endings[0].said
                self._look(kind, tally, killed, "imports" if imports else None)
            if not killed or self.rng.random() > AGAIN:
                break
        self.complete(kind, case, tally)

    def _look(self, kind: str, tally: Tally, killed: int, known: str | None = None) -> None:
        """Look at what a killed process left."""
        there = self.box.contents()
        phase, writing = self.box.phase(there)
        phase = known or phase
        tally.kills += killed
        tally.moments[phase] += killed
        tally.moments[UNFINISHED] += killed * writing
        self.failures += [f"{kind}, killed at {phase}: {fault}" for fault in self.box.faults(there)]
        if (self.box.run / "run.json").exists() and self.rng.random() < 0.1:  # costs as much as a kill
            ended = self._fork(["verify", str(self.box.run)]).wait()
            wrong = [line for line in ended.said.splitlines() if re.search(r": (?!missing|left by|older than)", line)]
            if not ended.clear or [line for line in wrong if "error: " not in line]:
                self.failures.append(f"{kind}, killed at {phase}: verify says {ended.said}")

    def tally(self, kind: str) -> Tally:
        """Return the counts of a kind."""
        return self.tallies.setdefault(kind, Tally())

    def complete(self, kind: str, case: Case, tally: Tally, child: Child | None = None) -> None:
        """Let the command end, and compare what it leaves with what an undisturbed one leaves."""
        ended = (child or self._fork(case.command)).wait()
        wrong = self.box.differences() if ended.code == 0 else [f"exit code {ended.code}: {ended.said[-500:]}"]
        tally.rounds += 1
        tally.equal += not wrong
        self.failures += [f"{kind}, completed: {each}" for each in wrong]

    def _expect(self, kind: str, endings: list[Ended]) -> None:
        for ended in endings:
            if not ended.clear or (ended.code == 2 and kind != "full disk" and not REFUSED.search(ended.said)):
                self.failures.append(f"{kind}: exit code {ended.code}: {ended.said[-500:]}")

    def _fork(self, command: list[str], setup: Callable[[], None] | None = None) -> Child:
        return fork(command, environment=self.box.environment, setup=setup)

    def _kill(self, case: Case) -> list[Ended]:
        """Kill at a moment, at an operation on the files of the run, or when one of them has a certain size."""
        how, left = self.rng.random(), 0.2 + 0.8 * self.box.missing()  # a run that goes on takes less
        if how < 0.4:
            return [self._fork(case.command).wait(kill_after=self.rng.uniform(0, left * case.seconds))]
        number = int(self.rng.integers(1, left * case.operations + 1))
        setup = kill_at_operation(self.box.run, number) if how < 0.8 else kill_at_size(self._size(case))
        return [self._fork(case.command, setup).wait()]

    def _size(self, case: Case) -> int:
        """Draw a size that some file reaches: half of them among the small ones, half within the page."""
        largest = max(map(len, case.after.values()))
        return int(self.rng.integers(1, largest if self.rng.random() < 0.5 else 15_000))

    def _kill_cold(self, case: Case) -> list[Ended]:
        child = start_cold(case.command, environment=self.box.environment)
        return [child.wait(kill_after=self.rng.uniform(0, 1.05 * case.seconds))]

    def _kill_two(self, case: Case) -> list[Ended]:
        """Start two processes, and kill one of them, or both."""
        seconds = (0.2 + 0.8 * self.box.missing()) * case.seconds
        first = self._fork(case.command)
        time.sleep(self.rng.uniform(0, 0.2 * seconds))
        second = self._fork(case.command)
        moments = self.rng.uniform(0, seconds, 2)
        chosen = int(self.rng.integers(3))  # the first, the second, or both
        one, other = (None if chosen == 1 else moments[0]), (None if chosen == 0 else moments[1])
        if one is not None and other is not None and other < one:
            return [second.wait(kill_after=other), first.wait(kill_after=one)]
        if one is None:
            return [second.wait(kill_after=other), first.wait()]
        return [first.wait(kill_after=one), second.wait(kill_after=other)]

    def fill(self, rounds: int) -> Tally:
        """Let the disk be full: files of limited size, and a small file system where one may be mounted."""
        tally, case = self.tally("full disk"), self.cases["evaluate"]
        usual = self.box.run
        for _ in range(rounds):
            if time.monotonic() > self.end:
                break
            with _small_disk(self.box.folder / "small") as disk:
                mounted = disk is not None and self.rng.random() < 0.5
                if mounted:
                    self.box.run = disk.folder / "run"
                    disk.resize(int(self.rng.integers(1, 200 if self.rng.random() < 0.7 else 1200)))
                self.box.prepare(None, {}, case.after)
                moved = dataclasses.replace(case, command=self.box.evaluate())
                ended = self._fork(moved.command, None if mounted else limit_files(self._size(case))).wait()
                self._expect("full disk", [ended])
                if ended.code != 0:
                    tally.fills += 1
                    there = self.box.contents()
                    tally.moments[self.box.phase(there)[0]] += 1
                    self.failures += [f"full disk: {fault}" for fault in self.box.faults(there)]
                    self.failures += [f"full disk: {path} is left" for path in self.box.run.rglob("*.unfinished")]
                if mounted:
                    disk.resize(8000)
                self.complete("full disk", moved, tally)
                self.box.run = usual
        return tally

    def starve(self, rounds: int) -> Tally:
        """Let memory be short, by a limit on the addresses of the process."""
        tally, case = self.tally("short memory"), self.cases["evaluate"]
        for _ in range(rounds):
            if time.monotonic() > self.end:
                break
            self.box.prepare(None, {}, case.after)
            setup = limit_memory(int(2 ** self.rng.uniform(14, 27)))
            # Python waits for ever for a thread that found no memory for its first call, and C libraries end the
            # process by a signal or with 127: nothing of it can be caught. The files must be whole all the same.
            ended = self._fork(case.command, setup).wait(kill_after=30)
            if ended.code >= 0 and ended.code != 127:
                self._expect("full disk", [ended])
            if ended.code != 0:
                tally.fills += 1
                there = self.box.contents()
                tally.moments[self.box.phase(there)[0]] += 1
                self.failures += [f"short memory: {fault}" for fault in self.box.faults(there)]
            self.complete("short memory", case, tally)
        return tally


class _Disk:
    """A file system in memory, of a size in kilobytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resize(self, kilobytes: int) -> None:
        options = f"remount,size={4 * (kilobytes // 4 + 1)}k"  # whole pages; 0 would mean: no limit
        subprocess.run(["mount", "-o", options, str(self.folder)], check=True)


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[_Disk | None]:
    """Mount a small file system; None where this user may not."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=8000k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield _Disk(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _import_everything(box: Sandbox) -> None:
    """Import what the commands import, so that forked processes need not; this one computes nothing, to be copied."""
    names = "twinlens.cli.evaluate twinlens.cli.report twinlens.cli.ask twinlens.cli.verify"
    for name in names.split():
        importlib.import_module(name)
    known = set(sys.modules)

    def listing() -> None:
        exiting = os._exit

        def listed(code: int) -> None:
            print("modules", *(name for name in sys.modules if name not in known), flush=True)
            exiting(code)

        os._exit = listed  # type: ignore[assignment]

    for command in (box.evaluate(), ["verify", str(box.run)]):
        ended = fork(command, environment=box.environment, setup=listing).wait()
        assert ended.code == 0, ended.said
        for name in ended.said.rpartition("modules")[2].split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def run_torture(
    seed: int,
    kills: int,
    *,
    fills: int = 0,
    ray: int = 0,
    minutes: float = math.inf,
    kinds: Sequence[str] = tuple(SHARES),
) -> Torturer:
    """Kill commands of these kinds, fill the disk, and kill what works on a Ray cluster, unless the time is over."""
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="twinlens-torture-") as folder:
        (Path(folder) / "box").mkdir()
        torturer = Torturer(Path(folder) / "box", seed, end)
        if fills:
            torturer.fill(fills)
            torturer.starve(fills)
        torturer.torture(kills, kinds)
        if ray:
            importlib.import_module("tests.torture.ray_kills").RayKills(torturer).torture(ray)
    return torturer


def table(tallies: dict[str, Tally]) -> str:
    """Return the counts as a Markdown table: the last columns say in which phase the moments fell."""
    heads = ["kind", "kills", "rounds", "byte-equal", *PHASES, UNFINISHED]
    rows = [
        [
            kind,
            f"{t.fills} {LIMITS[kind]}" if kind in LIMITS else t.kills,
            t.rounds,
            t.equal,
            *(t.moments[phase] for phase in (*PHASES, UNFINISHED)),
        ]
        for kind, t in tallies.items()
    ]
    numbers = [row for row in rows if isinstance(row[1], int)]
    rows.append(["all kills", *(sum(row[k] for row in numbers) for k in range(1, len(heads)))])
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--fills", type=int, default=None, help="full disks; a twentieth of the kills by default")
    parser.add_argument("--ray", type=int, default=0, help="kills of drivers, workers and nodes of a Ray cluster")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end earlier when this time is over")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and leave no file system mounted
    began = time.monotonic()
    fills = chosen.kills // 20 if chosen.fills is None else chosen.fills
    done = run_torture(chosen.seed, chosen.kills, fills=fills, ray=chosen.ray, minutes=chosen.minutes)
    print(table(done.tallies))
    print(f"{time.monotonic() - began:.0f} s, {len(done.failures)} failures")
    print("\n".join(done.failures))
    sys.exit(bool(done.failures))
