"""Paired comparison of methods on the same samples: which is better, and how certain is that?

All methods are resampled alike, so that what a sample does to all of them cancels out of the differences. All pairs of
a metric are decided at once: intervals and corrected p-values come from the largest of their studentised differences.

Shapes: N samples, L levels, R resamples, M methods.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np

from twinlens.metrics.curves import Curve
from twinlens.statistics.bootstrap import Score, bootstrap
from twinlens.statistics.sequential import ONE_LOOK, Looks
from twinlens.statistics.verdicts import Comparison, Pair, Standing
from twinlens.support.arrays import Floats
from twinlens.support.resampling import around, check_confidence, interval_of

Curves = Mapping[str, Curve] | Mapping[str, Mapping[str, Curve]]


def compare_curves(
    compared: Curves,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    high: float | Mapping[str, float] | None = None,
    controls: Collection[str] = (),
) -> Comparison:
    """Compare methods by the areas of their curves, on the same samples; see `twinlens.compare`.

    Args:
        compared: from each method's name to its curve, or to its curves by metric. The same samples, in any order.
        confidence: confidence of intervals and verdicts.
        resamples: number of resamples.
        seed: seed of the resampling.
        high: for soundness, the predictive level up to which areas are taken, for all metrics or by metric; by default
            each curve's own area. A method that does not reach it has no area.
        controls: names of methods that are compared, but never the best.

    Returns:
        Differences with intervals and p-values, win rates, ranks with their uncertainty, the Pareto front, and a
        sentence for each pair.
    """
    check_confidence(confidence)
    metrics = _by_metric(compared)
    ids = next(iter(next(iter(metrics.values())).values())).table.ids
    _refuse_other_samples(metrics, ids)
    up_to = high if isinstance(high, Mapping) else dict.fromkeys(metrics, high)
    scores = {
        metric: {
            name: bootstrap(curve, resamples=resamples, seed=seed).score(up_to.get(metric))
            for name, curve in methods.items()
        }
        for metric, methods in metrics.items()
    }
    return compare_scores(scores, confidence=confidence, controls=controls)


def compare_scores(
    scores: Mapping[str, Mapping[str, Score]],
    *,
    confidence: float = 0.95,
    controls: Collection[str] = (),
    looks: Looks = ONE_LOOK,
) -> Comparison:
    """Compare methods whose curves were resampled already, on the same samples with the same seed.

    Args:
        scores: from the name of each metric to the score of each method.
        confidence: confidence of intervals and verdicts.
        controls: as for `compare_curves`.
        looks: how often the data are looked at; intervals and p-values pay for all of them.
    """
    standings: list[Standing] = []
    pairs: list[Pair] = []
    for metric, methods in scores.items():
        own_pairs = _pairs(metric, methods, confidence, looks)
        standings += _standings(metric, methods, own_pairs, looks.confidence(confidence))
        pairs += own_pairs
    return Comparison(
        confidence=confidence,
        standings=tuple(standings),
        pairs=tuple(pairs),
        pareto=_pareto(scores, controls),
        controls=tuple(controls),
    )


def _by_metric(compared: Curves) -> dict[str, dict[str, Curve]]:
    """Group curves by metric, then by method; refuse those that cannot be compared."""
    if len(compared) < 2:
        raise ValueError(f"`compared` must hold at least two methods to compare; got {len(compared)}.")
    metrics: dict[str, dict[str, Curve]] = {}
    for method, given in compared.items():
        for metric, curve in (given if isinstance(given, Mapping) else {given.kind: given}).items():
            metrics.setdefault(metric, {})[method] = curve
    for metric, methods in metrics.items():
        for method in compared:
            if method not in methods:
                raise ValueError(f"`compared` must hold every metric of every method; {method!r} has no {metric}.")
            one, other = (methods[name].conditions for name in (next(iter(compared)), method))
            if one != other:
                raise ValueError(
                    f"`compared` must be made alike; {metric} of {method!r} was measured as {other}, that of "
                    f"{next(iter(compared))!r} as {one}."
                )
    return metrics


def _refuse_other_samples(metrics: Mapping[str, Mapping[str, Curve]], ids: Sequence[str]) -> None:
    for metric, methods in metrics.items():
        for method, curve in methods.items():
            if set(curve.table.ids) != set(ids):
                differ = sorted(set(curve.table.ids) ^ set(ids))
                raise ValueError(
                    f"`compared` must be measured on the same samples; {metric} of {method!r} has {len(curve.table)}, "
                    f"the first curve {len(ids)}, and {len(differ)} ids are in one only, such as {differ[0]!r}. "
                    "Give the same `ids` to both, or take the common samples with ProbeTable.take."
                )


def _standings(metric: str, methods: Mapping[str, Score], pairs: Sequence[Pair], confidence: float) -> list[Standing]:
    """Rank the methods by their areas."""
    sign = _sign(methods)
    ranks = _ranks({name: sign * score.area for name, score in methods.items()})
    against: dict[str, list[str]] = {name: [] for name in methods}
    for pair in pairs:
        if pair.decided:
            against[pair.first].append(pair.second)
            against[pair.second].append(pair.first)
    standings = []
    for name, score in methods.items():
        own = interval_of(score.area, score.trusted(score.replicates), confidence, samples=score.samples)
        low, high = np.clip(tuple(own), *score.limits).tolist()
        better = sum(ranks[other] < ranks[name] for other in against[name])
        standings.append(
            Standing(
                metric=metric,
                method=name,
                area=score.area,
                low=low,
                high=high,
                rank=ranks[name],
                best_rank=1 + better,
                worst_rank=len(methods) - (len(against[name]) - better),
            )
        )
    return sorted(standings, key=lambda standing: standing.rank)


def _sign(methods: Mapping[str, Score]) -> float:
    return 1.0 if next(iter(methods.values())).higher_is_better else -1.0


def _ranks(scores: Mapping[str, float]) -> dict[str, int]:
    """Rank methods, 1 for the best; one without a value is behind all others."""
    known = {name: -math.inf if math.isnan(score) else score for name, score in scores.items()}
    return {name: 1 + sum(other > score for other in known.values()) for name, score in known.items()}


def _pairs(metric: str, methods: Mapping[str, Score], confidence: float, looks: Looks) -> list[Pair]:
    """Decide all pairs of methods at once, by their areas as measured and in each resample."""
    sign, names, scores = _sign(methods), list(methods), list(methods.values())
    samples, chosen = scores[0].samples, list(combinations(range(len(names)), 2))
    first, second = np.array(chosen).T
    measured, replicates = np.array([s.area for s in scores]), np.stack([s.replicates for s in scores], axis=1)
    differences, again = measured[first] - measured[second], replicates[:, first] - replicates[:, second]
    trusted = scores[0].trusted(again)
    together = around(differences, trusted, samples)
    low, high = together.ends(looks.confidence(confidence, at_once=len(chosen)))
    adjusted = together.p_values()
    return [
        Pair(
            metric=metric,
            first=names[i],
            second=names[j],
            difference=float(differences[k]),
            low=float(low[k]),
            high=float(high[k]),
            p_value=looks.p_value(float(around(differences[[k]], trusted[:, [k]], samples).p_values()[0])),
            p_adjusted=looks.p_value(float(adjusted[k]), at_once=len(chosen)),
            wins=_share_above(sign * again[:, k]),
            sample_wins=_sample_wins(scores[i], scores[j], sign),
        )
        for k, (i, j) in enumerate(chosen)
    ]


def _share_above(differences: Floats) -> float:
    known = differences[np.isfinite(differences)]
    return float(np.mean((known > 0) + 0.5 * (known == 0))) if len(known) else math.nan


def _sample_wins(one: Score, other: Score, sign: float) -> float | None:
    if one.per_sample is None or other.per_sample is None:
        return None
    return _share_above(sign * (one.per_sample - other.per_sample))


def _pareto(scores: Mapping[str, Mapping[str, Score]], controls: Collection[str] = ()) -> dict[str, float]:
    """Find the methods that no other beats in both soundness and completeness, the first metric of either kind.

    Controls are left out.
    """
    kinds = {metric: next(iter(methods.values())).kind for metric, methods in scores.items()}
    axes = [[metric for metric, kind in kinds.items() if kind == wanted] for wanted in ("soundness", "completeness")]
    if not all(axes):
        return {}
    names = [name for name in next(iter(scores.values())) if name not in controls]
    if not names:
        return {}
    # (1 + R, M), of which the first row is the data set itself.
    areas = [np.stack([scores[metric][name].rows for name in names], axis=1) for metric, *_ in axes]
    sound, complete = (np.nan_to_num(each, nan=-np.inf) for each in areas)
    at_least = (sound[:, None] >= sound[:, :, None]) & (complete[:, None] >= complete[:, :, None])
    more = (sound[:, None] > sound[:, :, None]) | (complete[:, None] > complete[:, :, None])
    on_front = np.logical_not((at_least & more).any(axis=2)) & np.isfinite(sound) & np.isfinite(complete)
    return {name: float(on_front[1:, k].mean()) for k, name in enumerate(names) if on_front[0, k]}
