"""How much does two-sided soundness depend on the step, and how far is it from the truth? Forms of extrapolation.

python benchmarks/step_size.py                        # error in the laboratory, on new tasks and seeds
python benchmarks/step_size.py --images ../shared     # CIFAR-10, ResNet-20: own and exchanged maps, by step

Every map is probed once; coarser sweeps are read from the same table.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import twinlens as tl
from twinlens.laboratory import map_grid, tasks, true_soundness_curve
from twinlens.metrics.curves import loss_area
from twinlens.metrics.estimators import opposite_schedule, step_effects
from twinlens.probing.probe import Prober
from twinlens.support.arrays import Floats

STEPS = {f"{step}%": tuple(p / 100 for p in range(100 - step, 0, -step)) for step in (2, 3, 4)}
STEPS["default"] = tl.Soundness(estimator="two_sided").sweeps(100)[0].schedule.levels
EVERY = tuple(p / 100 for p in range(98, 0, -1) if p % 2 == 0 or p % 3 == 1)
FORMS = ("plain", "h, 2h", "h, 2h, 4h", "root, one phase", "root, both pairs (default)")


def tables(
    prober: Callable[[tl.probing.Schedule], tl.ProbeTable], features: int
) -> tuple[tl.ProbeTable, tl.ProbeTable]:
    """Probe both sweeps at every level that any of the steps needs."""
    steps = tl.probing.Schedule(by="area", order="lerf", levels=EVERY)
    return prober(steps), prober(opposite_schedule(steps, features))


def thinned(
    both: tuple[tl.ProbeTable, tl.ProbeTable], levels: tuple[float, ...]
) -> tuple[tl.ProbeTable, tl.ProbeTable]:
    """Read a coarser sweep and its opposite from the tables of all levels."""
    table = both[0].join_levels(levels=levels)
    wanted = opposite_schedule(table.settings.schedule, int(np.prod(table.settings.spatial))).levels
    return table, both[1].join_levels(levels=wanted)


def joined(table: tl.ProbeTable, effects: Floats, count: int, *, root: bool) -> Floats:
    """Soundness (N, L) of groups of `count` steps, starting with the first."""
    starts = np.arange(0, effects.shape[1], count)
    sums = np.add.reduceat(effects, starts, axis=1)
    features = int(np.prod(table.settings.spatial))
    sizes = np.add.reduceat(np.diff(features - table.removed[0], prepend=0), starts) / features
    false = np.repeat(sums < 0.01 * (np.sqrt(sizes / 0.02) if root else 1), count, axis=1)[:, : effects.shape[1]]
    with np.errstate(invalid="ignore"):  # a map of zeros has no soundness
        return np.asarray(1 - np.cumsum(table.added_mass * false, axis=1) / table.kept_mass)


def estimate(table: tl.ProbeTable, opposite: tl.ProbeTable, form: str) -> Floats:
    """Soundness of each sample at each level (N, L), by one of the forms."""
    if form in ("plain", FORMS[-1]):
        ask = {"estimator": "two_sided", "opposite": opposite, "extrapolate": form != "plain"}
        return tl.soundness_from_probes(table, **ask).per_sample
    root = form.startswith("root")
    counts = (1, 2, 4) if "4h" in form else (1, 2)
    per_step = max(1.0, (np.prod(table.settings.spatial) - table.removed[0, -1]) / table.removed.shape[1])
    x = (per_step * np.array(counts, dtype=float)) ** (0.5 if root else 1)
    # Weights of the polynomial through all sizes, evaluated at one feature.
    weights = [np.prod([(1 - other) / (each - other) for other in x if other != each]) for each in x]
    effects = step_effects(table, opposite)
    return sum(w * joined(table, effects, count, root=root) for w, count in zip(weights, counts, strict=True))


def laboratory(samples: int, seeds: list[int]) -> pd.DataFrame:
    """Mean absolute error over all levels, of each form and step, for each task."""
    makers = tasks.TASKS | {
        "deep network": lambda n, seed: tasks.network(n, depth=3, seed=seed),
        "products of three": lambda n, seed: tasks.interaction(n, groups=30, partners=3, seed=seed),
    }
    rows = []
    for name, make in makers.items():
        for seed in seeds:
            task = make(samples, seed=seed)
            for maps in map_grid(task, seed=seed).values():
                prober = Prober(task.model, task.inputs, task.labels, seed=seed)
                ranked = prober.rank(maps)
                both = tables(lambda schedule: prober.sweep(ranked, schedule, task.imputer), maps[0].size)  # noqa: B023
                for step, levels in STEPS.items():
                    table, opposite = thinned(both, levels)
                    true = np.nanmean(true_soundness_curve(maps, task.predictive, table), axis=0)
                    for form in FORMS:
                        found = np.clip(np.nanmean(estimate(table, opposite, form), axis=0), 0, 1)
                        rows.append({"task": name, "step": step, "form": form, "error": np.abs(found - true).mean()})
    frame = pd.DataFrame(rows)
    by_task = frame.pivot_table(index=["step", "form"], columns="task", values="error", sort=False)[list(makers)]
    return by_task.assign(all=by_task.mean(axis=1))


def images(shared: Path, first: int, samples: int, methods: list[str]) -> pd.DataFrame:
    """Areas of own and exchanged maps on CIFAR-10 by form and step, and the skill in standard errors."""
    from safetensors.torch import load_file  # noqa: PLC0415

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from examples.resnet20 import ResNet20, normalise  # noqa: PLC0415

    data = np.load(shared / "data/cifar10/cifar10_dev.npz")
    taken = slice(first, first + samples)
    x, labels = normalise(data["x_test"][taken]), torch.from_numpy(data["y_test"][taken].astype(np.int64))
    model = ResNet20().eval()
    model.load_state_dict(load_file(shared / "data/cifar10/resnet20.safetensors"), strict=False)
    later = [[(i + k) % samples for k in range(1, samples)] for i in range(samples)]
    partner = [next(j for j in each if labels[j] != labels[i]) for i, each in enumerate(later)]
    prober, rows = Prober(model, x, labels, seed=0), []
    for method in methods:
        maps = torch.as_tensor(tl.attribute(model, x, labels, method))
        areas = {}
        for kind, each in (("own", maps), ("exchanged", maps[partner])):
            ranked = prober.rank(each)
            both = tables(lambda schedule: prober.sweep(ranked, schedule, tl.LinearImputer()), maps[0].numel())  # noqa: B023
            for step, levels in STEPS.items():
                thin = thinned(both, levels)
                for form in FORMS:
                    areas[form, step, kind] = loss_area(thin[0].levels, estimate(*thin, form))
        for form in FORMS:
            row = {"method": method, "form": form}
            for step in STEPS:
                own, exchanged = areas[form, step, "own"], areas[form, step, "exchanged"]
                skill = own - exchanged
                row[step] = f"{own.mean():.3f} / {exchanged.mean():.3f}"
                row[f"z {step}"] = round(float(skill.mean() / skill.std() * samples**0.5), 1)
            moved = areas[form, "4%", "own"] - areas[form, "2%", "own"]
            row["4% - 2%"] = f"{moved.mean():+.3f} ± {moved.std() / samples**0.5:.3f}"
            rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="folder with data/cifar10; the laboratory otherwise")
    parser.add_argument("--methods", nargs="+", default=["integrated_gradients", "gradcam", "random"])
    parser.add_argument("--first", type=int, default=200, help="first image of the test set")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[12, 13])
    args = parser.parse_args()
    torch.set_num_threads(1)
    with pd.option_context("display.width", 250, "display.max_columns", None, "display.float_format", "{:.3f}".format):
        if args.images:
            print(images(args.images, args.first, args.samples, args.methods).to_string(index=False))
        else:
            print(laboratory(args.samples, args.seeds))


if __name__ == "__main__":
    main()
