"""Fuzzing: bad inputs of every kind, made from a seed; whatever happens must be clear to a person.

    python -m tests.fuzz.fuzzing --minutes 10 --seed 3       (make fuzz)

Each case is refused clearly (exit code 2 and one line that names the option, or ValueError, TypeError or OSError of one
line that names the argument), or accepted. A traceback, a hang, a rise of memory, NaN without a word, and a file
touched outside of the run directory are failures.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from tests.fuzz.calls import Subject, call_case
from tests.fuzz.commands import flag_case
from tests.fuzz.files import config_case, file_case, image_case, run_case
from tests.fuzz.hostile import changed_case, hostile_case
from tests.tiny import image_folder, model_file
from twinlens.cli.main import main

SECONDS, MEMORY = 60, 1500  # of CPU that one case may take, and the megabytes by which it may raise the peak of memory
HANG = 900  # seconds by the clock, after which a case that uses no CPU hangs, however busy the machine
ADDRESSES = 12 << 30  # bytes beyond those in use, at which memory is refused before the machine is short of it
FILES = (config_case, image_case, file_case, run_case, hostile_case, changed_case)
CASES = (*[call_case] * 12, *[flag_case] * 3, *FILES)  # the widest most often
ENDS = ("refused", "accepted", "failed")


class CaseError(BaseException):
    """A case that did not end as it should; nobody else may catch it."""


class Fuzzer:
    """Cases around one small subject in a directory of its own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng, self.folder = np.random.default_rng(seed), folder
        self.data, self.spec = image_folder(folder / "images"), model_file(folder)
        self.counts: Counter[tuple[str, str]] = Counter()
        """By kind of case and how it ended."""
        self.failures: list[str] = []
        self.base = ["--model", self.spec, "--data", self.data, "--batch-size", "16", "--memory-format", "contiguous"]
        self.base += ["--methods", "random", "--metrics", "deletion", "--resamples", "20", "--threads", "1", "--quiet"]
        assert self.command(["evaluate", *self.base, "--out", str(folder / "run")]) == 0
        self.subject = Subject(folder)
        self.outside = {path: self.state(path) for path in self.fixed()}

    def fixed(self) -> list[Path]:
        """Files that no case may touch."""
        run = [path for path in (self.folder / "run").rglob("*") if path.is_file() and path.name != ".lock"]
        return [Path(self.spec.rpartition(":")[0]), *Path(self.data).rglob("*.png"), *run]

    @staticmethod
    def state(path: Path) -> tuple[int, int]:
        return path.stat().st_size, path.stat().st_mtime_ns

    def pick(self, choices):
        """Draw one of several."""
        return choices[int(self.rng.integers(len(choices)))]

    def command(self, arguments: list[str]) -> int:
        """Run a command, and return its exit code if it ended as it should."""
        return self.run_command(arguments)[0]

    def run_command(self, arguments: list[str]) -> tuple[int, str]:
        """Run a command, and return its exit code and the line that it refused with."""
        shown, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
            try:
                code = main(arguments)
            except SystemExit as error:  # of --help and --version
                code = 0 if not error.code else -1
        lines = [line for line in said.getvalue().splitlines() if not line.startswith("twinlens: warning: ")]
        if code not in (0, 2) or (code == 2 and (len(lines) != 1 or ": error: " not in lines[0])):
            raise CaseError(f"exit code {code}: {said.getvalue()[-300:]}")
        if "\x1b[2J" in shown.getvalue() + said.getvalue():
            raise CaseError("an escape reached the terminal")
        return code, "".join(lines)

    def outcome(self, kind: str, label: str, case) -> str:
        """Do a case under limits of time and memory, and count how it ended."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number, timer, seconds in (
            (signal.SIGALRM, signal.ITIMER_REAL, HANG),
            (signal.SIGPROF, signal.ITIMER_PROF, SECONDS),
        ):
            signal.signal(number, _too_long)
            signal.setitimer(timer, seconds)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ended = "accepted" if case() == 0 else "refused"
        except (ValueError, TypeError, OSError) as error:
            ended = "refused" if len(str(error).splitlines()) == 1 else f"a message of many lines: {error}"
        except BaseException as error:
            ended = f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
        risen = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        if risen > MEMORY:
            ended = f"memory rose by {risen} MB"
        if changed := self.changed():
            ended = f"touched {changed}"
        for name in ("new", "bent"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        clear = ended in ("accepted", "refused")
        self.counts[kind, ended if clear else "failed"] += 1
        self.failures += [] if clear else [f"{kind}: {label}: {ended[:300]}"]
        return ended

    def changed(self) -> Path | None:
        """Return the first file that was touched outside of the run directory, if any was."""
        now = self.fixed()
        gone = [path for path in self.outside if path not in now]
        return next(iter(gone + [path for path in now if self.outside.get(path) != self.state(path)]), None)

    def case(self, kinds=CASES) -> None:
        """Do one case of a kind drawn at random."""
        self.pick(kinds)(self)

    def total(self, ended: str | None = None) -> int:
        """Count the cases that ended so; all by default."""
        return sum(count for (_, how), count in self.counts.items() if ended in (None, how))


def _too_long(*_: object) -> None:
    raise CaseError(f"it took longer than {SECONDS} seconds of CPU, or {HANG}")


def fuzz(seed: int, *, cases: int | None = None, minutes: float | None = None, kinds=CASES) -> Fuzzer:
    """Do cases until their number or the time is reached."""
    torch.manual_seed(seed)
    end = None if minutes is None else time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="twinlens-fuzz-") as folder:
        here, inner = os.getcwd(), Path(folder, "a", "b", "c", "d")  # from where ../.. leads nowhere that matters
        inner.mkdir(parents=True)
        os.chdir(inner)
        try:
            fuzzer = Fuzzer(Path(folder), seed)
            while (cases is None or fuzzer.total() < cases) and (end is None or time.monotonic() < end):
                faulthandler.dump_traceback_later(2 * HANG, exit=cases is None)  # where no signal arrives
                fuzzer.case(kinds)
        finally:
            faulthandler.cancel_dump_traceback_later()
            os.chdir(here)
    return fuzzer


def table(fuzzer: Fuzzer) -> str:
    """Show how many cases of each kind were tried, and how they ended."""
    kinds = sorted({kind for kind, _ in fuzzer.counts})
    rows = [[kind, *(fuzzer.counts[kind, ended] for ended in ENDS)] for kind in kinds]
    rows.append(["all", *(fuzzer.total(ended) for ended in ENDS)])
    lines = ["| kind | tried | refused clearly | accepted | failures |", "| --- | --- | --- | --- | --- |"]
    return "\n".join(lines + [f"| {row[0]} | {sum(row[1:])} | {' | '.join(map(str, row[1:]))} |" for row in rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted(case.__name__.removesuffix("_case") for case in {*CASES}), nargs="*")
    chosen = parser.parse_args()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESSES, resource.RLIM_INFINITY))
    only = [case for case in CASES if not chosen.only or case.__name__.removesuffix("_case") in chosen.only]
    done = fuzz(chosen.seed, minutes=chosen.minutes, kinds=only)
    print(table(done))
    print("\n".join(done.failures))
    sys.exit(bool(done.failures))
