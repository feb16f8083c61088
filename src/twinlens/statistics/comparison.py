"""Paired comparison of methods on the same samples: which is better, and how certain is that?

All methods are resampled alike, and variation between samples cancels out of the differences. Intervals and p-values
of all pairs of a metric are adjusted together, by the largest of their studentised differences.

Shapes: N samples, L levels, R resamples, M methods, K pairs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np

from twinlens.metrics.curves import Curve
from twinlens.statistics.bootstrap import Area, bootstrap
from twinlens.statistics.sequential import ONE_LOOK, Looks
from twinlens.statistics.verdicts import Comparison, Pair, Rank
from twinlens.support.arrays import Floats, Integers
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import FEWEST, check_confidence

Curves = Mapping[str, Curve] | Mapping[str, Mapping[str, Curve]]


def compare_curves(
    compared: Curves,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    high: float | Mapping[str, float] | None = None,
    baselines: Collection[str] = (),
) -> Comparison:
    """Compare methods by the areas of their curves, on the same samples; see `twinlens.compare` for the arguments."""
    check_confidence(confidence)
    metrics = _by_metric(compared)
    up_to = high if isinstance(high, Mapping) else dict.fromkeys(metrics, high)
    areas = {
        metric: {
            name: bootstrap(curve, resamples=resamples, seed=seed).compared_area(confidence, high=up_to.get(metric))
            for name, curve in methods.items()
        }
        for metric, methods in metrics.items()
    }
    return compare_areas(areas, confidence=confidence, baselines=baselines)


def compare_areas(
    areas: Mapping[str, Mapping[str, Area]],
    *,
    confidence: float = 0.95,
    baselines: Collection[str] = (),
    looks: Looks = ONE_LOOK,
) -> Comparison:
    """Compare methods by their areas, for each metric and method, on the same samples resampled with the same seed.

    The confidence is that of the differences; areas have their own intervals.
    """
    ranking: list[Rank] = []
    pairs: list[Pair] = []
    for metric, methods in areas.items():
        own_pairs = _pairs(metric, methods, confidence, looks)
        ranking += _ranking(metric, methods, own_pairs)
        pairs += own_pairs
    return Comparison(
        confidence=confidence,
        ranking=tuple(ranking),
        pairs=tuple(pairs),
        pareto=_pareto(areas, baselines),
        baselines=tuple(baselines),
    )


def decide_differences(
    values: Floats,
    replicates: Floats,
    *,
    samples: int | Integers,
    groups: Integers | None = None,
    reach: Floats,
    confidence: float,
    looks: Looks,
) -> list[tuple[Estimate, float | None]]:
    """Test differences (K,) with replicates (R, K) together, and return each with its p-value without adjustment.

    Samples, groups and reach are those of `Estimate.of_differences`.
    """
    many = len(values)
    level = looks.confidence(confidence, at_once=many)
    together, alone = (
        Estimate.of_differences(
            values, replicates, samples=samples, groups=groups, reach=reach, together=at_once, confidence=level
        )
        for at_once in (True, False)
    )
    return [
        (
            dataclasses.replace(one, p=None if one.p is None else looks.p_value(one.p, at_once=many)),
            None if other.p is None else looks.p_value(other.p),
        )
        for one, other in zip(together, alone, strict=True)
    ]


def _by_metric(compared: Curves) -> dict[str, dict[str, Curve]]:
    """Group curves by metric, then by method; refuse those that cannot be compared."""
    if len(compared) < 2:
        raise ValueError(f"`compared` must hold at least two methods to compare; got {len(compared)}.")
    metrics: dict[str, dict[str, Curve]] = {}
    for method, curves in compared.items():
        for metric, curve in (curves if isinstance(curves, Mapping) else {curves.kind: curves}).items():
            metrics.setdefault(metric, {})[method] = curve
    first = next(iter(compared))
    for metric, methods in metrics.items():
        for method in compared:
            if method not in methods:
                raise ValueError(f"`compared` must hold every metric of every method; {method!r} has no {metric}.")
            one, other = (methods[name].conditions for name in (first, method))
            if one != other:
                raise ValueError(
                    f"`compared` must be made alike; {metric} of {method!r} was measured as {other}, that of "
                    f"{first!r} as {one}."
                )
            ids, own = next(iter(metrics.values()))[first].table.ids, methods[method].table.ids
            if differ := sorted(set(own) ^ set(ids)):
                raise ValueError(
                    f"`compared` must be measured on the same samples; {metric} of {method!r} has {len(own)}, "
                    f"the first curve {len(ids)}, and {len(differ)} ids are in one only, such as {differ[0]!r}. "
                    "Give the same `ids` to both, or take the common samples with ProbeTable.take."
                )
    return metrics


def _ranking(metric: str, methods: Mapping[str, Area], pairs: Sequence[Pair]) -> list[Rank]:
    """Rank the methods by their areas, best first; those without an area come last."""
    sign = _sign(methods)
    areas = {name: -math.inf if (v := area.estimate.value) is None else sign * v for name, area in methods.items()}
    ranks = {name: 1 + sum(other > own for other in areas.values()) for name, own in areas.items()}
    against: dict[str, list[str]] = {name: [] for name in methods}
    for pair in pairs:
        if pair.decided:
            against[pair.first].append(pair.second)
            against[pair.second].append(pair.first)
    rows = []
    for name, area in methods.items():
        better = sum(ranks[other] < ranks[name] for other in against[name])
        best, worst = 1 + better, len(methods) - len(against[name]) + better
        rows.append(
            Rank(metric=metric, method=name, area=area.estimate, rank=ranks[name], best_rank=best, worst_rank=worst)
        )
    return sorted(rows, key=lambda row: row.rank)


def _sign(methods: Mapping[str, Area]) -> float:
    return 1.0 if next(iter(methods.values())).higher_is_better else -1.0


def _value(area: Area) -> float:
    return math.nan if area.estimate.value is None else area.estimate.value


def _pairs(metric: str, methods: Mapping[str, Area], confidence: float, looks: Looks) -> list[Pair]:
    """Test all pairs of methods, by their areas as measured and in each resample."""
    sign, names, areas = _sign(methods), list(methods), list(methods.values())
    chosen = list(combinations(range(len(names)), 2))
    first, second = np.array(chosen).T
    measured = np.array([_value(area) for area in areas])
    trusted = np.stack([np.asarray(area.estimate.replicates) for area in areas], axis=1)
    replicates = np.stack([area.replicates for area in areas], axis=1)
    reach = np.array([area.estimate.reach or 0.0 for area in areas])
    few = areas[0].estimate.samples < FEWEST
    tested = decide_differences(
        measured[first] - measured[second],
        trusted[:, first] - trusted[:, second],
        samples=areas[0].estimate.samples,
        reach=np.maximum(reach[first], reach[second]),
        confidence=confidence,
        looks=looks,
    )
    return [
        Pair(
            metric=metric,
            first=names[i],
            second=names[j],
            difference=difference,
            p_alone=p_alone,
            wins=None if few else _wins(replicates[:, i], replicates[:, j], sign),
            sample_wins=_wins(areas[i].per_sample, areas[j].per_sample, sign),
        )
        for (i, j), (difference, p_alone) in zip(chosen, tested, strict=True)
    ]


def _wins(one: Floats | None, other: Floats | None, sign: float) -> float | None:
    """Return how often the first is better; ties count half."""
    if one is None or other is None:
        return None
    differences = sign * (one - other)
    defined = differences[np.isfinite(differences)]
    return float(np.mean((defined > 0) + 0.5 * (defined == 0))) if len(defined) else None


def _pareto(areas: Mapping[str, Mapping[str, Area]], baselines: Collection[str] = ()) -> dict[str, float]:
    """Find the methods that no other beats in both soundness and completeness, by the first metric of each."""
    kinds = {metric: next(iter(methods.values())).kind for metric, methods in areas.items()}
    axes = [
        [metric for metric, kind in kinds.items() if kind.startswith(side)] for side in ("soundness", "completeness")
    ]
    compared = next(iter(areas.values()))
    names = [name for name in compared if name not in baselines]
    if not all(axes) or not names or compared[names[0]].estimate.samples < FEWEST:
        return {}
    # (1 + R, M), of which the first row is the data set itself.
    chosen = ([areas[metric][name] for name in names] for metric, *_ in axes)
    sound, complete = (
        np.nan_to_num(np.stack([np.append(_value(area), area.replicates) for area in own], axis=1), nan=-np.inf)
        for own in chosen
    )
    at_least = (sound[:, None] >= sound[:, :, None]) & (complete[:, None] >= complete[:, :, None])
    more = (sound[:, None] > sound[:, :, None]) | (complete[:, None] > complete[:, :, None])
    on_front = np.logical_not((at_least & more).any(axis=2)) & np.isfinite(sound) & np.isfinite(complete)
    return {name: float(on_front[1:, k].mean()) for k, name in enumerate(names) if on_front[0, k]}
