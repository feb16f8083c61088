"""What is the overhead of Ray on one machine, and what does a row cost?

    python benchmarks/ray_engine.py             # both
    python benchmarks/ray_engine.py overhead    # the local engine with one and two threads against two workers of Ray
    python benchmarks/ray_engine.py costs       # the costs in docs/guide/clusters.md

Compare ratios within one run; engines alternate, because machines are noisy. Timing of Ray starts when
the workers have the model, because a cluster is started once.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

import twinlens as tl
from twinlens.data.samples import Samples, check, from_arrays
from twinlens.probing.execution import using_threads
from twinlens.run.sample_selection import agreement_of_methods
from twinlens.support.progress import Quiet

IMAGES = 24
ROUNDS = 3
LEVELS = tl.metrics.PROTOCOLS["paper"].levels


class Clock(Quiet):
    """Measures the time from the first finished rows to the last."""

    def __init__(self) -> None:
        self.began = self.first = self.last = 0.0
        self.rows = self.rows_at_first = 0

    def begin(self, rows: Mapping[str, int], note: str = "") -> None:
        """Record when the engine is called."""
        self.began = time.perf_counter()

    def advance(self, task: str, rows: int, stage: str = "") -> None:
        """Count rows; the first ones are those of the original inputs."""
        self.rows += rows
        self.last = time.perf_counter()
        if rows and not self.first:
            self.first, self.rows_at_first = self.last, self.rows

    def per_row(self) -> float:
        """Return the seconds of a row between both."""
        return (self.last - self.first) / (self.rows - self.rows_at_first)


def noise(count: int, side: int, classes: int) -> Samples:
    rng = np.random.default_rng(0)
    # Within the range of normalised images: the solver uses float64 if values differ by more than eight.
    images = rng.uniform(-2, 2, size=(count, 3, side, side)).astype(np.float32)
    return from_arrays(images, rng.integers(0, classes, count), name="noise")


class Network(nn.Module):
    """A small convolutional network: a run of a few thousand rows takes about a minute."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.layers(images)
        return logits


def run(folder: str, **options: object) -> Clock:
    clock = Clock()
    tl.evaluate(
        Network(), noise(IMAGES, 96, 10), ["saliency", "random", "gradcam", "centre"], metrics=["soundness"],
        out=folder, batch_size=32, memory_format="contiguous", shard_size=2, resamples=10, progress=clock, **options,
    )  # fmt: skip
    return clock


def overhead() -> None:
    ways: Mapping[str, Mapping[str, object]] = {
        "local, one thread": {"threads": 1},
        "local, two threads": {"threads": 2},
        "ray, two workers of one CPU": {"engine": "ray", "cpus_per_unit": 1},
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    tl.impute_linear(torch.zeros(1, 3, 96, 96), torch.arange(96 * 96).reshape(1, 96, 96) % 2 == 0)  # compiled first
    for _ in range(ROUNDS):
        for name, options in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                clock = run(f"{folder}/run", **options)
                times[name].append(clock.per_row())
    medians = {name: float(np.median(values)) for name, values in times.items()}
    for name, seconds in medians.items():
        print(f"{name:<28} {seconds * 1e3:6.2f} ms per row, {[round(value * 1e3, 2) for value in times[name]]}")
    start, whole = clock.first - clock.began, clock.last - clock.began
    print(f"the last run of Ray: {clock.rows} rows in {whole:.1f} s, of which {start:.1f} s before the first were done")
    *local, remote = medians.values()
    print(f"ratio to the better of the local ones: {remote / min(local):.2f} (wanted: <= 1.15)")


class Glance(nn.Module):
    """A nearly free model: it reads the mean colour of every 32nd pixel."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(3, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.head(images[:, :, ::32, ::32].mean(dim=(2, 3)))
        return logits


def seconds_of(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the processor time of a function, the median of a few rounds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return float(np.median(times))


def costs() -> None:
    """Measure on one core what a row costs without the model, and the work of the driver."""
    torch.set_num_threads(1)
    samples, model = noise(4, 224, 10), Glance().eval()
    inputs = torch.from_numpy(np.stack([samples.read(i) for i in range(len(samples))]))
    maps = tl.attribute(model, inputs, samples.labels, "random", ids=samples.ids)
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=LEVELS)
    tl.impute_linear(inputs[:1], maps[:1] > 0.5)
    with using_threads(1), tempfile.TemporaryDirectory() as folder:
        rows = len(inputs) * len(LEVELS)
        sweep = {
            name: seconds_of(
                lambda imputer=imputer: tl.probe(
                    model, inputs, samples.labels, maps, schedule=schedule, imputer=imputer, batch_size=32
                ).save(f"{folder}/part.parquet")
            ) / rows
            for name, imputer in (("linear", tl.LinearImputer()), ("constant", tl.ConstantImputer(0.0)))
        }  # fmt: skip
        print(f"a row of 224 × 224: bookkeeping {sweep['constant'] * 1e3:.2f} ms of one core, "
              f"linear imputation {(sweep['linear'] - sweep['constant']) * 1e3:.2f} ms")  # fmt: skip
        photos = tl.open_data("imagenet20")
        print(
            f"an image to be checked: {seconds_of(lambda: check(photos, skip_bad=False, workers=1)) / 20 * 1e3:.0f} ms"
        )
        names = ["random", "centre"]
        tl.evaluate(
            Glance(), noise(1000, 33, 10), names, metrics=["soundness"], imputer=tl.ConstantImputer(0.0),
            out=f"{folder}/small", batch_size=64, memory_format="contiguous", shard_size=200, resamples=10,
        )  # fmt: skip
        asked = tl.open_evaluation(f"{folder}/small")
        ends = seconds_of(lambda: asked.ask(["soundness"], resamples=1000), rounds=1)
        print(f"results with 1,000 resamples: {ends / len(names) / 1000 * 1e3:.1f} ms per sample and method")
        large = tl.evaluate(
            Glance(), noise(32, 224, 10), names, metrics=["deletion"], imputer=tl.ConstantImputer(0.0),
            out=f"{folder}/large", batch_size=64, memory_format="contiguous", shard_size=16, resamples=10,
        )  # fmt: skip
        chosen = seconds_of(lambda: agreement_of_methods(large.run, 32))
        print(f"selection of samples: {chosen / len(names) / 32 * 1e3:.1f} ms per map of 224 × 224")


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            overhead()
            costs()
        case [name]:
            {"overhead": overhead, "costs": costs}[name]()
