"""`compare`: methods by their curves, or whole runs, which may have different models or data."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import cast, overload

from twinlens.metrics.curves import Curve
from twinlens.run.pairing import Shared, shared_samples, unlike_runs, unlike_settings
from twinlens.run.stored_run import StoredRun, run_labels
from twinlens.run.wording import performance_of
from twinlens.statistics.bootstrap import bootstrap
from twinlens.statistics.comparison import Curves, compare_curves
from twinlens.statistics.contrasts import Quantity, RunComparison, RunValues, compare_runs
from twinlens.statistics.skill import skill
from twinlens.statistics.verdicts import Comparison
from twinlens.support.arguments import checked
from twinlens.support.estimate import Estimate
from twinlens.support.randomness import stream
from twinlens.support.resampling import FEWEST, check_confidence

AnyRun = StoredRun | str | os.PathLike[str]
Runs = Sequence[AnyRun] | Mapping[str, AnyRun]
Limits = float | Mapping[str, float] | None


@overload
def compare(
    compared: Curves,
    *,
    confidence: float = ...,
    resamples: int = ...,
    seed: int = ...,
    high: Limits = ...,
    baselines: Collection[str] = ...,
) -> Comparison: ...
@overload
def compare(
    compared: Runs, *, confidence: float = ..., resamples: int = ..., seed: int = ..., high: Limits = ...
) -> RunComparison: ...
@checked
def compare(
    compared: Mapping[str, Curve | Mapping[str, Curve] | AnyRun] | Sequence[AnyRun],
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    high: float | Mapping[str, float] | None = None,
    baselines: Collection[str] = (),
) -> Comparison | RunComparison:
    """Compare methods by the areas of their curves on the same samples, or each method between several runs.

    Runs may have different models or data. Runs that share samples (by id, label and content) are paired on these;
    others are compared as independent samples. Metrics with different settings are not compared; the notes list them.

    Args:
        compared: for methods, a mapping from names to curves, or to curves by metric, of the same samples in any
            order. For runs, evaluations or run directories, or a mapping from your own names to either.
        confidence: confidence of intervals and verdicts.
        resamples: number of resamples.
        seed: seed of the resampling.
        high: for soundness, the predictive level up to which areas are taken, for all metrics or by metric. By default
            each curve's own area; between runs, for the paper's estimator, up to the lower limit of both. A method that
            does not reach it has no area.
        baselines: names of methods that are compared, but never the best; only for curves.

    Returns:
        For methods, differences with intervals and p-values, win rates, ranks with their uncertainty, the Pareto front,
        and a sentence for each pair. For runs, each method's differences between each pair of runs, in area and in
        skill, with intervals, p-values, sentences and notes.

    Raises:
        ValueError: if nothing can be compared.

    Example:
        >>> import torch, twinlens as tl
        >>> def model(x):  # reads the first feature and no other
        ...     return torch.stack([x[:, 0], 0.1 + 0 * x[:, 0]], dim=1)
        >>> x = torch.rand(60, 2, generator=torch.manual_seed(0))
        >>> def completeness(maps):
        ...     return tl.completeness(model, x, [0] * 60, maps, imputer=tl.ConstantImputer(0.0))
        >>> both = {"right": completeness(torch.tensor([1.0, 0.05]).expand(60, 2)),
        ...         "wrong": completeness(torch.tensor([0.05, 1.0]).expand(60, 2))}
        >>> print(compare(both).verdicts[0])
        right is better in completeness than wrong by 0.917 [0.824, 0.985].
    """
    items = list(compared.values()) if isinstance(compared, Mapping) else list(compared)
    curves = [isinstance(item, (Curve, Mapping)) for item in items]
    if any(curves) and not all(curves):
        raise ValueError("`compared` must hold curves of methods or runs; got both.")
    if len(items) < 2:
        raise ValueError(f"`compared` must hold at least two methods or runs to compare; got {len(items)}.")
    if all(curves):
        return compare_curves(
            cast("Curves", compared),
            confidence=confidence,
            resamples=resamples,
            seed=seed,
            high=high,
            baselines=baselines,
        )
    if baselines:
        raise ValueError("`baselines` can only be set for curves of methods; runs store their own. Leave it out.")
    runs = [item if isinstance(item, StoredRun) else StoredRun.open(item) for item in cast("list[AnyRun]", items)]
    names = list(compared) if isinstance(compared, Mapping) else run_labels(runs)
    named = dict(zip(names, runs, strict=True))
    comparison = compare_evaluations(named, confidence=confidence, resamples=resamples, seed=seed, high=high)
    if not comparison.pairs:
        reasons = " ".join(comparison.notes) or "They have no method and metric in common."
        raise ValueError(f"`compared` must hold runs that can be compared. {reasons}")
    return comparison


def compare_evaluations(
    runs: Mapping[str, StoredRun],
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    high: Limits = None,
) -> RunComparison:
    """Compare runs as `compare` does; if nothing can be compared there are no pairs, and the notes tell why."""
    check_confidence(confidence)
    notes, numbers = list[str](), list[RunValues]()
    resampling = _Resampling(runs, resamples, seed)
    for first, second in combinations(runs, 2):
        names, both = (first, second), (runs[first], runs[second])
        shared = resampling.shared(names)
        notes += [*([shared.note] if shared.note else []), *unlike_runs(names, both)]
        limits = dict[str, float | None]()
        for metric in [name for name in both[0].metrics if name in both[1].metrics]:
            if reason := _refusal(names, both, metric):
                notes.append(reason)
            else:
                limits[metric], note = _limit(names, both, metric, high)
                notes += note
        for method in [name for name in both[0].methods if name in both[1].methods]:
            numbers += resampling.numbers(names, method, limits)
            for run in both:
                run.reader.forget()
    # A run with `until` has looked at its results several times.
    looks = max((run.run.manifest.looks for run in runs.values()), key=lambda each: len(each.sizes))
    return RunComparison(
        confidence=confidence,
        runs=tuple(runs),
        pairs=compare_runs(numbers, confidence=confidence, looks=looks),
        notes=tuple(dict.fromkeys(notes)),
    )


def _refusal(names: tuple[str, str], runs: tuple[StoredRun, StoredRun], metric: str) -> str | None:
    """Return why a metric is not compared; None where it is."""
    between = f"{metric} is not compared between {names[0]} and {names[1]}"
    if unlike := unlike_settings(names, runs, metric):
        return (
            f"{between}: {'; '.join(unlike)}. Ask both with the same settings: evaluation.ask(…), or twinlens ask "
            "--name NAME and twinlens compare --results NAME."
        )
    for name, run in zip(names, runs, strict=True):
        if metric not in run.metric_values:
            return f"{between}: {name} measured it with a custom function. Pass it again: evaluation.ask(…)."
    return None


def _limit(
    names: tuple[str, str], runs: tuple[StoredRun, StoredRun], metric: str, high: Limits
) -> tuple[float | None, list[str]]:
    """Return the predictive level up to which areas are taken in both runs, and notes about it."""
    named = high.get(metric) if isinstance(high, Mapping) else high
    own = [run.results.soundness_up_to.get(metric) for run in runs]
    limits = [limit for limit in own if limit is not None]
    if named is not None or not limits:
        return named, []
    if len(set(own)) == 1:
        return own[0], []
    each = " and ".join(f"{limit:.3f} in {name}" for name, limit in zip(names, own, strict=True) if limit is not None)
    measure = performance_of(runs[0].results, metric)
    return min(limits), [
        f"Areas of {metric} are taken up to {measure} {min(limits):.3f} in both; separately, the limit is {each}."
    ]


_Draw = tuple[frozenset[str], int]
"""The samples of a run and the seed by which they are resampled."""


class _Resampling:
    """Resamples the curves of several runs: runs of the same samples alike, others independently."""

    def __init__(self, runs: Mapping[str, StoredRun], resamples: int, seed: int) -> None:
        self.runs, self.resamples, self.seed = runs, resamples, seed
        self.shared = cache(self._shared)
        self.draw = cache(self._draw)
        self.estimate = cache(self._estimate)

    def numbers(self, names: tuple[str, str], method: str, limits: Mapping[str, float | None]) -> list[RunValues]:
        """Return a method's numbers in two runs by these metrics: its area, and its skill where both runs have it."""
        numbers = []
        for metric, high in limits.items():
            curves = [self.runs[name].results.methods[method].metrics.get(metric) for name in names]
            better = self.runs[names[0]].results.about(metric).higher_is_better
            quantities: list[Quantity] = ["area"] if all(curves) else []
            if all(curve and curve.skill for curve in curves):
                quantities.append("skill")
            for quantity in quantities:
                paired, draws = self.draw(names, quantity)
                one, other = (
                    self.estimate(
                        name, quantity, method, metric, high, *draw, quantity == "skill" and self.grouped(names, paired)
                    )
                    for name, draw in zip(names, draws, strict=True)
                )
                numbers.append(
                    RunValues(
                        metric=metric,
                        method=method,
                        quantity=quantity,
                        runs=names,
                        values=(one, other),
                        paired=paired,
                        higher_is_better=quantity == "skill" or better,
                    )
                )
        return numbers

    def grouped(self, names: tuple[str, str], paired: bool) -> bool:
        """Return whether samples that exchanged their maps are drawn together: runs that are paired must agree."""
        one, other = (self.runs[name].reader for name in names)
        return not paired or one.exchange_groups == other.exchange_groups

    def _shared(self, names: tuple[str, str]) -> Shared:
        return shared_samples(names, (self.runs[names[0]], self.runs[names[1]]))

    def _draw(self, names: tuple[str, str], quantity: Quantity) -> tuple[bool, tuple[_Draw, _Draw]]:
        """Pair two runs on the samples for which both have the quantity, or draw samples independently."""
        shared, (first, second) = self.shared(names), (self._samples(name, quantity) for name in names)
        seed, other_seed = (self._seed_of(name) for name in names)
        common = frozenset() if shared.ids is None else shared.ids & first & second
        if len(common) >= min(FEWEST, len(first), len(second)):
            return True, ((common, seed), (common, seed))
        if seed == other_seed:  # the same samples, but exchanged controls with hardly any of them in common
            other_seed = stream(self.seed, "samples of run", names[1])
        return False, ((first, seed), (second, other_seed))

    def _samples(self, run: str, quantity: Quantity) -> frozenset[str]:
        """Return the samples of a run that have the quantity."""
        evaluation = self.runs[run]
        if quantity == "area":
            return frozenset(evaluation.reader.original.ids)
        return frozenset(evaluation.reader.controlled_ids(evaluation.results.settings.control_share))

    def _seed_of(self, run: str) -> int:
        """Return the seed of a run's draws, shared by runs with the same samples."""
        first = next(name for name in self.runs if name == run or self.shared((name, run)).whole)
        return self.seed if first == next(iter(self.runs)) else stream(self.seed, "samples of run", first)

    def _estimate(
        self,
        run: str,
        quantity: Quantity,
        method: str,
        metric: str,
        high: float | None,
        ids: frozenset[str],
        seed: int,
        grouped: bool,
    ) -> Estimate:
        evaluation = self.runs[run]
        reader, value = evaluation.reader, evaluation.metric_values[metric]
        own = reader.curve(method, value, ids=ids)
        if quantity == "area":
            return bootstrap(own, resamples=self.resamples, seed=seed).area(high=high)
        sweeps = evaluation.results.settings.exchanged(value, reader.features)
        exchanged = reader.curve(method, value, sweeps, ids=ids)
        groups = reader.exchange_groups if grouped else None
        return skill(own, exchanged, high=high, resamples=self.resamples, seed=seed, groups=groups)
