"""Do 95% intervals cover the truth in 95% of cases, and does the paired test raise false alarms in 5%?

A population of samples is probed once; its values are the truth. Data sets are drawn from it, and each interval is
checked against that truth. For the paired test two methods of equal quality are made by swapping two maps at
random, sample by sample.

    python benchmarks/interval_coverage.py                      # 500 data sets of 200 samples, a few minutes
    python benchmarks/interval_coverage.py --samples 50         # the same with few samples
    python benchmarks/interval_coverage.py --accuracy           # intervals tried for the paper's accuracy mode
    python benchmarks/interval_coverage.py --pairs --sets 60 --resamples 200     # on which side it decides differences
    python benchmarks/interval_coverage.py --runs               # false alarms between runs of other samples
"""

import argparse
import dataclasses
import time
from itertools import combinations

import numpy as np
import torch
from scipy.ndimage import uniform_filter1d

import twinlens as tl
from twinlens.laboratory.tasks import interaction, map_grid, sparse_linear
from twinlens.metrics.removal import SHARES, THRESHOLDS
from twinlens.statistics.contrasts import RunValues, compare_runs
from twinlens.support.estimate import Estimate

SWEEP = tl.probing.Schedule(by="area", order="lerf", levels=tl.metrics.PROTOCOLS["paper"].levels)
JOINING, LEAVING = (sweep.schedule for sweep in tl.METRICS["soundness_rank"].sweeps(200))
SCHEDULES = {
    "sweep": SWEEP,
    "joining": JOINING,
    "leaving": LEAVING,
    "value": tl.probing.Schedule(by="value", order="morf", levels=(1.0, *THRESHOLDS)),
    "area": tl.probing.Schedule(by="area", order="morf", levels=(0.0, *SHARES)),
}
METRICS = {
    "soundness": lambda t: tl.METRICS["soundness_rank"].read([t["joining"], t["leaving"]]),
    "completeness": lambda t: tl.METRICS["completeness_share"].read([t["joining"], t["leaving"]]),
    "calibration": lambda t: tl.METRICS["calibration"].read([t["joining"], t["leaving"]]),
    "ROAD": lambda t: tl.removal_from_probes(t["area"]),
    "completeness (paper)": lambda t: tl.completeness_from_probes(t["value"]),
    "soundness (paper), score": lambda t: tl.soundness_from_probes(t["sweep"], performance="probability"),
}
USED = {
    "soundness": ("joining", "leaving"),
    "completeness": ("joining", "leaving"),
    "calibration": ("joining", "leaving"),
    "ROAD": ("area",),
    "completeness (paper)": ("value",),
    "soundness (paper), score": ("sweep",),
}


def flawed(task, seed):
    """A map with some attribution removed and some on features that are not predictive."""
    rng, truth = np.random.default_rng(seed), task.information
    kept = truth * (rng.random(truth.shape) > 0.3)
    false = 0.4 * truth.max(axis=1, keepdims=True) * rng.random(truth.shape) * ~task.predictive
    return kept + false * (rng.random(truth.shape) > 0.5)


def probe_population(task, maps, prefix, schedules):
    ids = [f"{prefix}{k}" for k in range(len(task.labels))]
    return {
        name: tl.probe(task.model, task.inputs, task.labels, maps, schedule=schedule, imputer=task.imputer, ids=ids)
        for name, schedule in schedules.items()
    }


def draw(population, index):
    """A data set of these members; its ids are new, because a member may be drawn twice."""
    names = tuple(str(k) for k in range(len(index)))
    return {name: dataclasses.replace(table.take(index), ids=names) for name, table in population.items()}


def coverage(metric, population, options):
    size = len(next(iter(population.values())))
    truth = metric(population)
    rng, rows = np.random.default_rng(1), []
    for _ in range(options.sets):
        found = tl.bootstrap(
            metric(draw(population, rng.integers(size, size=options.samples))), resamples=options.resamples
        )
        area = found.area()
        low, high = found.band()
        below, above = found.band(simultaneous=True)
        # What is exactly the same for all samples is computed with other roundings in a larger data set.
        point = ((low <= truth.values + 1e-9) & (truth.values <= high + 1e-9)).mean()
        band = ((below <= truth.values + 1e-9) & (truth.values <= above + 1e-9)).all()
        rows.append((area.value, area.low, area.high, point, band))
    value, low, high, point, band = np.array(rows, dtype=float).T
    holds = np.mean((low <= truth.area()) & (truth.area() <= high))
    return holds, point.mean(), band.mean(), truth.area(), value.mean(), (high - low).mean()


def false_alarms(metric, both, options):
    size, rng, p_values = len(next(iter(both.values()))) // 2, np.random.default_rng(2), []
    for _ in range(options.sets):
        index, swapped = rng.integers(size, size=options.samples), rng.random(options.samples) < 0.5
        one, other = (metric(draw(both, index + size * (swapped == side))) for side in (True, False))
        p_values.append(tl.skill(one, other, resamples=options.resamples).p)
    return np.mean(np.array(p_values) < 0.05)


def measure_metrics(options):
    task, chosen = sparse_linear(options.population), options.metrics or list(METRICS)
    schedules = {name: SCHEDULES[name] for metric in chosen for name in USED[metric]}
    one, other = (probe_population(task, flawed(task, k), "ab"[k], schedules) for k in (0, 1))
    both = {name: tl.ProbeTable.concatenate([one[name], other[name]]) for name in one}
    print("| metric | area | each level | whole curve | population → mean estimate | mean width | false alarms |")
    print("|---|---|---|---|---|---|---|")
    for name in chosen:
        metric = METRICS[name]
        own, pair = ({table: tables[table] for table in USED[name]} for tables in (one, both))
        holds, point, band, truth, mean, width = coverage(metric, own, options)
        print(
            f"| {name} | {holds:.1%} | {point:.1%} | {band:.1%} | {truth:.3f} → {mean:.3f} | {width:.3f} | "
            f"{false_alarms(metric, pair, options):.1%} |",
            flush=True,
        )


def two_sample_alarms(metric, population, sizes, options):
    """Share of pairs of data sets, of these sizes and drawn independently, that are declared different."""
    size, rng, p_values = len(next(iter(population.values()))), np.random.default_rng(3), []
    for _ in range(options.sets):
        curves = [metric(draw(population, rng.integers(size, size=count))) for count in sizes]
        areas = tuple(
            tl.bootstrap(curve, resamples=options.resamples, seed=seed).area() for seed, curve in enumerate(curves)
        )
        values = RunValues(
            metric="m",
            method="m",
            quantity="area",
            runs=("one", "other"),
            values=areas,
            paired=False,
            higher_is_better=True,
        )
        p_values.append(compare_runs([values])[0].p_alone)
    return np.mean(np.array(p_values) < 0.05)


def measure_runs(options):
    task, chosen = sparse_linear(options.population), options.metrics or list(METRICS)
    few = options.samples // 4
    print(f"| metric | {options.samples} and {options.samples} samples | {options.samples} and {few} |")
    print("|---|---|---|")
    for name in chosen:
        own = probe_population(task, flawed(task, 0), "a", {table: SCHEDULES[table] for table in USED[name]})
        alarms = [
            two_sample_alarms(METRICS[name], own, (options.samples, other), options) for other in (options.samples, few)
        ]
        print(f"| {name} | {alarms[0]:.1%} | {alarms[1]:.1%} |", flush=True)


def smoothed_accuracy(table):
    """Accuracy, each level the mean of five."""
    return uniform_filter1d(table.correct.mean(axis=0), 5, mode="nearest")


def try_intervals(table, protocol, options):
    """Half-widths of intervals of the area by accuracy, by kind of interval, and the area itself."""
    curve = tl.soundness_from_probes(table, protocol=protocol)
    area, areas = curve.area(), tl.bootstrap(curve, resamples=options.resamples).areas
    smooth = tl.soundness_from_probes(table, protocol=protocol, performance=smoothed_accuracy)
    smooth_areas = tl.bootstrap(smooth, resamples=options.resamples).areas
    quarter = np.random.default_rng(0).multinomial(len(table) // 4, np.full(len(table), 1 / len(table)), size=100)
    fewer = curve.areas(*curve.replicate(quarter.astype(float)))
    spread = 1.96 * areas.std()
    low, high = np.quantile(areas, [0.025, 0.975])
    return area, {
        "percentiles": (low - area, high - area),
        "symmetric": (-np.quantile(np.abs(areas - area), 0.95), np.quantile(np.abs(areas - area), 0.95)),
        "symmetric, smoothed": tuple(np.array([-1, 1]) * np.quantile(np.abs(smooth_areas - area), 0.95)),
        "spread + 2 × bias": tuple(np.array([-1, 1]) * (spread + 2 * abs(areas.mean() - area))),
        "spread + bias of a quarter": tuple(np.array([-1, 1]) * (spread + abs(fewer.mean() - area))),
    }


def measure_accuracy_mode(options):
    cases = {"sparse linear, flawed": sparse_linear(options.population), "interaction": interaction(options.population)}
    maps = {"sparse linear, flawed": flawed(cases["sparse linear, flawed"], 0)}
    maps["interaction"] = map_grid(cases["interaction"])["introduced 0.5"]
    print("| task, protocol | population → mean estimate | interval: how often it holds (mean width) |\n|---|---|---|")
    for name, task in cases.items():
        population = probe_population(task, maps[name], "", {"sweep": SWEEP})
        for protocol in ("paper", "soco"):
            truth = tl.soundness_from_probes(population["sweep"], protocol=protocol).area()
            rng, areas, found = np.random.default_rng(1), [], []
            for _ in range(options.sets):
                members = rng.integers(options.population, size=options.samples)
                area, reaches = try_intervals(draw(population, members)["sweep"], protocol, options)
                areas.append(area)
                found.append([(area + low <= truth <= area + high, high - low) for low, high in reaches.values()])
            shares = np.mean(found, axis=0)
            tried = ", ".join(
                f"{way} {holds:.0%} ({width:.2f})" for way, (holds, width) in zip(reaches, shares, strict=True)
            )
            print(f"| {name}, {protocol} | {truth:.3f} → {np.mean(areas):.3f} | {tried} |", flush=True)


def measure_pairs(options):
    """On which side of zero do paired intervals of the accuracy mode put differences of methods, and of equal ones?"""
    print("| task | pairs | right | open | wrong | equal methods: decided |\n|---|---|---|---|---|---|")
    tasks = {"sparse linear": sparse_linear(options.population), "interaction": interaction(options.population)}
    for name, task in tasks.items():
        maps = {"flawed": flawed(task, 0), "flawed again": flawed(task, 1), **map_grid(task)}
        tables = {key: probe_population(task, each, "", {"sweep": SWEEP})["sweep"] for key, each in maps.items()}
        truth = {key: area_of(table)[0] for key, table in tables.items()}
        known = [key for key in maps if np.isfinite(truth[key])]
        rng, sides, equal = np.random.default_rng(1), [], []
        for _ in range(options.sets):
            index = rng.integers(options.population, size=options.samples)
            found = {key: area_of(draw({"sweep": tables[key]}, index)["sweep"], options) for key in known}
            for one, other in combinations(known, 2):
                sides.append(side(found[one], found[other], options) * np.sign(truth[one] - truth[other]))
            # Two methods of equal quality: the two maps of a sample are assigned to their names at random.
            one, other = (tables[key] for key in known[:2])
            both, swapped = tl.ProbeTable.concatenate([one, renamed(other)]), rng.random(options.samples) < 0.5
            pair = [draw({"sweep": both}, index + options.population * (swapped == s))["sweep"] for s in (True, False)]
            equal.append(side(*(area_of(table, options) for table in pair), options) != 0)
        right, wrong = np.mean(np.array(sides) > 0), np.mean(np.array(sides) < 0)
        shares = f"{right:.1%} | {1 - right - wrong:.1%} | {wrong:.1%} | {np.mean(equal):.1%}"
        print(f"| {name} | {len(sides)} | {shares} |", flush=True)


def renamed(table):
    return dataclasses.replace(table, ids=tuple(f"again {name}" for name in table.ids))


def area_of(table, options=None, high=0.9):
    """The area up to a predictive level, with its replicates if options request them."""
    curve = tl.soundness_from_probes(table)
    return tl.bootstrap(curve, resamples=options.resamples if options else 2).areas_up_to(high)


def side(one, other, options):
    """1 if the paired interval of a difference lies above zero, -1 if below, 0 otherwise."""
    value, replicates = one[0] - other[0], one[1] - other[1]
    difference = Estimate.of(value, replicates, samples=options.samples)
    return int(np.sign(value)) if difference.decided else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--resamples", type=int, default=300)
    parser.add_argument("--population", type=int, default=10_000)
    parser.add_argument("--metrics", nargs="*", choices=METRICS, help="all by default")
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--runs", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    modes = {"pairs": measure_pairs, "accuracy": measure_accuracy_mode, "runs": measure_runs}
    chosen = next((measure for name, measure in modes.items() if getattr(options, name)), measure_metrics)
    chosen(options)
    print(f"{options}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
