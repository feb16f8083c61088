"""Paired comparison of methods on the same samples: which is better, and how certain is that?

All methods are resampled alike, so that what a sample does to all of them cancels out of the differences. All pairs of
a metric are decided at once: intervals and corrected p-values come from the largest of their studentised differences.

Shapes: N samples, L levels, R resamples, M methods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from twinlens.core.arrays import Floats
from twinlens.core.resampling import around, check_confidence, interval_of
from twinlens.metrics.curves import CompletenessCurve, Curve, RemovalCurve
from twinlens.metrics.soundness_curve import SoundnessCurve
from twinlens.statistics.bootstrap import Bootstrap, bootstrap
from twinlens.statistics.verdicts import Comparison, Pair, Standing

Curves = Mapping[str, Curve] | Mapping[str, Mapping[str, Curve]]


def compare(
    curves: Curves,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    high: float | Mapping[str, float] | None = None,
    controls: Collection[str] = (),
) -> Comparison:
    """Compare methods by the areas of their curves, on the same samples.

    Args:
        curves: from each method's name to its curve, or to its curves by metric. The same samples, in any order.
        confidence: confidence of intervals and verdicts.
        resamples: number of resamples.
        seed: seed of the resampling.
        high: for soundness, the predictive level up to which areas are taken, for all metrics or by metric; by default
            each curve's own area. A method that does not reach it has no area.
        controls: names of methods that are compared, but never the best.

    Returns:
        Differences with intervals and p-values, win rates, ranks with their uncertainty, the Pareto front, and a
        sentence for each pair.

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
        right is more complete than wrong by 0.917 [0.848, 0.985].
    """
    metrics = _by_metric(curves)
    ids = next(iter(next(iter(metrics.values())).values())).table.ids
    _refuse_other_samples(metrics, ids)
    drawn = {
        metric: {name: bootstrap(curve, resamples=resamples, seed=seed) for name, curve in methods.items()}
        for metric, methods in metrics.items()
    }
    return compare_bootstraps(drawn, confidence=confidence, high=high, controls=controls)


def compare_bootstraps(
    drawn: Mapping[str, Mapping[str, Bootstrap]],
    *,
    confidence: float = 0.95,
    high: float | Mapping[str, float] | None = None,
    controls: Collection[str] = (),
) -> Comparison:
    """Compare methods whose curves were resampled already, on the same samples with the same seed.

    Args:
        drawn: from the name of each metric to the resampled curve of each method.
        confidence: confidence of intervals and verdicts.
        high: as for `compare`.
        controls: as for `compare`.
    """
    check_confidence(confidence)
    standings: list[Standing] = []
    pairs: list[Pair] = []
    areas: dict[str, Floats] = {}
    for metric, methods in drawn.items():
        up_to = high.get(metric) if isinstance(high, Mapping) else high
        measured, replicates = (
            np.stack(each, axis=-1)
            for each in zip(*[each.areas_up_to(up_to) for each in methods.values()], strict=True)
        )
        areas[metric] = np.vstack([measured, replicates])
        own_pairs = _pairs(metric, methods, measured, replicates, confidence)
        standings += _standings(metric, methods, areas[metric], own_pairs, confidence)
        pairs += own_pairs
    return Comparison(
        confidence=confidence,
        standings=tuple(standings),
        pairs=tuple(pairs),
        pareto=_pareto(drawn, areas, controls),
        controls=tuple(controls),
    )


def _by_metric(curves: Curves) -> dict[str, dict[str, Curve]]:
    """Group curves by metric, then by method; refuse those that cannot be compared."""
    if len(curves) < 2:
        raise ValueError(f"`curves` must hold at least two methods to compare; got {len(curves)}.")
    metrics: dict[str, dict[str, Curve]] = {}
    for method, given in curves.items():
        for metric, curve in ({_name(given): given} if isinstance(given, Curve) else given).items():
            metrics.setdefault(metric, {})[method] = curve
    for metric, methods in metrics.items():
        for method in curves:
            if method not in methods:
                raise ValueError(f"`curves` must hold every metric of every method; {method!r} has no {metric}.")
            one, other = (_made_with(methods[name]) for name in (next(iter(curves)), method))
            if one != other:
                raise ValueError(
                    f"`curves` must be made alike; {metric} of {method!r} was measured as {other}, that of "
                    f"{next(iter(curves))!r} as {one}."
                )
    return metrics


def _name(curve: Curve) -> str:
    if isinstance(curve, RemovalCurve):
        return f"removal ({curve.table.settings.schedule.order})"
    return "soundness" if isinstance(curve, SoundnessCurve) else "completeness"


def _made_with(curve: Curve) -> str:
    made = f"{_name(curve)}, {curve.measure}, protocol {curve.protocol.name}, {curve.table.settings.imputer}"
    if isinstance(curve, SoundnessCurve):  # its levels may differ, as a sweep may end early
        return f"{made}, estimator {curve.estimator}, epsilon {curve.epsilon:g}"
    return f"{made}, levels {', '.join(f'{level:g}' for level in curve.levels)}"


def _refuse_other_samples(metrics: Mapping[str, Mapping[str, Curve]], ids: Sequence[str]) -> None:
    for metric, methods in metrics.items():
        for method, curve in methods.items():
            if set(curve.table.ids) != set(ids):
                differ = sorted(set(curve.table.ids) ^ set(ids))
                raise ValueError(
                    f"`curves` must be measured on the same samples; {metric} of {method!r} has {len(curve.table)}, "
                    f"the first curve {len(ids)}, and {len(differ)} ids are in one only, such as {differ[0]!r}. "
                    "Give the same `ids` to both, or take the common samples with ProbeTable.take."
                )


def _standings(
    metric: str, methods: Mapping[str, Bootstrap], areas: Floats, pairs: Sequence[Pair], confidence: float
) -> list[Standing]:
    """Rank the methods by their areas (1 + R, M), of which the first row is the data set itself."""
    sign = _sign(methods)
    ranks = dict(zip(methods, _ranks(sign * areas[:1])[0].tolist(), strict=True))
    standings = []
    for k, (name, each) in enumerate(methods.items()):
        own = interval_of(areas[0, k], each.trusted(areas[1:, k]), confidence, samples=len(each.curve.table))
        low, high = np.clip(tuple(own), *each.curve.limits).tolist()
        others = [
            pair.second if pair.first == name else pair.first
            for pair in pairs
            if pair.decided and name in (pair.first, pair.second)
        ]
        better = sum(ranks[other] < ranks[name] for other in others)
        standings.append(
            Standing(
                metric=metric,
                method=name,
                area=float(areas[0, k]),
                low=low,
                high=high,
                rank=ranks[name],
                best_rank=1 + better,
                worst_rank=len(methods) - (len(others) - better),
            )
        )
    return sorted(standings, key=lambda standing: standing.rank)


def _sign(methods: Mapping[str, Bootstrap]) -> float:
    return 1.0 if next(iter(methods.values())).curve.higher_is_better else -1.0


def _ranks(scores: Floats) -> NDArray[np.int64]:
    """Rank methods in each resample, (R, M), 1 for the best; a method without a value is behind all others."""
    known = np.where(np.isfinite(scores), scores, -np.inf)
    return np.asarray(1 + (known[:, None, :] > known[:, :, None]).sum(axis=2))


def _pairs(
    metric: str, methods: Mapping[str, Bootstrap], measured: Floats, replicates: Floats, confidence: float
) -> list[Pair]:
    """Decide all pairs of methods at once, by their areas, (M,) as measured and (R, M) in each resample."""
    sign, names = _sign(methods), list(methods)
    samples = len(next(iter(methods.values())).curve.table)
    per_sample = [_by_id(each.curve) for each in methods.values()]
    chosen = list(combinations(range(len(names)), 2))
    first, second = np.array(chosen).T
    differences, again = measured[first] - measured[second], replicates[:, first] - replicates[:, second]
    trusted = next(iter(methods.values())).trusted(again)
    together = around(differences, trusted, samples)
    low, high = together.ends(confidence)
    adjusted = together.p_values()
    return [
        Pair(
            metric=metric,
            first=names[i],
            second=names[j],
            difference=float(differences[k]),
            low=float(low[k]),
            high=float(high[k]),
            p_value=float(around(differences[[k]], trusted[:, [k]], samples).p_values()[0]),
            p_adjusted=float(adjusted[k]),
            wins=_share_above(sign * again[np.isfinite(again[:, k]), k]),
            sample_wins=_sample_wins(per_sample[i], per_sample[j], sign),
        )
        for k, (i, j) in enumerate(chosen)
    ]


def _share_above(differences: Floats) -> float:
    if not len(differences):
        return float("nan")
    return float(np.mean((differences > 0) + 0.5 * (differences == 0)))


def _by_id(curve: Curve) -> dict[str, float] | None:
    values = curve.area_per_sample()
    return None if values is None else dict(zip(curve.table.ids, values.tolist(), strict=True))


def _sample_wins(one: dict[str, float] | None, other: dict[str, float] | None, sign: float) -> float | None:
    if one is None or other is None:
        return None
    differences = sign * np.array([one[name] - other[name] for name in one])
    return _share_above(differences[np.isfinite(differences)])


def _pareto(
    drawn: Mapping[str, Mapping[str, Bootstrap]], areas: Mapping[str, Floats], controls: Collection[str] = ()
) -> dict[str, float]:
    """Find the methods that no other beats in both soundness and completeness, the first metric of either kind.

    The first row of the areas is the data set itself. Controls are left out.
    """
    kinds = {metric: next(iter(methods.values())).curve for metric, methods in drawn.items()}
    axes = [
        [m for m, curve in kinds.items() if isinstance(curve, kind)] for kind in (SoundnessCurve, CompletenessCurve)
    ]
    if not all(axes):
        return {}
    places = {name: k for k, name in enumerate(next(iter(drawn.values()))) if name not in controls}
    columns = list(places.values())
    sound, complete = (np.nan_to_num(areas[metrics[0]][:, columns], nan=-np.inf) for metrics in axes)
    at_least = (sound[:, None] >= sound[:, :, None]) & (complete[:, None] >= complete[:, :, None])
    more = (sound[:, None] > sound[:, :, None]) | (complete[:, None] > complete[:, :, None])
    on_front = np.logical_not((at_least & more).any(axis=2)) & np.isfinite(sound) & np.isfinite(complete)
    return {name: float(on_front[1:, k].mean()) for k, name in enumerate(places) if on_front[0, k]}
