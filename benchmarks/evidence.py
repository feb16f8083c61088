"""Which metric can be believed on real data? Mixed maps, a random map, other seeds and exchanged maps.

The maps of good methods are mixed with maps of other inputs step by step, so their true order is known. A random map
must come last, another seed must not change the answer, and a method must do better than its own maps exchanged between
the samples, while a random map must not.

    python benchmarks/evidence.py --model mnist-cnn --data mnist --limit 300 --out runs/evidence-digits
    python benchmarks/evidence.py --model FILE.py:FUNCTION --weights FILE --data FILE.npz --limit 500 --out DIR
    python benchmarks/evidence.py --model efficientnet-lite0 --data FILE.csv --limit 100 --coarse --out DIR

Prints a Markdown table. An interrupted run resumes.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import twinlens as tl
from twinlens.data.samples import subset
from twinlens.laboratory.mixing import SHARES, mix_maps

GOOD = {
    "integrated_gradients": {"method": "integrated_gradients", "steps": 16},
    "gradcam": "gradcam",
}


def metrics_of(coarse):
    """Every metric and estimator; the paper's soundness in steps of 1%, or at the levels of the two-sided one."""
    two_sided = tl.Soundness(estimator="rank")
    levels = two_sided.sweeps(10_000)[0].schedule.levels if coarse else None
    return {
        "soundness, two-sided": two_sided,
        "soundness, two-sided, without extrapolation": tl.Soundness(estimator="rank", extrapolate=False),
        "soundness, paper": tl.Soundness(levels=levels),
        "soundness, paper, by probability": tl.Soundness(levels=levels, performance="probability"),
        "completeness": "completeness",
        "completeness, by probability": tl.Completeness(performance="probability"),
        "ROAD, most relevant first": "road_morf",
        "ROAD, least relevant first": "road_lerf",
        "deletion": "deletion",
        "insertion": "insertion",
    }


def stored(evaluation, method, folder, labels):
    """Write the maps of a method, and their mixtures with exchanged maps, as files; returns the files by share."""
    folder.mkdir(parents=True, exist_ok=True)
    maps, files = evaluation.maps(method), {}
    others = tl.probing.exchange_maps(maps, labels, ids=evaluation.ids())
    for share in SHARES:
        files[share] = str(folder / f"{method}-{share:g}.npy")
        np.save(files[share], mix_maps(maps, others, share).numpy())
    return files


def recovered(results, area, metric, method):
    """Spearman's correlation of a metric with the share of a method's maps that is left."""
    sign = 1 if results.about(metric).higher_is_better else -1
    areas = [area(metric, method, share) for share in SHARES]
    if None in areas or np.ptp(areas) == 0:
        return None
    return float(spearmanr(sign * np.array(areas), [-share for share in SHARES])[0])


def skill(results, metric, method):
    estimate = results.skill(method, metric)
    return "–" if estimate is None else str(estimate)


def place(results, metric):
    """The rank of the random map among the good methods."""
    areas, sign = results.areas(metric), 1 if results.about(metric).higher_is_better else -1
    if "random" not in areas:
        return "not reached"
    better = sum(sign * areas[name] > sign * areas["random"] for name in GOOD if name in areas)
    return f"{better + 1} of {len(GOOD) + 1}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights", default="default")
    parser.add_argument("--data", required=True)
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--coarse", action="store_true", help="the paper's soundness at the two-sided one's levels")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    model = tl.load_model(given.model, weights=given.weights)
    samples = subset(tl.open_data(given.data), given.limit, seed=0)
    how = {"metrics": metrics_of(given.coarse), "compile": given.compile, "threads": given.threads, "progress": True}
    how |= {"batch_size": 16, "memory_format": "channels_last"}

    own = tl.evaluate(
        model, samples, {**GOOD, "random": "random"}, control="all", control_share=1.0, out=given.out / "own", **how
    )
    how |= {"control": "none"}
    files = {method: stored(own, method, given.out / "maps", samples.labels) for method in GOOD}
    worse = {
        method: tl.evaluate(
            model, samples, {}, maps={f"{share:g}": path for share, path in of.items() if share},
            out=given.out / f"mixed-{method}", **how,
        )
        for method, of in files.items()
    }  # fmt: skip
    whole = {method: of[0.0] for method, of in files.items()}
    again = [
        tl.evaluate(model, samples, {}, maps=whole, seed=seed, out=given.out / f"seed-{seed}", **how)
        for seed in range(1, given.seeds)
    ]

    def area(metric, method, share):
        return worse[method].results.area(f"{share:g}", metric) if share else own.results.area(method, metric)

    names = ", ".join(GOOD)
    print(f"{own.title}; Spearman and skill: {names}\n")
    print("| metric | Spearman | random comes | spread over seeds | skill | skill of random |")
    print("|---|---|---|---|---|---|")
    for metric in how["metrics"]:
        values = [recovered(own.results, area, metric, method) for method in GOOD]
        ranks = ", ".join("–" if value is None else f"{value:z.2f}" for value in values)
        areas = [[run.results.area(method, metric) for run in (own, *again)] for method in GOOD]
        spread = max((np.std(each, ddof=1) for each in areas if None not in each), default=np.nan)
        skills = ", ".join(skill(own.results, metric, method) for method in GOOD)
        print(
            f"| {metric} | {ranks} | {place(own.results, metric)} | {spread:.4f} | {skills} | "
            f"{skill(own.results, metric, 'random')} |"
        )


if __name__ == "__main__":
    main()
