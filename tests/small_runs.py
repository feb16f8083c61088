"""Small runs of the tiny model, here or in another process, what they leave behind, and how it is damaged."""

import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import nn

from tests.tiny import tiny_model
from twinlens.evaluation import evaluate
from twinlens.imputation.imputers import ConstantImputer

OPTIONS = {"batch_size": 16, "memory_format": "contiguous", "shard_size": 4, "resamples": 100}
QUICK = {**OPTIONS, "imputer": ConstantImputer(0.1)}
PARTS = (
    "maps/centre/00000.safetensors",
    "maps/centre/00001.safetensors",
    "probes/centre/area-morf-constant/00001.parquet",
    "probes/_original/00000.parquet",
)


class CountingModel(nn.Module):
    """The tiny model, which counts the inputs that it receives."""

    def __init__(self):
        super().__init__()
        self.inner = tiny_model()
        self.inputs = 0

    def forward(self, x):
        self.inputs += len(x)
        return self.inner(x)


def samples(n=10, size=9):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 3, size, size)).astype(np.float32), rng.integers(0, 3, n)


def make_run(path, methods=("random",), metrics="deletion", **options):
    return evaluate(tiny_model(), samples(), methods, out=path, metrics=metrics, **{**OPTIONS, **options})


def contents(out):
    """Every file but locks, and those that say how long it took."""
    timed = (".", "timings", "report")
    paths = [path for path in Path(out).rglob("*") if path.is_file() and not path.name.startswith(timed)]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


def flipped(content, rng):
    """The content with one bit changed."""
    place = int(rng.integers(len(content)))
    return content[:place] + bytes([content[place] ^ 1 << int(rng.integers(8))]) + content[place + 1 :]


def unseen(content, part):
    """The content with one bit changed such that the libraries read other numbers without a word."""
    if part.endswith("safetensors"):
        return content[:-5] + bytes([content[-5] ^ 16]) + content[-4:]
    read = ["removed", "kept_mass", "predicted", "probability", "logit"]  # others are derived from these
    rng, numbers = np.random.default_rng(0), pq.read_table(io.BytesIO(content)).to_pandas()[read]
    while True:
        changed = flipped(content, rng)
        try:
            if not pq.read_table(io.BytesIO(changed)).to_pandas()[read].equals(numbers):
                return changed
        except (OSError, ValueError, KeyError, pa.ArrowException):
            continue


def script(text, *arguments):
    """Run Python in a process of its own and return what it prints."""
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)],
        capture_output=True, text=True, check=True, env=environment, timeout=1800,
    ).stdout  # fmt: skip


CHECKED = 14  # inputs of the calls before the work
COMPARED = 3  # and of the comparison with an existing run
