"""How much time and memory do results and report of very large runs take?

    python benchmarks/scale.py                          # 5,000, 15,000 and 50,000 samples, 12 methods
    python benchmarks/scale.py --samples 5000 --out DIR

One shard is probed for real, 98 levels of soundness among the rest; the others are generated from it, with new
ids and noisy answers. Then results and report are computed as at the end of every evaluation, in a separate process.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import twinlens as tl
from twinlens.outcome import write_analysis
from twinlens.probing.exchange import draw_controlled
from twinlens.probing.probe_table import ProbeTable
from twinlens.run.directory import Run
from twinlens.run.execution_choice import choose_shard_size
from twinlens.run.table_reader import TableReader
from twinlens.support.tensor_files import load_tensors, save_tensors

SAMPLES, METHODS = (5_000, 15_000, 50_000), 12
DISTINCT = 3  # generated methods; the others are copies
METRICS = ["soundness_rank", "completeness", "soundness"]
SIDE, CLASSES = 16, 10
PHOTOGRAPH = 3 * 224 * 224  # values of an input, which determine the number of shards


def method(number: int) -> Callable[..., Tensor]:
    def explain(model, inputs, targets, *, ids=None, seed=0) -> Tensor:
        noise = torch.rand(inputs.shape[0], SIDE, SIDE, generator=torch.Generator().manual_seed(number))
        return inputs.abs().mean(dim=1) + 0.1 * number * noise

    return explain


def one_shard(folder: Path, size: int) -> Run:
    """Evaluate all methods on one shard of images."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * (SIDE - 2) ** 2, CLASSES)).eval()
    inputs = torch.randn(size, 3, SIDE, SIDE)
    return tl.evaluate(
        model, (inputs, model(inputs).argmax(dim=1)), {f"method_{k}": method(k) for k in range(METHODS)},
        metrics=METRICS, control_share=1.0, out=folder, batch_size=64, memory_format="contiguous", shard_size=size,
        threads=1, resamples=20,
    ).run  # fmt: skip


def noisy(table: ProbeTable, ids: tuple[str, ...], rng: np.random.Generator) -> ProbeTable:
    """Return the same probes for other samples, with slightly different answers."""
    logit = table.logit + rng.normal(scale=0.3, size=table.logit.shape)
    rank = np.where(rng.random(logit.shape) < 0.05, 1, table.target_rank)
    return dataclasses.replace(table, ids=ids, logit=logit, probability=1 / (1 + np.exp(-logit)), target_rank=rank)


def make_up(run: Run, samples: int, size: int) -> None:
    """Fill a run with shards until there are enough samples; the control has half of them, as by default."""
    manifest, names = run.manifest, [f"{position:05d}" for position in range(samples)]
    chosen = set(draw_controlled(names, 0.5, seed=manifest.seed).tolist())
    shards = [range(start, min(start + size, samples)) for start in range(0, samples, size)]
    sweeps = {sweep.name: dataclasses.replace(sweep, exchanged=sweep.exchanged and 0.5) for sweep in manifest.sweeps}
    question = dataclasses.replace(manifest.settings, control_share=0.5, resamples=1000)
    data = dataclasses.replace(manifest.data, samples=samples)
    run.write_manifest(dataclasses.replace(manifest, sweeps=tuple(sweeps.values()), data=data, settings=question))
    for kind, k in ((kind, k) for kind in ("probes", "maps") for k in range(DISTINCT, METHODS)):
        shutil.rmtree(run.path / kind / f"method_{k}")
    for part in sorted(run.path.glob("probes/**/00000.parquet")):
        table, rng, sweep = ProbeTable.load(part), np.random.default_rng(0), sweeps.get(part.parent.name)
        part.unlink()
        for shard, here in enumerate(shards):
            kept = [k for k in here if k in chosen or not (sweep and sweep.exchanged)]
            if kept:
                ids = tuple(names[k] for k in kept)
                noisy(table.take([k - here[0] for k in kept]), ids, rng).save(part.with_name(f"{shard:05d}.parquet"))
    for part in sorted(run.path.glob("maps/*/00000.safetensors")):
        maps = load_tensors(part)[0]["maps"]
        for shard, here in enumerate(shards):
            about = {"ids": [names[k] for k in here]}
            save_tensors(part.with_name(f"{shard:05d}.safetensors"), {"maps": maps[: len(here)].clone()}, about=about)
    for kind, k in ((kind, k) for kind in ("probes", "maps") for k in range(DISTINCT, METHODS)):
        first = run.path / kind / f"method_{k % DISTINCT}"
        shutil.copytree(first, first.with_name(f"method_{k}"), copy_function=os.link)


def judge(folder: Path) -> None:
    """Compute the results and the report of a run, and print time and memory."""
    evaluation = tl.open_evaluation(folder)
    question = evaluation.run.manifest.settings
    start = time.perf_counter()
    evaluation, _ = write_analysis(TableReader(evaluation.run), question.values(), question, None)
    middle = time.perf_counter()
    tl.write_report([evaluation], folder / "report.html")
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    size = (folder / "results.json").stat().st_size / 1e6
    print(f"{middle - start:.0f} s | {end - middle:.0f} s | {peak:.2f} | {size:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, nargs="+", default=SAMPLES)
    parser.add_argument("--out", type=Path, help="directory for runs; they are removed by default")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.judge:
        judge(given.judge)
        return
    print("| samples | results | report | memory, GB | results.json, MB |\n|---|---|---|---|---|", flush=True)
    for samples in given.samples:
        folder = Path(given.out or tempfile.mkdtemp(), str(samples))
        if not folder.exists():
            size = choose_shard_size(samples, PHOTOGRAPH)
            make_up(one_shard(folder, size), samples, size)
        print(f"| {samples:,} | ", end="", flush=True)
        subprocess.run([sys.executable, __file__, "--judge", folder], check=True)
        if given.out is None:
            shutil.rmtree(folder.parent)


if __name__ == "__main__":
    main()
