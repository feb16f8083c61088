"""Does the memory of a run stay constant as the data grow? benchmarks/bench.py measures the cost of a sweep.

python benchmarks/runs.py
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch import Tensor, nn

import twinlens as tl
from twinlens.data.samples import Samples


class Small(nn.Module):
    """A model cheap enough for thousands of full-size images."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Read the mean colour of every eighth pixel."""
        return self.head(images[:, :, ::8, ::8].mean(dim=(2, 3)))


def peak(count: int) -> None:
    """Run `count` images of 224 × 224 through a whole run, and print the peak memory of this process in MB."""

    def read(position: int):
        return np.random.default_rng(position).normal(size=(3, 224, 224)).astype(np.float32)

    samples = Samples(
        name="noise",
        ids=tuple(f"{i:05d}" for i in range(count)),
        labels=np.arange(count) % 10,
        classes=None,
        positions=np.arange(count),
        reader=read,
        fingerprint=lambda position: str(position).encode(),
    )
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        tl.evaluate(
            Small(), samples, ["saliency", "random"], metrics=["soundness", "completeness"], out=f"{folder}/run",
            imputer=tl.ConstantImputer(0.0), batch_size=16, memory_format="contiguous", shard_size=16,
        )  # fmt: skip
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def memory() -> None:
    peaks = [
        int(
            subprocess.run(
                [sys.executable, __file__, "peak", str(n)], capture_output=True, text=True, check=True
            ).stdout
        )
        for n in (200, 2000)
    ]
    print(
        f"peak memory: 200 images {peaks[0]} MB, 2,000 images {peaks[1]} MB, ratio {peaks[1] / peaks[0]:.2f} (<= 1.10)"
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["peak", count]:
            peak(int(count))
        case _:
            memory()
