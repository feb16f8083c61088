"""Do 95% intervals hold the truth in 95% of cases, and does the paired test raise false alarms in 5%?

A population of samples is probed once; its values are the truth. Data sets are drawn from it, and each interval is
asked whether it holds that truth. For the paired test two methods of equal quality are made by swapping two maps at
random, sample by sample.

    python benchmarks/interval_coverage.py                      # 500 data sets of 200 samples, about ten minutes
    python benchmarks/interval_coverage.py --samples 1000 --sets 200
"""

import argparse
import dataclasses
import time

import numpy as np

import twinlens as tl
from twinlens.laboratory.tasks import sparse_linear
from twinlens.metrics.removal import SHARES, THRESHOLDS

SWEEP = tl.Schedule(by="area", order="lerf", levels=tl.PROTOCOLS["paper"].levels)
SCHEDULES = {
    "sweep": SWEEP,
    "opposite": tl.opposite_schedule(SWEEP, 200),
    "value": tl.Schedule(by="value", order="morf", levels=(1.0, *THRESHOLDS)),
    "area": tl.Schedule(by="area", order="morf", levels=(0.0, *SHARES)),
}
METRICS = {
    "completeness": lambda t: tl.completeness_from_probes(t["value"]),
    "ROAD": lambda t: tl.removal_from_probes(t["area"]),
    "soundness, two-sided": lambda t: tl.soundness_from_probes(
        t["sweep"], estimator="two_sided", opposite=t["opposite"]
    ),
    "soundness, score": lambda t: tl.soundness_from_probes(t["sweep"], performance="probability"),
    "soundness, accuracy": lambda t: tl.soundness_from_probes(t["sweep"]),
    "soundness, accuracy, soco": lambda t: tl.soundness_from_probes(t["sweep"], protocol="soco"),
}


def flawed(task, seed):
    """A map with some of its attribution gone and some on features that are not predictive."""
    rng, truth = np.random.default_rng(seed), task.information
    kept = truth * (rng.random(truth.shape) > 0.3)
    false = 0.4 * truth.max(axis=1, keepdims=True) * rng.random(truth.shape) * ~task.predictive
    return kept + false * (rng.random(truth.shape) > 0.5)


def probe_population(task, seed, prefix):
    maps, ids = flawed(task, seed), [f"{prefix}{k}" for k in range(len(task.labels))]
    return {
        name: tl.probe(task.model, task.inputs, task.labels, maps, schedule=schedule, imputer=task.imputer, ids=ids)
        for name, schedule in SCHEDULES.items()
    }


def draw(population, index):
    """A data set of these members; its ids are new, because a member may be drawn twice."""
    names = tuple(str(k) for k in range(len(index)))
    return {name: dataclasses.replace(table.take(index), ids=names) for name, table in population.items()}


def coverage(metric, population, options):
    size = len(population["sweep"])
    truth = metric(population)
    rng, rows = np.random.default_rng(1), []
    for _ in range(options.sets):
        found = tl.bootstrap(
            metric(draw(population, rng.integers(size, size=options.samples))), resamples=options.resamples
        )
        area = found.area_interval()
        low, high = found.interval()
        below, above = found.interval(simultaneous=True)
        point = ((low <= truth.values) & (truth.values <= high)).mean()
        band = ((below <= truth.values) & (truth.values <= above)).all()
        rows.append((area.value, area.low, area.high, point, band))
    value, low, high, point, band = np.array(rows, dtype=float).T
    holds = [np.mean((low <= target) & (target <= high)) for target in (truth.area(), value.mean())]
    return holds, point.mean(), band.mean(), truth.area(), value.mean(), (high - low).mean()


def false_alarms(metric, both, options):
    size, rng, p_values = len(both["sweep"]) // 2, np.random.default_rng(2), []
    for _ in range(options.sets):
        index, swapped = rng.integers(size, size=options.samples), rng.random(options.samples) < 0.5
        curves = {
            name: metric(draw(both, index + size * (swapped == side)))
            for name, side in (("one", True), ("other", False))
        }
        p_values.append(tl.compare(curves, resamples=options.resamples).pairs[0].p_value)
    return np.mean(np.array(p_values) < 0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--population", type=int, default=10_000)
    options = parser.parse_args()
    start = time.perf_counter()
    task = sparse_linear(options.population)
    one, other = probe_population(task, 0, "a"), probe_population(task, 1, "b")
    both = {name: tl.ProbeTable.concatenate([one[name], other[name]]) for name in one}
    print(f"population probed in {time.perf_counter() - start:.0f} s; {options}")
    print("| metric | area covered | its expectation covered | levels | whole curve | truth | mean | width | alarms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, metric in METRICS.items():
        (holds, expected), point, band, truth, mean, width = coverage(metric, one, options)
        alarms = false_alarms(metric, both, options)
        print(
            f"| {name} | {holds:.1%} | {expected:.1%} | {point:.1%} | {band:.1%} | {truth:.3f} | {mean:.3f} | "
            f"{width:.3f} | {alarms:.1%} |",
            flush=True,
        )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
