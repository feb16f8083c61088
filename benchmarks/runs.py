"""What does a run cost beside the bare forward passes of its model, what does compiling gain, does memory stay flat?

    python benchmarks/runs.py                 # all three, on EfficientNet-lite0 with its packaged weights
    python benchmarks/runs.py overhead        # or one of: overhead, compile, memory

Ratios within one run are what counts. Forward passes are timed before and after each sweep, as machines are noisy.
"""

from __future__ import annotations

import dataclasses
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from torch import Tensor, nn

import twinlens as tl
from twinlens.data.inputs import load_inputs
from twinlens.data.samples import Samples
from twinlens.models.loading import LoadedModel
from twinlens.probing.execution import Prepared, tune

IMAGES = 4
SCHEDULE = tl.Schedule(by="area", order="lerf", levels=tl.PROTOCOLS["paper"].levels)


def subject() -> tuple[LoadedModel, Samples, Tensor]:
    model, samples = tl.load_model("efficientnet-lite0"), tl.open_data("imagenet20").take(range(IMAGES))
    return model, samples, load_inputs(samples, model, workers=2)


def forward_seconds(model: nn.Module, inputs: Tensor, rows: int, batch_size: int) -> float:
    """Time as many bare forward passes as there are rows, by the median batch."""
    batch = inputs[torch.arange(batch_size) % len(inputs)]
    times = []
    with torch.inference_mode():
        model(batch)
        for _ in range(max(5, rows // batch_size // 3)):
            start = time.perf_counter()
            model(batch)
            times.append(time.perf_counter() - start)
    return float(np.median(times)) / batch_size * rows


def sweep(model: nn.Module, samples: Samples, inputs: Tensor, maps: Tensor, imputer: object, batch_size: int):
    """Time a soundness sweep, between two timings of the forward pass."""
    rows = len(inputs) * len(SCHEDULE.levels)
    before = forward_seconds(model, inputs, rows, batch_size)
    start = time.perf_counter()
    table = tl.probe(
        model, inputs, samples.labels, maps, schedule=SCHEDULE, imputer=imputer, ids=samples.ids, batch_size=batch_size
    )
    seconds = time.perf_counter() - start
    after = forward_seconds(model, inputs, rows, batch_size)
    return table, seconds, (before + after) / 2


def overhead() -> None:
    loaded, samples, inputs = subject()
    execution = tune(loaded.module, inputs[:1])
    model = Prepared(loaded.module, execution).eval()
    maps = tl.attribute(loaded.module, inputs, samples.labels, "gradcam")
    print(f"{execution}; {IMAGES} images × {len(SCHEDULE.levels)} levels")
    imputers = {"linear (wanted: <= 1.25)": tl.LinearImputer(), "constant (wanted: <= 1.15)": tl.ConstantImputer(0.0)}
    tl.impute_linear(inputs[:1], maps[:1] > 0)  # compiled before the clock starts
    for name, imputer in imputers.items():
        _, seconds, bare = sweep(model, samples, inputs, maps, imputer, execution.batch_size)
        print(f"{name:<28} sweep {seconds:6.1f} s   forward {bare:6.1f} s   ratio {seconds / bare:.2f}")


def compiling() -> None:
    loaded, samples, inputs = subject()
    maps = tl.attribute(loaded.module, inputs, samples.labels, "gradcam")
    tl.impute_linear(inputs[:1], maps[:1] > 0)
    plain = tune(loaded.module, inputs[:1])
    start = time.perf_counter()
    chosen = tune(loaded.module, inputs[:1], compiled=True)
    print(f"{chosen}, found and compiled in {time.perf_counter() - start:.0f} s; eager: {plain}")
    untuned = dataclasses.replace(plain, memory_format="contiguous")
    tables, times = [], []
    for execution in (untuned, plain, chosen):
        model = Prepared(loaded.module, execution).eval()
        table, seconds, _ = sweep(model, samples, inputs, maps, tl.LinearImputer(), execution.batch_size)
        tables.append(table)
        times.append(seconds)
    agree = (tables[0].predicted == tables[2].predicted).mean()
    print(
        f"eager {times[0]:.1f} s   eager, tuned {times[1]:.1f} s   compiled {times[2]:.1f} s: "
        f"{times[0] / times[2]:.2f}× eager (wanted: >= 1.5), {times[1] / times[2]:.2f}× tuned   "
        f"predictions agree on {agree:.2%} (wanted: >= 99.5%)"
    )


class Small(nn.Module):
    """Cheap enough for thousands of images of full size."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Read the mean colour of every eighth pixel."""
        return self.head(images[:, :, ::8, ::8].mean(dim=(2, 3)))


def peak(count: int) -> None:
    """Run `count` images of 224 × 224 through everything, and print the peak of this process's memory in MB."""

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
        case []:
            overhead()
            compiling()
            memory()
        case [name]:
            {"overhead": overhead, "compile": compiling, "memory": memory}[name]()
