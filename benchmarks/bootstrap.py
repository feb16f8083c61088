"""How long do intervals take, and how much do results vary with the seed?

    python benchmarks/bootstrap.py                       # 1,000 resamples of 5,000 samples × 97 levels
    python benchmarks/bootstrap.py --spread FOLDER       # ten seeds on CIFAR-10, a quarter of an hour on one core

FOLDER holds the reference values of the paper's authors' code (golden/cifar10) and the weights of a ResNet-20
(data/cifar10); see the README there.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

import twinlens as tl
from twinlens import bootstrap  # imported before timing starts
from twinlens.probing.probe_table import ProbeSettings

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the network of the tests


def random_table(samples, levels, order="lerf"):
    rng, features = np.random.default_rng(0), 1000
    counts = np.linspace(20, 980, levels).round().astype(int)
    removed = features - counts if order == "lerf" else np.r_[0, counts[:-1]]
    settings = ProbeSettings(
        schedule=tl.probing.Schedule(by="area", order=order, levels=tuple(removed / features)),
        imputer="none",
        seed=0,
        spatial=(features,),
    )
    shape = (samples, levels)
    rank = (rng.random(shape) > np.linspace(0.1, 0.8, levels)).astype(np.int64)
    return tl.ProbeTable(
        settings=settings,
        ids=tuple(map(str, range(samples))),
        labels=rng.integers(0, 10, samples),
        map_kinds=("regular",) * samples,
        removed=np.broadcast_to(removed, shape),
        kept_mass=rng.random(shape).cumsum(axis=1),
        predicted=rank,
        probability=rng.random(shape),
        logit=rng.normal(size=shape),
        target_rank=rank,
    )


def time_intervals(samples, levels, resamples):
    table, opposite = random_table(samples, levels), random_table(samples, levels, "morf")
    curves = {
        "soundness, accuracy": tl.soundness_from_probes(table),
        "soundness, accuracy, soco": tl.soundness_from_probes(table, protocol="soco"),
        "soundness, probability": tl.soundness_from_probes(table, performance="probability"),
        "removal, accuracy": tl.removal_from_probes(opposite),
    }
    print(f"{resamples} resamples of {samples} samples × {levels} levels")
    for name, curve in curves.items():
        start = time.perf_counter()
        bootstrap(curve, resamples=resamples)
        print(f"{name:28}{time.perf_counter() - start:7.1f} s", flush=True)


def cifar(folder):
    from PIL import Image  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    from examples.resnet20 import ResNet20, normalise  # noqa: PLC0415

    golden = folder / "golden/cifar10"
    stored = np.load(golden / "maps.npz")

    def pictures(kind):
        return np.stack([np.asarray(Image.open((golden / kind / f).with_suffix(".png"))) for f in stored["files"]])

    model = ResNet20()
    model.load_state_dict(load_file(folder / "data/cifar10/resnet20.safetensors"))
    return model, normalise(pictures("images")), stored["labels"], pictures("smaps/ig")


def describe_spread(tables):
    """Mean of the soundness over levels, for each seed, by each estimator."""
    ways = {
        "soco, accuracy": {"protocol": "soco"},
        "soco, logit": {"protocol": "soco", "performance": "score"},
        "paper, accuracy": {},
        "paper, probability": {"performance": "score"},
    }
    print("| estimator | mean | smallest | largest | standard deviation |\n|---|---|---|---|---|")
    for name, options in ways.items():
        found = [tl.soundness_from_probes(table, **options).values.mean() for table in tables]
        print(f"| {name} | {np.mean(found):.3f} | {min(found):.3f} | {max(found):.3f} | {np.std(found, ddof=1):.4f} |")


def spread(folder, seeds):
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=tl.metrics.PROTOCOLS["paper"].levels)
    tables = []
    case = cifar(folder)
    for seed in range(seeds):
        start = time.perf_counter()
        tables.append(tl.probe(*case, schedule=schedule, seed=seed))
        print(f"seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
    describe_spread(tables)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--levels", type=int, default=97)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--spread", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    if options.spread:
        torch.set_num_threads(1)
        spread(options.spread, options.seeds)
    else:
        time_intervals(options.samples, options.levels, options.resamples)


if __name__ == "__main__":
    main()
