"""What does everything but the model and the imputer cost?

Ranks 1,000 maps of 200 features, builds the keep-masks of 97 levels, fills a probe table with a trivial model, and
computes every metric from it. Then repeats that with ten and thirty times the levels and compares the growth of peak
memory with the growth of the table itself.

    python benchmarks/bookkeeping.py
"""

import argparse
import multiprocessing
import resource
import time

import numpy as np
import torch

import twinlens as tl
from twinlens import probe, soundness_from_probes  # imported before timing starts

COLUMNS = ("removed", "kept_mass", "predicted", "probability", "logit", "target_rank")


def nothing(inputs, keep, streams):
    return inputs


def run(samples, features, levels):
    rng = np.random.default_rng(0)
    inputs, maps = torch.zeros(samples, features), rng.random((samples, features))
    labels, answer = rng.integers(0, 2, samples), torch.randn(4096, 2)
    shares = tuple(np.linspace(0.98, 0.02, levels))

    start = time.perf_counter()
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=shares)
    table = probe(lambda x: answer[: len(x)], inputs, labels, maps, schedule=schedule, imputer=nothing)
    probed = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for performance in ("accuracy", "probability", "balanced_accuracy"):
        for protocol in ("paper", "soco"):
            soundness_from_probes(table, performance=performance, protocol=protocol)
    done = time.perf_counter()
    held = sum(getattr(table, name).nbytes for name in COLUMNS) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return probed - start, done - probed, held, before / 1024, peak / 1024


def apart(arguments, results):
    results.put(run(*arguments))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--features", type=int, default=200)
    options = parser.parse_args()
    print(f"{options.samples} samples × {options.features} features")
    print("levels   probing   six curves   probe table   peak while probing   peak in all")
    context = multiprocessing.get_context("spawn")
    for levels in (10, 97, 970, 2910):
        results = context.Queue()
        process = context.Process(target=apart, args=((options.samples, options.features, levels), results))
        process.start()
        probing, metrics, held, before, peak = results.get()
        process.join()
        print(
            f"{levels:6d} {probing:8.2f}s {metrics:11.2f}s {held:9.1f} MiB {before:16.0f} MiB {peak:10.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
