"""What a machine runs out of ends a command in one line and with exit code 2; an interrupt with 130."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from twinlens.cli import methods
from twinlens.cli.main import main
from twinlens.support.memory import describe_shortage

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}


def no_memory():
    raise MemoryError


def no_array():
    np.empty(2**62, dtype=np.uint8)


def no_tensor():
    raise RuntimeError(
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 400000000000 bytes. Error code 12 (Cannot allocate memory)\nframe #0: c10::ThrowEnforceNotMet …"
    )


def no_table():
    raise pa.lib.ArrowMemoryError("malloc of size 1 failed")


def no_thread():
    raise RuntimeError("can't start new thread")


def no_process():
    raise BlockingIOError(11, "Resource temporarily unavailable")


class _RayError(Exception):
    """As those of Ray, by its module."""


_RayError.__module__ = "ray.exceptions"


def no_cluster():
    raise _RayError("The node died\nwith a log of many lines")


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        (no_memory, "memory ran out. Use a smaller batch size"),
        (no_array, "Unable to allocate 4.00 EiB for an array"),
        (no_tensor, "memory ran out. Use a smaller batch size"),
        (no_table, "malloc of size 1 failed. Use a smaller batch size"),
        (no_thread, "the system starts no further thread or process"),
        (no_process, "the system starts no further thread or process"),
        (no_cluster, "the Ray cluster failed (The node died)"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_shortages_end_in_one_line(run, monkeypatch, fail, words):
    monkeypatch.setattr(methods, "run_methods", lambda _: fail())
    code, _, said = run("methods")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith(f"twinlens: error: {words}")


def test_bugs_are_not_hidden(monkeypatch):
    monkeypatch.setattr(methods, "run_methods", lambda _: {}["a bug"])
    with pytest.raises(KeyError):
        main(["methods"])
    assert describe_shortage(KeyError("memory")) is None


WAITING = """
import sys, threading
from twinlens.cli import methods
from twinlens.cli.main import main

def wait(_):
    thread = threading.Thread(target=threading.Event().wait)  # for which Python waits at its end
    thread.start()
    try:
        print("ready", flush=True)
        threading.Event().wait()
    finally:
        print("ending", flush=True)
        threading.Event().wait()

methods.run_methods = wait
sys.argv = ["twinlens", "methods"]
sys.exit(main())
"""


def test_a_second_interrupt_ends_at_once_without_a_traceback():
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for word in ("ready", "ending"):
            assert process.stdout.readline() == f"{word}\n"
            process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
    assert process.returncode == 130


def test_an_interrupt_is_one_line(run, monkeypatch):
    monkeypatch.setattr(methods, "run_methods", lambda _: signal.raise_signal(signal.SIGINT))
    assert threading.current_thread() is threading.main_thread()
    code, _, said = run("methods")
    assert (code, said.count("\n")) == (130, 1)
    assert said.startswith("twinlens: interrupted. Finished work is kept")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


LIMITED = """
import resource, sys
from tests.tiny import image_folder, model_file
from twinlens.cli.main import main
from twinlens.cli import evaluate
import twinlens.run.setup, twinlens.checks, twinlens.report
from pathlib import Path

folder = Path(sys.argv[1])
flags = ["--model", model_file(folder), "--data", image_folder(folder / "images", size=64), "--imputer", "constant"]
flags += ["--methods", "random", "--metrics", "deletion", "--quiet", "--batch-size", "4096", "--resamples", "20"]
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]) * 2**20, resource.RLIM_INFINITY))
sys.exit(main(["evaluate", *flags, "--out", str(folder / "run")]))
"""


@pytest.mark.parametrize("megabytes", [1, 8, 40])
def test_a_limit_of_memory_ends_in_one_line(tmp_path, megabytes):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), str(megabytes)],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if ": warning: " not in line]
    assert done.returncode == 0 or (done.returncode == 2 and len(lines) == 1 and lines[0].startswith("twinlens: error"))
