"""A local Ray cluster whose processes are killed ends the command in one line, before Ray does."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WATCHING = """
import subprocess, sys, threading
from twinlens.run import ray_engine

other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
threading.Thread(target=ray_engine._watch, args=({other.pid: "raylet"}, threading.Event())).start()
other.kill()
"""


def test_a_killed_process_of_the_cluster_is_named():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", WATCHING], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("twinlens: error: raylet of the Ray cluster is gone")
    assert done.stderr.count("\n") == 1
