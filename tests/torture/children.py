"""Commands in processes that can be killed: forked from this one, which has imported everything, or started afresh."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from twinlens.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.scandir", "os.listdir"}
LONGEST = 1800.0  # seconds that any command may take, however busy the machine
NEVER = 10**9
IMPORTED = "everything is imported"
_COLD = f"""
import importlib, sys
from twinlens.cli.main import main
importlib.import_module("twinlens.cli.evaluate")
print({IMPORTED!r}, flush=True)
sys.exit(main())
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    """Exit code; minus the signal where one ended it."""
    said: str
    """What it printed."""

    @property
    def killed(self) -> bool:
        return self.code in (-signal.SIGKILL, -signal.SIGXFSZ)

    @property
    def clear(self) -> bool:
        """Whether it succeeded, or was refused by one line."""
        lines = [line for line in self.said.splitlines() if "error: " in line]
        return self.code == 0 or (self.code == 2 and len(lines) == 1 and "Traceback" not in self.said)


class Child:
    """A command in a process of its own."""

    def __init__(self, pid: int, output: int) -> None:
        self.pid, self.output, self.began = pid, output, time.monotonic()

    def wait(self, kill_after: float | None = None) -> Ended:
        """Wait until the command has ended, or kill it this many seconds after it began."""
        end = self.began + (LONGEST if kill_after is None else kill_after)
        while True:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            left = end - time.monotonic()
            if not done and left <= 0:
                os.kill(self.pid, signal.SIGKILL)
                done, status = os.waitpid(self.pid, 0)
            if done:
                break
            time.sleep(min(0.001 if kill_after is not None else 0.005, max(left, 0.0)))
        said = os.pread(self.output, os.fstat(self.output).st_size, 0).decode(errors="replace")
        os.close(self.output)
        code = os.waitstatus_to_exitcode(status)
        if kill_after is None and code == -signal.SIGKILL and time.monotonic() > end:
            return Ended(code=NEVER, said=f"it took longer than {LONGEST:g} s\n{said}")
        return Ended(code=code, said=said)


def fork(command: Sequence[str], *, environment: Mapping[str, str], setup: Callable[[], None] | None = None) -> Child:
    """Run a command of twinlens in a copy of this process."""
    output = os.memfd_create("output")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Child(pid, output)
    code = 99
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.update(environment)
        warnings.resetwarnings()
        if setup is not None:
            setup()
        code = main(list(command))
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def start_cold(command: Sequence[str], *, environment: Mapping[str, str]) -> Child:
    """Run a command of twinlens in a new interpreter."""
    output = os.memfd_create("output")
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "src")))
    process = subprocess.Popen(
        [sys.executable, "-c", _COLD, *command],
        env={**os.environ, **environment, "PYTHONPATH": paths},
        stdout=output,
        stderr=output,
    )
    process.returncode = 0  # waited for by its id
    return Child(process.pid, output)


def kill_at_operation(folder: Path, number: int) -> Callable[[], None]:
    """Return a setup that kills its process before the given operation on files of a folder, and counts them."""

    def setup() -> None:
        count = 0

        def step() -> None:
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

        def hook(event: str, given: tuple[object, ...]) -> None:
            if event in _EVENTS and given and str(given[0]).startswith(str(folder)):
                step()

        sync = os.fsync

        def counted_sync(descriptor: int) -> None:
            step()
            sync(descriptor)
            step()

        os.fsync = counted_sync
        sys.addaudithook(hook)
        if number >= NEVER:
            exiting = os._exit

            def counted_exit(code: int) -> None:
                print(f"operations {count}", flush=True)
                exiting(code)

            os._exit = counted_exit  # type: ignore[assignment]

    return setup


def kill_at_size(size: int) -> Callable[[], None]:
    """Return a setup that lets the system kill its process when a file becomes larger than this."""

    def setup() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limit_files(size)()

    return setup


def limit_files(size: int) -> Callable[[], None]:
    """Return a setup after which no file can become larger than this."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def limit_memory(more: int) -> Callable[[], None]:
    """Return a setup after which a process gets this many bytes of memory more."""

    def setup() -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))

    return setup
