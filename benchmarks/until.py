"""What does `until` save, and do intervals hold although results are examined several times?

    python benchmarks/until.py --images cifar10_dev.npz --weights resnet20.safetensors      # 1,000 images, 5 methods
    python benchmarks/until.py --images … --weights … --samples 300                         # fewer
    python benchmarks/until.py --simulate                                                   # 500 studies, two minutes

The first evaluates methods until every comparison is decided, and then all images in the same directory: how many
inputs did the model see, and are the verdicts those of all images at once? The second draws studies from a population
that was probed as a whole, and counts how often a stopped study is wrong, with and without correction for its looks.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

import twinlens as tl
from twinlens.laboratory.tasks import sparse_linear
from twinlens.statistics.bootstrap import Area
from twinlens.statistics.comparison import compare_areas
from twinlens.statistics.sequential import ONE_LOOK, Looks, round_sizes
from twinlens.support.estimate import Estimate

sys.path += [str(Path(__file__).parents[1] / "examples"), str(Path(__file__).parent)]

METHODS = {
    "gradcam": "gradcam",
    "integrated_gradients": {"method": "integrated_gradients", "steps": 16},
    "saliency": "saliency",
    "occlusion": {"method": "occlusion", "window": 8},
    "random": "random",
}
METRICS = ("soundness_rank", "completeness_share")
NEVER = 1e-9  # a half-width that no interval reaches


class Task:
    """ResNet-20 on test images of CIFAR-10, which counts the inputs that the network sees."""

    def __init__(self, images, weights, out, samples, metrics=METRICS):
        from resnet20 import build, normalise  # noqa: PLC0415 (an example, not a package)

        self.model, self.seen, self.out, self.metrics = build().eval(), 0, out, list(metrics)
        self.model.load_state_dict(load_file(weights))
        self.model.register_forward_pre_hook(self.count)
        stored = np.load(images)
        labels = torch.as_tensor(stored["y_test"][:samples].astype(np.int64))
        self.data = normalise(stored["x_test"][:samples]), labels

    def count(self, _, given):
        """Count the inputs of one call."""
        self.seen += len(given[0])

    def evaluate(self, until):
        """Evaluate the methods, or resume an earlier evaluation."""
        fixed = {"batch_size": 64, "threads": 1, "memory_format": "contiguous", "progress": False}
        return tl.evaluate(self.model, self.data, METHODS, metrics=self.metrics, until=until, out=self.out, **fixed)


def measure_savings(images, weights, *, samples=1000, until="decided:0.05", metrics=METRICS, say=print):
    """Evaluate CIFAR-10 images with `until`, then all of them, and return the savings.

    Returns:
        Why the run stopped; the share of its model calls in those of all images; by comparison, the verdict with all
        images at once and the one of the stopped run; and those of them that contradict each other.
    """
    with tempfile.TemporaryDirectory() as folder:
        task = Task(images, weights, Path(folder) / "run", samples, metrics)
        stopped = task.evaluate(until)
        early, seen, stopping = ends_of(stopped), task.seen, stopped.results.stopping
        say(f"{stopping} {seen:,} calls")
        everything = task.evaluate(NEVER)
        late = ends_at_once(everything)
    verdicts = {name: (side(*late[name]), side(*early[name])) for name in late}
    margin = float(until.partition(":")[2] or until)
    wrong = [name for name in late if contradicts(early[name], late[name], margin)]
    return stopping, seen / task.seen, verdicts, wrong


def ends_of(evaluation):
    """Intervals of all comparisons: of each two methods, and of each method with its exchanged maps."""
    results = evaluation.results
    found = {(p.metric, p.first, p.second): p.difference.interval for p in evaluation.comparison().pairs}
    for method in results.methods:
        for metric in evaluation.metrics:
            found[metric, method, "exchanged"] = results.skill(method, metric).interval
    return found


def ends_at_once(evaluation):
    """The same for a run in rounds, without the correction for its looks."""
    reader, question, found = evaluation.reader, evaluation.results.settings, {}
    for name, metric in evaluation.metric_values.items():
        curves = {method: evaluation.curve(method, name) for method in evaluation.methods}
        compared = tl.compare({method: {name: curve} for method, curve in curves.items()})
        found |= {(name, p.first, p.second): p.difference.interval for p in compared.pairs}
        ids = reader.controlled_ids(question.control_share)
        for method in curves:
            own, exchanged = reader.curve(method, metric, ids=ids), question.exchanged(metric, reader.features)
            skill = tl.skill(own, reader.curve(method, metric, exchanged), groups=reader.exchange_groups)
            found[name, method, "exchanged"] = skill.interval
    return found


def side(low, high):
    """1 or -1 if a difference is decided, and 0 if it is open."""
    return int(low > 0) - int(high < 0)


def contradicts(early, late, margin):
    """Whether all images contradict: another side, nothing decided, or a difference beyond the margin."""
    if side(*early):
        return side(*early) != side(*late)
    return side(*late) != 0 and not (-margin <= late[0] and late[1] <= margin)


def areas_of_population(size):
    """Areas (N, M) of each sample by soundness and completeness, of four flawed methods."""
    from interval_coverage import METRICS as WAYS  # noqa: PLC0415 (a script in this folder)
    from interval_coverage import SCHEDULES, USED, flawed, probe_population  # noqa: PLC0415

    task, found = sparse_linear(size), {}
    for name in ("soundness", "completeness"):
        schedules = {table: SCHEDULES[table] for table in USED[name]}
        tables = [probe_population(task, flawed(task, seed), "", schedules) for seed in range(4)]
        areas = np.stack([WAYS[name](each).area_per_sample() for each in tables], axis=1)
        found[name] = areas[np.isfinite(areas).all(axis=1)]
    return found


def areas_of(areas, resamples, rng):
    """Areas of methods, the means of those of the samples (N, M), resampled together."""
    again = areas[rng.integers(len(areas), size=(resamples, len(areas)))].mean(axis=1)
    return {
        f"method {k}": Area(
            estimate=Estimate.of(areas[:, k].mean(), again[:, k], samples=len(areas)),
            replicates=again[:, k],
            per_sample=None,
            kind="completeness",
            higher_is_better=True,
        )
        for k in range(areas.shape[1])
    }


RULES = {
    "intervals within {margin}": lambda reaches, pairs, margin: max(reaches) <= margin,
    "comparisons decided or within {margin}": lambda reaches, pairs, margin: all(
        pair.decided or max(-pair.difference.low, pair.difference.high) <= margin for pair in pairs
    ),
    "as soon as any pair is decided": lambda reaches, pairs, margin: any(pair.decided for pair in pairs),
}


def study(areas, looks, margin, resamples, rng):
    """Look at growing rounds of a study (N, M) until each rule stops it, with and without the correction for the looks.

    Returns:
        By rule and whether looks are corrected for: the samples, whether the first method's interval covers its true
        area, which is 0, and whether any two methods are declared different.
    """
    stopped, wanted = {}, 2 * len(RULES)
    for size in looks.sizes:
        methods = areas_of(areas[:size], resamples, rng)
        for paid, level in ((False, ONE_LOOK), (True, looks)):
            pairs = compare_areas({"completeness": methods}, looks=level).pairs
            confidence = level.confidence(0.95)
            ends = [
                Estimate.of(each.estimate.value, each.replicates, samples=size, confidence=confidence)
                for each in methods.values()
            ]
            reaches = [(end.high - end.low) / 2 for end in ends]
            for rule, enough in RULES.items():
                if (rule, paid) not in stopped and (size == looks.sizes[-1] or enough(reaches, pairs, margin)):
                    holds = ends[0].low <= 0 <= ends[0].high
                    stopped[rule, paid] = size, holds, any(pair.decided for pair in pairs)
        if len(stopped) == wanted:
            break
    return stopped


def simulate(population, *, sets, samples, methods, margin, resamples):
    """Count how often stopped studies are wrong, by rule and whether looks are corrected for.

    All methods are equal by construction: the areas of a sample are assigned to the methods at random.

    Returns:
        The mean number of samples by both, the coverage, and the share of false alarms.
    """
    looks, rng, studies = Looks(round_sizes(samples)), np.random.default_rng(1), []
    centred = population[:, :methods] - population[:, :methods].mean()
    for _ in range(sets):
        areas = rng.permuted(centred[rng.integers(len(centred), size=samples)], axis=1)
        studies.append(study(areas, looks, margin, resamples, rng))
    return {(rule, paid): np.mean([each[rule, paid] for each in studies], axis=0) for rule, paid in sorted(studies[0])}


def print_simulation(options):
    print("| metric | methods | stops | paid for | mean samples | coverage | false alarms |")
    print("|---|---|---|---|---|---|---|")
    for metric, population in areas_of_population(options.population).items():
        for methods in (2, 4):
            found = simulate(
                population,
                sets=options.sets,
                samples=1000,
                methods=methods,
                margin=options.margin,
                resamples=options.resamples,
            )
            for (rule, paid), (size, holds, alarms) in found.items():
                stops = rule.format(margin=f"±{options.margin:g}")
                print(
                    f"| {metric} | {methods} | {stops} | {'yes' if paid else 'no'} | {size:.0f} | {holds:.1%} | "
                    f"{alarms:.1%} |",
                    flush=True,
                )


def print_savings(options):
    stopping, share, verdicts, wrong = measure_savings(
        options.images, options.weights, samples=options.samples, until=options.until, metrics=options.metrics
    )
    same = sum(late == early for late, early in verdicts.values())
    print(
        f"{share:.1%} of the model calls. Of {len(verdicts)} verdicts {same} are the same, {len(wrong)} contradictory."
    )
    for name, (late, early) in verdicts.items():
        if late != early:
            print(
                f"  {', '.join(name)}: {early} after {stopping.samples} samples, {late} with all", "!" * (name in wrong)
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", help="cifar10_dev.npz")
    parser.add_argument("--weights", help="resnet20.safetensors")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--until", default="decided:0.05")
    parser.add_argument("--metrics", nargs="*", default=METRICS)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--population", type=int, default=5000)
    parser.add_argument("--margin", type=float, default=0.02)
    parser.add_argument("--resamples", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    (print_simulation if options.simulate else print_savings)(options)
    print(f"{options}: {time.process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    main()
