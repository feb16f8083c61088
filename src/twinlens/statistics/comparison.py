"""Paired comparison of methods on the same samples: which is better, and how certain is that?

All methods are resampled alike, so that what a sample does to all of them cancels out of the differences.

Shapes: N samples, L levels, R resamples, M methods.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from twinlens.core.arrays import Floats
from twinlens.core.plotting import COLOURS, html_table, new_axes
from twinlens.core.resampling import check_confidence, pointwise
from twinlens.metrics.curves import CompletenessCurve, Curve, RemovalCurve, SoundnessCurve
from twinlens.statistics.bootstrap import Bootstrap, bootstrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curves = Mapping[str, Curve] | Mapping[str, Mapping[str, Curve]]
_BETTER = {"soundness": "sounder", "completeness": "more complete"}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two methods compared by one metric."""

    metric: str
    """The metric."""

    first: str
    """One method."""

    second: str
    """The other method."""

    difference: float
    """Area of the first method's curve minus that of the second; NaN where one is not defined."""

    low: float
    """Lower end of the difference's interval."""

    high: float
    """Upper end of the difference's interval."""

    p_value: float
    """Two-sided bootstrap p-value of no difference, not yet corrected."""

    holm: float
    """The p-value corrected for the number of pairs compared by this metric (Holm)."""

    wins: float
    """Share of the resamples in which the first method is better; ties count half."""

    sample_wins: float | None
    """Share of the samples on which the first method is better, ties counting half; None if the metric has no value per
    sample."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The place of one method by one metric."""

    metric: str
    """The metric."""

    method: str
    """The method."""

    area: float
    """Area of its curve."""

    low: float
    """Lower end of the area's interval."""

    high: float
    """Upper end of the area's interval."""

    rank: int
    """1 for the best."""

    best_rank: int
    """Best rank within the confidence of the comparison."""

    worst_rank: int
    """Worst rank within the confidence of the comparison."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Methods compared on the same samples."""

    confidence: float
    """Confidence of all intervals; a difference is significant if its corrected p-value is below 1 minus this."""

    standings: tuple[Standing, ...]
    """Each method by each metric, best first."""

    pairs: tuple[Pair, ...]
    """Each pair of methods by each metric."""

    pareto: Mapping[str, float]
    """Methods on the Pareto front of the soundness–completeness plane, to the share of resamples in which they are on
    it. Empty unless both metrics are compared."""

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One sentence per pair of methods."""
        by_pair: dict[tuple[str, str], list[Pair]] = {}
        for pair in self.pairs:
            by_pair.setdefault((pair.first, pair.second), []).append(pair)
        return tuple(_verdict(pairs, 1 - self.confidence) for pairs in by_pair.values())

    def _repr_html_(self) -> str:
        heads = ["metric", "method", "area", "interval", "rank"]
        body = [
            [
                html.escape(standing.metric),
                html.escape(standing.method),
                f"{standing.area:z.3f}",
                f"[{standing.low:z.3f}, {standing.high:z.3f}]",
                f"{standing.rank} ({standing.best_rank} to {standing.worst_rank})",
            ]
            for standing in self.standings
        ]
        verdicts = "".join(f"<li>{html.escape(verdict)}</li>" for verdict in self.verdicts)
        return f"{html_table(heads, body)}<details><summary>In words</summary><ul>{verdicts}</ul></details>"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the area of each method with its interval, by metric."""
        axes = new_axes(ax)
        metrics = list(dict.fromkeys(standing.metric for standing in self.standings))
        methods = list(dict.fromkeys(standing.method for standing in self.standings))
        for k, metric in enumerate(metrics):
            rows = [standing for standing in self.standings if standing.metric == metric]
            y = [methods.index(row.method) + 0.6 * ((k + 0.5) / len(metrics) - 0.5) for row in rows]
            reach = np.clip([[row.area - row.low for row in rows], [row.high - row.area for row in rows]], 0, None)
            colour = COLOURS[k % len(COLOURS)]
            axes.errorbar([row.area for row in rows], y, xerr=reach, fmt="o", color=colour, label=metric, markersize=4)
        axes.set_yticks(range(len(methods)), methods)
        axes.invert_yaxis()
        axes.set_xlabel("area")
        axes.legend()
        return axes

    def to_frame(self) -> pd.DataFrame:
        """Return one row per metric and pair of methods."""
        return pd.DataFrame([vars(pair) for pair in self.pairs])

    def standings_frame(self) -> pd.DataFrame:
        """Return one row per metric and method."""
        return pd.DataFrame([vars(standing) for standing in self.standings])


def compare(
    curves: Curves, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0, high: float | None = None
) -> Comparison:
    """Compare methods by the areas of their curves, on the same samples.

    Args:
        curves: from each method's name to its curve, or to its curves by metric. The same samples, in any order.
        confidence: confidence of intervals and verdicts.
        resamples: number of resamples.
        seed: seed of the resampling.
        high: for soundness, the predictive level up to which areas are taken; by default the highest that all methods
            reach, in each resample.

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
        right is more complete than wrong by 0.917 [0.833, 0.983].
    """
    metrics = _by_metric(curves)
    ids = next(iter(next(iter(metrics.values())).values())).table.ids
    _refuse_other_samples(metrics, ids)
    drawn = {
        metric: {name: bootstrap(curve, resamples=resamples, seed=seed) for name, curve in methods.items()}
        for metric, methods in metrics.items()
    }
    return compare_bootstraps(drawn, confidence=confidence, high=high)


def compare_bootstraps(
    drawn: Mapping[str, Mapping[str, Bootstrap]], *, confidence: float = 0.95, high: float | None = None
) -> Comparison:
    """Compare methods whose curves were resampled already, on the same samples with the same seed.

    Args:
        drawn: from the name of each metric to the resampled curve of each method.
        confidence: confidence of intervals and verdicts.
        high: as for `compare`.
    """
    check_confidence(confidence)
    standings: list[Standing] = []
    pairs: list[Pair] = []
    areas: dict[str, Floats] = {}
    for metric, methods in drawn.items():
        curves = {name: each.curve for name, each in methods.items()}
        sign = 1.0 if next(iter(curves.values())).higher_is_better else -1.0
        measured, replicates = _areas(list(methods.values()), high)
        standings += _standings(metric, list(methods), measured, replicates, sign, confidence)
        pairs += _pairs(metric, curves, measured, replicates, sign, confidence)
        areas[metric] = np.vstack([measured, replicates])
    return Comparison(
        confidence=confidence,
        standings=tuple(standings),
        pairs=tuple(pairs),
        pareto=_pareto(drawn, areas),
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


def _areas(drawn: Sequence[Bootstrap], high: float | None) -> tuple[Floats, Floats]:
    """Return the area of each method, (M,) as measured and (R, M) in each resample.

    Areas of soundness end at a level that all methods reach.
    """
    whole = [(each.curve.performance[None], each.curve.values[None]) for each in drawn]
    again = [(each.performance, each.values) for each in drawn]
    areas = []
    for replicates in (whole, again):
        tops = np.min([performance.max(axis=1) for performance, _ in replicates], axis=0)
        limits = tops if high is None else np.full(len(tops), high)
        areas.append(
            np.stack([each.curve.areas(p, v, limits) for each, (p, v) in zip(drawn, replicates, strict=True)], axis=1)
        )
    return areas[0][0], areas[1]


def _standings(
    metric: str, names: list[str], measured: Floats, areas: Floats, sign: float, confidence: float
) -> list[Standing]:
    low, high = pointwise(areas, confidence)
    ranks = _ranks(sign * areas)
    tail = (1 - confidence) / 2
    best = np.quantile(ranks, tail, axis=0, method="lower")
    worst = np.quantile(ranks, 1 - tail, axis=0, method="higher")
    own = _ranks(sign * measured[None])[0]
    standings = [
        Standing(
            metric=metric,
            method=name,
            area=float(measured[k]),
            low=float(low[k]),
            high=float(high[k]),
            rank=int(own[k]),
            best_rank=int(best[k]),
            worst_rank=int(worst[k]),
        )
        for k, name in enumerate(names)
    ]
    return sorted(standings, key=lambda standing: standing.rank)


def _ranks(scores: Floats) -> NDArray[np.int64]:
    """Rank methods in each resample, (R, M), 1 for the best; a method without a value is behind all others."""
    known = np.where(np.isfinite(scores), scores, -np.inf)
    return np.asarray(1 + (known[:, None, :] > known[:, :, None]).sum(axis=2))


def _pairs(
    metric: str, methods: Mapping[str, Curve], measured: Floats, areas: Floats, sign: float, confidence: float
) -> list[Pair]:
    per_sample = [_by_id(curve) for curve in methods.values()]
    chosen = list(combinations(range(len(methods)), 2))
    differences = [areas[:, i] - areas[:, j] for i, j in chosen]
    p_values = [_p_value(difference) for difference in differences]
    names = list(methods)
    pairs = []
    for (i, j), difference, p, corrected in zip(chosen, differences, p_values, holm(p_values), strict=True):
        low, high = pointwise(difference, confidence)
        finite = difference[np.isfinite(difference)]
        pairs.append(
            Pair(
                metric=metric,
                first=names[i],
                second=names[j],
                difference=float(measured[i] - measured[j]),
                low=float(low),
                high=float(high),
                p_value=p,
                holm=corrected,
                wins=_share_above(sign * finite),
                sample_wins=_sample_wins(per_sample[i], per_sample[j], sign),
            )
        )
    return pairs


def _p_value(differences: Floats) -> float:
    """Compute twice the share of resamples on the rarer side of zero, the observed data counted among them."""
    known = differences[np.isfinite(differences)]
    rarer = min((known <= 0).sum(), (known >= 0).sum())
    return float(min(1.0, 2 * (1 + rarer) / (1 + len(known))))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number (Holm 1979), in the order given.

    Example:
        >>> holm([0.04, 0.01, 0.03])
        [0.06, 0.03, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, k in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[k]))
        corrected[k] = largest
    return corrected


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


def _pareto(drawn: Mapping[str, Mapping[str, Bootstrap]], areas: Mapping[str, Floats]) -> dict[str, float]:
    """Find the methods that no other beats in both soundness and completeness, the first metric of either kind.

    The first row of the areas is the data set itself.
    """
    kinds = {metric: next(iter(methods.values())).curve for metric, methods in drawn.items()}
    axes = [
        [m for m, curve in kinds.items() if isinstance(curve, kind)] for kind in (SoundnessCurve, CompletenessCurve)
    ]
    if not all(axes):
        return {}
    sound, complete = (np.nan_to_num(areas[metrics[0]], nan=-np.inf) for metrics in axes)
    at_least = (sound[:, None] >= sound[:, :, None]) & (complete[:, None] >= complete[:, :, None])
    more = (sound[:, None] > sound[:, :, None]) | (complete[:, None] > complete[:, :, None])
    on_front = np.logical_not((at_least & more).any(axis=2)) & np.isfinite(sound) & np.isfinite(complete)
    names = next(iter(drawn.values()))
    return {name: float(on_front[1:, k].mean()) for k, name in enumerate(names) if on_front[0, k]}


def _verdict(pairs: list[Pair], alpha: float) -> str:
    clauses = []
    for pair in pairs:
        size = f"{abs(pair.difference):.3f}"
        ends = sorted([pair.low, pair.high]) if pair.difference >= 0 else sorted([-pair.low, -pair.high])
        between = f"[{ends[0]:.3f}, {ends[1]:.3f}]"
        if not pair.holm < alpha:
            clauses.append(f"{pair.metric} does not differ ({size} {between})")
            continue
        better, worse = (pair.first, pair.second) if pair.wins > 0.5 else (pair.second, pair.first)
        word = _BETTER.get(pair.metric, f"better in {pair.metric}")
        clauses.append(f"{better} is {word} than {worse} by {size} {between}")
    if clauses[0].startswith(pairs[0].metric):
        clauses[0] = f"{pairs[0].first} and {pairs[0].second}: {clauses[0]}"
    return "; ".join(clauses) + "."
