"""How often does advice from few samples contradict that from all samples?

    python benchmarks/sentences.py RUN [--draws 200] [--sizes 40 100 400]

RUN is a run of the headline pair with `control_share=1`. Its results on all samples are taken as the truth. Pairs of
samples that exchanged their maps are drawn without replacement, and everything is computed again from the stored probes
of these samples. A draw contradicts the truth where it
- recommends a method alone that is clearly worse than another method with skill, or than a baseline, by all samples,
- recommends no method because of a baseline that its best method clearly beats by more than the margin,
- calls methods apart by less than the margin that are further apart, or says that a method lacks skill although it is
  beyond the margin,
- has a verdict on two methods in the other direction, or says that they differ by less than the margin and they do not.

Two disjoint draws are opposite where one contradicts the other, both read as above.
"""

import argparse
from collections import Counter

import numpy as np

import twinlens as tl
from twinlens.statistics.advice import advise, judge_skill
from twinlens.statistics.bootstrap import bootstrap
from twinlens.statistics.comparison import compare_areas
from twinlens.statistics.margin import MARGIN, within_margin


class Sample:
    """The numbers of some samples of a run by one metric."""

    def __init__(self, curves, exchanged, metric, index, baselines, groups, resamples):
        def read(pair):
            return metric.read([table.take(index) for table in pair])

        own = {name: read(pair) for name, pair in curves.items()}
        other = {name: read(pair) for name, pair in exchanged.items()}
        areas = {
            name: bootstrap(curve, resamples=resamples).compared_area(0.95, high=None) for name, curve in own.items()
        }
        self.skills = {name: tl.skill(own[name], other[name], resamples=resamples, groups=groups) for name in own}
        self.pairs = compare_areas({metric.name: areas}, baselines=baselines).pairs
        self.areas = {name: area.estimate for name, area in areas.items()}
        self.advice = advise(self.areas, self.skills, self.pairs, baselines=baselines)
        self.baselines = baselines

    def beaten(self, name):
        """Whether another method with skill, or a baseline, is clearly better."""
        better = [p.second for p in self.pairs if p.first == name and (p.difference.high or 0) < 0]
        better += [p.first for p in self.pairs if p.second == name and (p.difference.low or 0) > 0]
        return any(other in self.baselines or judge_skill(self.skills[other]) is not False for other in better)

    def apart(self, names):
        """Whether some of these methods are clearly further apart than the margin."""
        return any(beyond(p.difference) for p in self.pairs if {p.first, p.second} <= set(names))

    def ahead(self, name, other):
        """Whether a method is clearly better than another one by more than the margin."""
        signs = {(p.first, p.second): p.difference for p in self.pairs}
        one, turned = signs.get((name, other)), signs.get((other, name))
        return bool((one and one.low is not None and one.low > MARGIN) or (turned and (turned.high or 0) < -MARGIN))


def beyond(difference):
    """Whether a difference is clearly larger than the margin."""
    return difference.interval is not None and (difference.low > MARGIN or difference.high < -MARGIN)


def contradictions(few, whole):
    """What a draw says that all samples, or another draw, contradict."""
    advice, wrong = few.advice, []
    if advice.outcome == "clear" and whole.beaten(advice.methods[0]):
        wrong.append("recommended")
    if advice.outcome == "baseline" and advice.samples is None and whole.ahead(advice.methods[0], advice.against):
        wrong.append("behind a baseline")
    if advice.outcome == "several" and advice.samples is None and whole.apart(advice.methods):
        wrong.append("apart by less than the margin")
    for name, skill in few.skills.items():
        if name not in few.baselines and judge_skill(skill) is False and whole.skills[name].low > MARGIN:
            wrong.append("lacks skill")
    for one, other in zip(few.pairs, whole.pairs, strict=True):
        if one.decided and other.decided and one.difference.value * other.difference.value < 0:
            wrong.append("verdict turned")
        if within_margin(one.difference) and beyond(other.difference):
            wrong.append("verdict apart by less than the margin")
    return wrong


def main():
    """Print a table of how often each sentence is contradicted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=[40, 100, 400])
    parser.add_argument("--resamples", type=int, default=400)
    parser.add_argument("--seed", type=int, default=20261120)
    arguments = parser.parse_args()
    evaluation = tl.open_evaluation(arguments.run)
    results = evaluation.results
    groups = evaluation.reader.exchange_groups
    numbers = np.unique([groups[name] for name in evaluation.ids()], return_inverse=True)[1]
    print("| side | samples | clear | several | undecided | no recommendation | contradicted | opposite halves |")
    print("|---|---|---|---|---|---|---|---|")
    for name in results.sides:
        metric = evaluation.metric_values[name]
        tables = {}
        for exchanged in (False, True):
            features = evaluation.reader.features
            sweeps = results.settings.exchanged(metric, features) if exchanged else metric.sweeps(features)
            curves = {method: evaluation.reader.curve(method, metric, sweeps) for method in evaluation.methods}
            tables[exchanged] = {method: [curve.table, curve.opposite] for method, curve in curves.items()}
        count = results.data.samples
        arguments_of = tables[False], tables[True], metric

        def draw(index, arguments_of=arguments_of):
            return Sample(*arguments_of, index, results.baselines, groups, arguments.resamples)

        whole = draw(np.arange(count))
        print(f"| {name} | all {count} | {whole.advice.outcome}: {', '.join(whole.advice.methods)} | | | | | |")
        for size in arguments.sizes:
            outcomes, wrong, opposite = Counter(), Counter(), 0
            rng = np.random.default_rng((arguments.seed, size))  # the same draws on both sides
            for _ in range(arguments.draws // 2):
                pairs = rng.permutation(numbers.max() + 1)[: size // 2 * 2]
                halves = [draw(np.flatnonzero(np.isin(numbers, half))) for half in np.split(pairs, 2)]
                for few in halves:
                    outcomes[few.advice.outcome] += 1
                    reasons = contradictions(few, whole)
                    wrong["any"] += bool(reasons)
                    wrong.update(reasons)
                opposite += bool(contradictions(*halves) or contradictions(*halves[::-1]))
            share = {key: f"{value / arguments.draws:.1%}" for key, value in outcomes.items()}
            nobody = sum(outcomes[key] for key in ("no skill", "baseline")) / arguments.draws
            reasons = "".join(f", {key} {value}" for key, value in wrong.items() if key != "any" and value)
            print(
                f"| {name} | {size} | {share.get('clear', '0')} | {share.get('several', '0')} | "
                f"{share.get('undecided', '0')} | {nobody:.1%} | {wrong['any'] / arguments.draws:.1%}{reasons} | "
                f"{opposite / (arguments.draws // 2):.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
