"""What do intervals and p-values hold with few samples?

    python benchmarks/few_samples.py                    # 22 minutes on one core; writes the tables
    python benchmarks/few_samples.py --draws 100 --digits 200 --maps 20 --print

The demo's network reads handwritten digits.

Coverage: 1,000 digits are a population, in which every metric has a true value for three methods. Data sets of N digits
are drawn from it, and their intervals are compared with that value. False alarms: random maps do not depend on the
input, and none is better than another. Every map is probed on every digit, data sets are drawn from both, and p-values
below 5% are counted.

The area of every metric is a mean over samples: each sample is probed once, and data sets need no further call of the
model. The tables are in docs/concepts/statistics.md. tests/statistics/test_few_samples.py runs a short part of this.
"""

import argparse
import re
import time
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

import twinlens as tl
from twinlens.metrics.sweeps import imputer_key
from twinlens.models.mnist_cnn import mnist_digits, trained_cnn
from twinlens.probing.exchange import draw_partners, exchange_groups
from twinlens.statistics.bootstrap import Area
from twinlens.statistics.comparison import compare_areas
from twinlens.statistics.contrasts import RunValues, compare_runs
from twinlens.support.estimate import Estimate

PAGE = Path(__file__).resolve().parents[1] / "docs" / "concepts" / "statistics.md"
START, END = "<!-- few samples -->", "<!-- end of few samples -->"
NAMES = (
    "soundness_rank",
    "completeness_share",
    "calibration",
    "completeness",
    "road_morf",
    "road_lerf",
    "road_gain",
    "deletion",
    "insertion",
)
METHODS = {"integrated_gradients": "IG", "gradcam": "GradCAM", "random": "random"}
SIZES = (6, 10, 20, 50, 100)
SKILL_SIZES = (2, 3, 5, 6, 10, 12, 20, 50)
PAIR_SIZES = (9, 10, 20, 50)
SMOOTH = 3.0  # pixels, the deviation of the filter
REACH = 1.0  # the size that an area can have


def digits(count, seed):
    """Inputs (N, 1, 28, 28) and labels of digits that the network was not trained on."""
    images, labels = mnist_digits(held_out=True)
    chosen = np.random.default_rng(seed).permutation(len(labels))[:count]
    return torch.as_tensor(images[chosen, None] / 255.0, dtype=torch.float32), labels[chosen]


def measure_areas(inputs, labels, maps, names=NAMES):
    """The area (N,) of each sample by each metric; NaN where it has none."""
    model, tables, areas = trained_cnn().eval(), {}, {}
    for name in names:
        read = []
        for sweep in tl.METRICS[name].sweeps(28 * 28):
            key = (sweep.schedule, imputer_key(sweep.imputer))
            if key not in tables:
                how = {"schedule": sweep.schedule, "imputer": sweep.imputer, "batch_size": 250}
                tables[key] = tl.probe(model, inputs, labels, maps, **how)
            read.append(tables[key])
        areas[name] = tl.METRICS[name].read(read).area_per_sample()
    return areas


def make_population(method, count, names=NAMES):
    """The area (N,) of each digit of the population by each metric."""
    inputs, labels = digits(count, seed=0)
    maps = tl.attribute(trained_cnn().eval(), inputs, labels, method)
    return measure_areas(inputs, labels, maps.clamp(min=0), names)


def make_bank(count, maps, names=NAMES, seed=5):
    """The area (D, M) of each pair of a digit and a smooth random map by each metric, and the labels (D,)."""
    inputs, labels = digits(count, seed=seed)
    noise = gaussian_filter(np.random.default_rng(seed).random((maps, 28, 28)), (0, SMOOTH, SMOOTH))
    noise = (noise - noise.min(axis=(1, 2), keepdims=True)).astype(np.float32)
    blocks = []
    for some in np.array_split(np.arange(count), max(1, count * maps // 800)):
        pairs = (
            inputs[some].repeat_interleave(maps, 0),
            np.repeat(labels[some], maps),
            np.tile(noise, (len(some), 1, 1)),
        )
        blocks.append(measure_areas(*pairs, names))
    return {name: np.concatenate([block[name] for block in blocks]).reshape(count, maps) for name in names}, labels


def draw_counts(count, resamples, rng):
    """How often (R, N) each of N is in each resample."""
    return rng.multinomial(count, np.full(count, 1 / count), size=resamples).astype(float)


def mean_of(areas, counts):
    """The mean of areas (N,), and that of each resample (R,); NaN is left out."""
    defined = np.isfinite(areas)
    with np.errstate(invalid="ignore"):
        return np.nanmean(areas), counts @ np.where(defined, areas, 0.0) / (counts @ defined)


def count_covered(population, size, *, draws, resamples, seed=0):
    """Share of data sets whose interval holds the value of the population (N,), and the mean width; NaN without any."""
    rng = np.random.default_rng([1, size, seed])
    truth, counts, found = np.nanmean(population), draw_counts(size, resamples, rng), []
    for _ in range(draws):
        value, replicates = mean_of(population[rng.integers(len(population), size=size)], counts)
        interval = Estimate.of(value, replicates, samples=size, reach=REACH).interval
        if interval is not None:
            found.append((interval[0] - 1e-12 <= truth <= interval[1] + 1e-12, interval[1] - interval[0]))
    return np.mean(found, axis=0) if found else (np.nan, np.nan)


def skill_of(own, exchanged, groups, counts):
    """The skill of one data set as `tl.skill` computes it, from areas (N,) and how often each group is drawn."""
    members = np.unique(list(groups.values()), return_inverse=True)[1]
    drawn = counts[:, members]
    (mine, my_replicates), (theirs, their_replicates) = (mean_of(areas, drawn) for areas in (own, exchanged))
    [skill] = Estimate.of_differences(
        np.array([mine - theirs]),
        (my_replicates - their_replicates)[:, None],
        samples=len(own),
        groups=counts.shape[1],
        reach=REACH,
    )
    return skill


def count_skills(bank, labels, size, *, draws, resamples, seed=0):
    """Share of data sets with a skill of p < 0.05, though random maps have none; NaN where there is no p-value."""
    rng, p_values = np.random.default_rng([2, size, seed]), []
    ids = [str(k) for k in range(size)]
    for k in range(draws):
        chosen, maps = rng.integers(len(labels), size=size), rng.integers(bank.shape[1], size=size)
        partners = draw_partners(ids, labels[chosen], seed=k)
        groups = exchange_groups(ids, labels[chosen], seed=k)
        counts = draw_counts(len(set(groups.values())), resamples, rng)
        skill = skill_of(bank[chosen, maps], bank[chosen, maps[partners]], groups, counts)
        p_values.append(skill.p)
    return share_of_alarms(p_values)


def share_of_alarms(p_values):
    """Share of p-values below 5%; NaN where there are none."""
    known = [p for p in p_values if p is not None]
    if known and len(known) < len(p_values):
        raise ValueError("Some data sets of one size have a p-value, and others do not.")
    return np.mean(np.array(known) < 0.05) if known else np.nan


def random_methods(bank, chosen, many, counts, rng):
    """Estimates of the areas of independent random methods on the chosen digits."""
    maps = rng.integers(bank.shape[1], size=(many, len(chosen)))
    means = [mean_of(bank[chosen, each], counts) for each in maps]
    return [Estimate(value=value, replicates=own, samples=len(chosen), reach=REACH) for value, own in means]


def count_pairs(bank, size, many, *, draws, resamples, seed=0):
    """Share of data sets in which any pair of equal methods is declared different; NaN without p-values."""
    rng, p_values = np.random.default_rng([3, size, many, seed]), []
    counts = draw_counts(size, resamples, rng)
    for _ in range(draws):
        estimates = random_methods(bank, rng.integers(len(bank), size=size), many, counts, rng)
        areas = {
            f"method {k}": Area(
                estimate=each, replicates=each.replicates, per_sample=None, kind="m", higher_is_better=True
            )
            for k, each in enumerate(estimates)
        }
        pairs = compare_areas({"m": areas}).pairs
        known = [pair.difference.p for pair in pairs if pair.difference.p is not None]
        p_values.append(min(known) if known else None)
    return share_of_alarms(p_values)


def count_runs(bank, size, *, paired, draws, resamples, many=3, seed=0):
    """The same for three methods in two runs: on the same samples, or on other ones."""
    rng, p_values = np.random.default_rng([4, size, paired, seed]), []
    one = draw_counts(size, resamples, rng)
    other = one if paired else draw_counts(size, resamples, rng)
    for _ in range(draws):
        chosen = rng.integers(len(bank), size=(2, size))
        runs = [
            random_methods(bank, chosen[0 if paired else k], many, counts, rng) for k, counts in enumerate((one, other))
        ]
        numbers = [
            RunValues(
                metric="m",
                method=f"method {k}",
                quantity="area",
                runs=("one", "other"),
                values=values,
                paired=paired,
                higher_is_better=True,
            )
            for k, values in enumerate(zip(*runs, strict=True))
        ]
        known = [pair.difference.p for pair in compare_runs(numbers) if pair.difference.p is not None]
        p_values.append(min(known) if known else None)
    return share_of_alarms(p_values)


def percent(share):
    return "–" if np.isnan(share) else f"{100 * share:.1f}"


def listed(shares):
    return "–" if np.isnan(shares).all() else " / ".join(map(percent, shares))


def table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def coverage_table(options, how):
    """Coverage in percent by metric and number of samples, for each method."""
    populations = {name: make_population(name, options.population) for name in METHODS}
    rows = []
    for metric in NAMES:
        truths = " / ".join(f"{np.nanmean(own[metric]):.3f}" for own in populations.values())
        shares = [[count_covered(own[metric], size, **how)[0] for own in populations.values()] for size in SIZES]
        rows.append([metric, truths, *map(listed, shares)])
        print(rows[-1], flush=True)
    return table(["metric", f"true value: {' / '.join(METHODS.values())}", *(f"N = {size}" for size in SIZES)], rows)


def alarm_tables(options, how):
    """False alarms in percent by metric, test and number of samples."""
    bank, labels = make_bank(options.digits, options.maps)
    skills, others = [], []
    for metric in NAMES:
        own = bank[metric]
        skills.append([metric, *(percent(count_skills(own, labels, size, **how)) for size in SKILL_SIZES)])
        tests = [
            [count_pairs(own, size, 2, **how) for size in PAIR_SIZES],
            [count_pairs(own, size, 3, **how) for size in PAIR_SIZES],
            [count_pairs(own, size, 8, **how) for size in PAIR_SIZES],
            [count_runs(own, size, paired=True, **how) for size in PAIR_SIZES],
            [count_runs(own, size, paired=False, **how) for size in PAIR_SIZES],
        ]
        others.append([metric, *map(listed, tests)])
        print(skills[-1], others[-1], flush=True)
    heads = ["metric", "two methods", "any of 3 methods", "any of 8", "paired runs", "independent runs"]
    return table(["metric", *(f"N = {size}" for size in SKILL_SIZES)], skills), table(heads, others)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000, help="data sets per cell")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--population", type=int, default=1000, help="digits of the population")
    parser.add_argument("--digits", type=int, default=100, help="digits that meet every random map")
    parser.add_argument("--maps", type=int, default=80, help="random maps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--print", action="store_true", help="print the tables instead of writing them to the page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    how = {"draws": options.draws, "resamples": options.resamples, "seed": options.seed}
    coverage = coverage_table(options, how)
    skills, others = alarm_tables(options, how)
    sizes = " / ".join(map(str, PAIR_SIZES))
    error = 100 * np.sqrt(0.05 * 0.95 / options.draws)
    draws = f"{options.draws:,} data sets in each cell (standard error {error:.1f})"
    text = f"""{START}
Coverage of 95% intervals in percent, {draws}; "–": no interval.

{coverage}

Share of p < 0.05 for the skill of random maps, in percent; "–": no p-value.

{skills}

Share of p < 0.05, adjusted for all pairs, for methods that are equal, with N = {sizes} samples, in percent.

{others}
{END}"""
    print(text)
    if not options.print:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(re.sub(f"{START}.*?{END}", lambda _: text, page, flags=re.DOTALL), encoding="utf-8")
    print(f"{options}: {time.process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    main()
