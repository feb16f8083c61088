"""How long does the report of ten methods on 500 images of 224 × 224 take, and how large is it?

    python benchmarks/report.py

One shard is probed for real; the others are copies of its probes under new ids. The report then reads all tables,
chooses levels, imputes the samples that it shows, and writes one file.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import twinlens as tl
from twinlens import write_report  # imported before timing starts
from twinlens.imputation.imputers import describe_imputer
from twinlens.probing.probe_table import ProbeTable
from twinlens.support.fields import JSON, to_json

SHARD, SAMPLES, METHODS = 16, 500, 10
QUICK = tl.ConstantImputer(0.5)  # probes with it; the report imputes linearly


def smooth(count: int, channels: int, cells: int, seed: int) -> Tensor:
    drawn = torch.rand(count, channels, cells, cells, generator=torch.Generator().manual_seed(seed))
    return nn.functional.interpolate(drawn, size=224, mode="bilinear")


def method(number: int) -> Callable[..., Tensor]:
    def explain(model, inputs, targets, *, ids=None, seed=0) -> Tensor:
        return smooth(len(inputs), 1, 7 + number, number)[:, 0]

    return explain


def one_shard(folder: Path) -> None:
    """Evaluate ten methods on one shard of images."""
    pixels = (smooth(SHARD, 3, 14, 0) * 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    model = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 5))
    tl.evaluate(
        model,
        (pixels, np.arange(SHARD) % 5),
        {f"method_{k}": method(k) for k in range(METHODS)},
        out=folder,
        imputer=QUICK,
        batch_size=64,
        memory_format="contiguous",
        shard_size=SHARD,
        control="none",  # its samples would differ from those of the copies
        resamples=20,
    )


def exchanged(stored: JSON) -> JSON:
    """Replace the fast imputer by the linear one in the manifest."""
    if stored == describe_imputer(QUICK):
        return describe_imputer(tl.LinearImputer())
    if isinstance(stored, dict):
        return {key: exchanged(value) for key, value in stored.items()}
    return [exchanged(value) for value in stored] if isinstance(stored, list) else stored


def make_up(folder: Path) -> None:
    """Copy the probes of the shard under new ids until there are enough samples."""
    evaluation = tl.open_evaluation(folder)
    for name, content in (("run.json", evaluation.run.manifest), ("results.json", evaluation.results)):
        data = dataclasses.replace(content.data, samples=SAMPLES)
        evaluation.run.write_json(name, exchanged(to_json(dataclasses.replace(content, data=data))))
    for part in sorted(folder.glob("probes/**/00000.parquet")):
        table = ProbeTable.load(part)
        for shard in range(1, -(-SAMPLES // SHARD)):
            count = min(SHARD, SAMPLES - shard * SHARD)
            copied = dataclasses.replace(table, ids=tuple(f"{shard}-{name}" for name in table.ids)).take(range(count))
            copied.save(part.with_name(f"{shard:05d}.parquet"))


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        one_shard(folder)
        make_up(folder)
        tl.impute_linear(torch.rand(1, 3, 224, 224), torch.rand(1, 224, 224) > 0.5)  # compiled before timing starts
        start = time.perf_counter()
        path = write_report([tl.open_evaluation(folder)], Path(place, "report.html"))
        seconds, size = time.perf_counter() - start, path.stat().st_size / 1e6
        print(f"{SAMPLES} samples, {METHODS} methods: {seconds:.1f} s (wanted: < 30), {size:.2f} MB (wanted: < 8)")


if __name__ == "__main__":
    main()
