"""How often is a p-value below 5% where there is nothing to find?

Every kind of p-value that twinlens prints is computed on data sets in which its null hypothesis holds. The demo's
network reads handwritten digits. Maps are independent of them: random, pixel by pixel or smooth. Every map is probed
once on every digit; data sets draw digits and maps from these, without replacement.

    python benchmarks/false_alarms.py                           # 200 data sets of 50 samples, some minutes
    python benchmarks/false_alarms.py --samples 10              # the same with few samples
    python benchmarks/false_alarms.py --sets 2000               # smaller standard errors

*Skill* compares maps with the same maps exchanged between the samples, for half of the samples (the default) and for
all. *Methods* compares two independent random methods, *three methods* counts data sets in which any pair of three
is declared different. *Runs* compares a random method on two independent sets of samples, the second half as large.
"""

import argparse
import dataclasses
import time

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

import twinlens as tl
from twinlens.models.mnist_cnn import mnist_digits, trained_cnn
from twinlens.probing.exchange import draw_controlled, draw_partners, exchange_groups
from twinlens.statistics.contrasts import RunValues, compare_runs

METRICS = {
    "soundness_rank": tl.METRICS["soundness_rank"],
    "completeness_share": tl.METRICS["completeness_share"],
    "calibration": tl.METRICS["calibration"],
    "road_morf": tl.METRICS["road_morf"],
    "road_lerf": tl.METRICS["road_lerf"],
    "completeness": tl.METRICS["completeness"],
    "soundness, probability": tl.Soundness(performance="probability", levels=tuple(np.arange(95, 0, -5) / 100)),
}
SMOOTH = 3.0  # pixels, the deviation of the filter


def random_maps(kind, count, rng):
    """Maps (N, 28, 28) that are independent of any input."""
    noise = rng.random((count, 28, 28))
    if kind == "smooth":
        noise = gaussian_filter(noise, (0, SMOOTH, SMOOTH))
        noise -= noise.min(axis=(1, 2), keepdims=True)
    return noise.astype(np.float32)


class Bank:
    """The network's answers for every pair of a digit and a map, of which data sets are drawn."""

    def __init__(self, kind, *, digits, maps, seed):
        rng = np.random.default_rng(seed)
        images, labels = mnist_digits(held_out=True)
        chosen = rng.choice(len(labels), size=digits, replace=False)
        self.labels, self.maps = labels[chosen], maps
        inputs = torch.as_tensor(images[chosen, None] / 255.0, dtype=torch.float32)
        model, drawn, blocks = trained_cnn().eval(), random_maps(kind, maps, rng), {}
        for k in range(digits):  # rows: all maps on the first digit, then on the second
            ids = [f"{k} {m}" for m in range(maps)]
            same = inputs[k : k + 1].expand(maps, -1, -1, -1), np.full(maps, self.labels[k])
            for (by, order), schedule in self.schedules().items():
                table = tl.probe(model, *same, drawn, schedule=schedule, ids=ids, seed=seed, batch_size=250)
                blocks.setdefault((by, order), []).append(table)
        self.tables = {kind: tl.ProbeTable.concatenate(each) for kind, each in blocks.items()}

    @staticmethod
    def schedules():
        """The sweeps of all metrics; the first of each kind has the levels of the others."""
        sweeps = [sweep.schedule for metric in METRICS.values() for sweep in metric.sweeps(28 * 28)]
        return {(each.by, each.order): each for each in reversed(sweeps)}

    def curves(self, digits, maps, some=slice(None)):
        """Return the curve by each metric of these digits with these maps, or of some of them."""
        rows, ids = (digits * self.maps + maps)[some], tuple(map(str, digits[some]))
        tables = {key: dataclasses.replace(table.take(rows), ids=ids) for key, table in self.tables.items()}
        curves = {}
        for name, metric in METRICS.items():
            schedules = [sweep.schedule for sweep in metric.sweeps(28 * 28)]
            curves[name] = metric.read(
                [tables[each.by, each.order].join_levels(levels=each.levels) for each in schedules]
            )
        return curves


def test_data_set(bank, samples, seed, resamples):
    """Return all p-values of one data set, by test and metric."""
    rng = np.random.default_rng([7, seed])
    digits, others = np.split(rng.permutation(len(bank.labels))[: samples + samples // 2], [samples])
    maps = rng.permutation(bank.maps)[: 3 * samples].reshape(3, samples)
    ids = [str(k) for k in digits]
    labels = bank.labels[digits]
    exchanged = maps[0][draw_partners(ids, labels, seed=seed)]
    half, groups = draw_controlled(ids, labels, 0.5, seed=seed), exchange_groups(ids, labels, seed=seed)
    methods = {f"method {k}": bank.curves(digits, maps[k]) for k in range(3)}
    elsewhere = bank.curves(others, maps[1][: len(others)])
    skills = {
        f"skill, {share}": [bank.curves(digits, each, some) for each in (maps[0], exchanged)]
        for share, some in (("half", half), ("all", slice(None)))
    }
    p_values = {}
    for name in METRICS:
        for test, (own, other) in skills.items():
            p_values[test, name] = tl.skill(own[name], other[name], resamples=resamples, groups=groups).p
        pairs = tl.compare({key: {name: own[name]} for key, own in methods.items()}, resamples=resamples).pairs
        p_values["methods", name] = pairs[0].p_alone
        p_values["three methods", name] = min(np.array([pair.difference.p for pair in pairs], dtype=float))
        p_values["runs", name] = compare_two(name, (methods["method 0"][name], elsewhere[name]), resamples)
    return p_values


def compare_two(metric, curves, resamples):
    """Return the p-value of a difference between two runs of other samples."""
    areas = tuple(tl.bootstrap(curve, resamples=resamples, seed=k).area() for k, curve in enumerate(curves))
    names = {"metric": metric, "method": "random", "quantity": "area", "runs": ("one", "other")}
    return compare_runs([RunValues(**names, values=areas, paired=False, higher_is_better=True)])[0].p_alone


def count_alarms(bank, *, sets, samples, resamples=300, seed=0):
    """Return the share of p-values below 5% by test and metric; NaN where there is no p-value."""
    studies = [test_data_set(bank, samples, 100_000 * seed + k, resamples) for k in range(sets)]
    found = {key: np.array([each[key] for each in studies], dtype=float) for key in studies[0]}
    return {key: np.mean(p < 0.05) if np.isfinite(p).all() else np.nan for key, p in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--resamples", type=int, default=300)
    parser.add_argument("--digits", type=int, default=200)
    parser.add_argument("--maps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=["smooth", "pixels"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    for kind in options.kinds:
        bank = Bank(kind, digits=options.digits, maps=options.maps, seed=options.seed)
        alarms = count_alarms(
            bank, sets=options.sets, samples=options.samples, resamples=options.resamples, seed=options.seed
        )
        tests = list(dict.fromkeys(test for test, _ in alarms))
        print(f"| {kind} maps | " + " | ".join(tests) + " |\n" + "|---" * (len(tests) + 1) + "|")
        for name in METRICS:
            shares = ["–" if np.isnan(alarms[test, name]) else f"{alarms[test, name]:.1%}" for test in tests]
            print(f"| {name} | {' | '.join(shares)} |", flush=True)
    print(f"{options}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
