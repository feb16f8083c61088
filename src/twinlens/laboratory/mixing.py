"""The self-test: does a metric worsen steadily when maps are mixed with maps of other inputs? It needs no ground truth.

A map η is mixed with the method's own map ν of another input: (1 - λ) η/|η| + λ ν/|ν|. Soundness is linear in η by
definition, and the true soundness of the mixture lies on the straight line from S(η) to S(ν), for any model and data.
Other metrics are not linear, but should worsen from the own map to the exchanged one. Mixtures are as smooth as the
maps, and a metric cannot pass by preferring smooth maps; a blurred copy of the map shows whether it does.

Shapes: N samples, S = spatial shape of a map, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from torch import Tensor

from twinlens.attribution.perturbation import blur
from twinlens.imputation.imputers import Imputer, LinearImputer
from twinlens.metrics.catalogue import MetricRequests, find_metrics
from twinlens.metrics.curves import Curve
from twinlens.metrics.performance import Performance
from twinlens.metrics.sweeps import merge_sweeps
from twinlens.probing.exchange import exchange_maps
from twinlens.probing.model_call import Labels, Model
from twinlens.probing.probe import ProbeOptions, Prober
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike
from twinlens.support.estimate import Estimate
from twinlens.support.fields import replaced
from twinlens.support.signatures import lists_options

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
TESTED = ("soundness_rank", "completeness_share", "calibration", "completeness", "road_morf", "road_lerf")
STEADY = 0.9
"""Least rank correlation with the share of a metric that worsens steadily: one swap of two neighbours out of five."""

_SIGMA = 0.03  # of the blur, as a share of the mean length of a map's sides; at least one position


def mix_maps(maps: Tensor, others: Tensor, share: float) -> Tensor:
    """Mix maps (N, *S) with a share of others, each scaled to a sum of 1; a map of zeros stays zero.

    Example:
        >>> import torch
        >>> mix_maps(torch.tensor([[3.0, 1.0]]), torch.tensor([[0.0, 2.0]]), 0.25)
        tensor([[0.5625, 0.4375]])
    """
    own, other = (each / each.flatten(1).sum(dim=1).clamp(min=1e-30).reshape(-1, *[1] * (each.dim() - 1))
                  for each in (maps, others))  # fmt: skip
    return (1 - share) * own + share * other


def blur_maps(maps: Tensor) -> Tensor:
    """Blur maps (N, *S) by a Gaussian of 3% of their mean side, and at least of one position."""
    return blur(maps[:, None], max(1.0, _SIGMA * float(np.mean(maps.shape[1:]))))[:, 0]


@checked
@lists_options
def selftest(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    shares: Sequence[float] = SHARES,
    metrics: MetricRequests = TESTED,
    performance: Performance = "accuracy",
    imputer: Imputer = LinearImputer(),
    resamples: int = 1000,
    **how: Unpack[ProbeOptions],
) -> pd.DataFrame:
    """Measure mixtures of a method's maps with its exchanged maps, and a blurred copy, by each metric.

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes.
        maps: attribution maps of a method, (N, *S).
        shares: shares of the exchanged map, increasing from 0 to 1.
        metrics: metrics to test: names, values, or a table from your own names to either.
        performance: performance measure of metrics requested by name.
        imputer: imputer of metrics without their own; deletion and insertion have one on images.
        resamples: number of resamples for intervals.

    Returns:
        One row per metric. "correlation": Spearman's correlation of the area with the share of the own map (1 is right,
        -1 upside down, NaN if it never changes). "difference": how much better own maps score than exchanged ones.
        "departure": the value farthest from the straight line between both ends, minus the line; the interval holds for
        all shares. "blurred": how much better a blurred copy scores than the map; NaN for tabular rows. Each has a low
        and a high end, NaN where the metric has no interval. "linear": whether the truth lies on the line. The area at
        each share is in "share 0.25" and so on; that of the paper's soundness ends at the highest performance that all
        versions reach.

    Example:
        >>> from twinlens.laboratory.tasks import sparse_linear
        >>> task = sparse_linear(20, features=40)
        >>> result = selftest(task.model, task.inputs, task.labels, task.information, imputer=task.imputer)
        >>> result.set_index("metric")["correlation"]["soundness_rank"]
        np.float64(1.0)
    """
    if len(shares) < 3 or (shares[0], shares[-1]) != (0, 1) or (np.diff(shares) <= 0).any():
        raise ValueError(f"`shares` must increase from 0 to 1, with at least one between; got {tuple(shares)}.")
    requested = find_metrics(metrics, {"performance": performance})
    if not requested:
        raise ValueError("`metrics` must name at least one metric to test.")
    prober = Prober(model, inputs, labels, **how)
    original, neighbours = prober.rank(maps), prober.inputs.dim() > 2
    tested = {
        # Without neighbours there is no blur: all metrics have one imputer.
        name: metric.bound(imputer, neighbours=True)
        if neighbours
        else replaced(metric, {"imputer": metric.imputer or imputer}, name)
        for name, metric in requested.items()
    }
    others = exchange_maps(original.maps, prober.respondent.labels, ids=prober.ids, seed=prober.how["seed"])
    versions: dict[float | str, Tensor] = {float(share): mix_maps(original.maps, others, share) for share in shares}
    if neighbours:
        versions["blurred"] = blur_maps(original.maps)
    features = original.features
    sweeps = merge_sweeps(sweep for metric in tested.values() for sweep in metric.sweeps(features))
    curves: dict[str, dict[float | str, Curve]] = {name: {} for name in tested}
    for version, values in versions.items():
        ranked = prober.rank_checked(values)
        tables = {sweep.kind(): prober.sweep(ranked, sweep.schedule, sweep.imputer) for sweep in sweeps}
        for name, metric in tested.items():
            read = [tables[sweep.kind()].join_levels(levels=sweep.schedule.levels) for sweep in metric.sweeps(features)]
            curves[name][version] = metric.read(read)
    linear = {name: metric.about.side == "soundness" for name, metric in tested.items()}
    return pd.DataFrame([_row(name, of, linear[name], resamples) for name, of in curves.items()])


def _row(metric: str, curves: Mapping[float | str, Curve], linear: bool, resamples: int) -> dict[str, object]:
    """Return the row of a metric from the curves of all versions."""
    any_curve = next(iter(curves.values()))
    top = min(float(curve.performance.max()) for curve in curves.values()) if any_curve.by_predictive_level else None
    areas = {
        version: bootstrap(curve, resamples=resamples).compared_area(high=top).estimate
        for version, curve in curves.items()
    }
    mixed = {share: area for share, area in areas.items() if isinstance(share, float)}
    shares, sign = list(mixed), 1.0 if any_curve.higher_is_better else -1.0
    values = np.array([np.nan if area.value is None else area.value for area in mixed.values()])
    own, other = mixed[shares[0]], mixed[shares[-1]]
    changes = np.isfinite(values).all() and np.ptp(values) > 0
    off = [mixed[share] - (own * (1 - share) + other * share) for share in shares[1:-1]]
    numbers = {
        "difference": (own - other) * sign,
        "departure": _farthest(off),
        "blurred": (areas["blurred"] - own) * sign if "blurred" in areas else None,
    }
    row: dict[str, object] = {
        "metric": metric,
        "correlation": round(float(spearmanr(sign * values, -np.array(shares))[0]), 10) if changes else float("nan"),
    }
    for name, number in numbers.items():
        ends = (None,) * 3 if number is None else (number.value, number.low, number.high)
        row |= {f"{name}{end}": np.nan if v is None else v for end, v in zip(("", "_low", "_high"), ends, strict=True)}
    return row | {"linear": linear} | {f"share {share:g}": v for share, v in zip(shares, values, strict=True)}


def _farthest(departures: Sequence[Estimate]) -> Estimate | None:
    """Return the departure that is farthest from zero, with an interval that holds for all of them."""
    values = np.array([np.nan if each.value is None else each.value for each in departures])
    if not np.isfinite(values).any():
        return None
    replicates = np.stack([each.replicates for each in departures if each.replicates is not None], axis=1)
    together = Estimate.of_differences(values, replicates, samples=departures[0].samples)
    return together[int(np.nanargmax(np.abs(values)))]


def describe_selftest(rows: pd.DataFrame) -> dict[str, str]:
    """Return a verdict on each metric in a sentence, from rows of `selftest` for one or several methods.

    Example:
        >>> row = {"metric": "deletion", "correlation": 1.0, "difference": 0.2, "difference_low": 0.1, "linear": False,
        ...        "departure": 0.03, "blurred": 0.1, "blurred_low": -0.1}
        >>> describe_selftest(pd.DataFrame([row]))["deletion"]
        'deletion passes: it worsens steadily from own to exchanged maps. No blurred copy scores clearly higher.'
    """
    return {str(metric): _verdict(str(metric), own) for metric, own in rows.groupby("metric", sort=False)}


def _verdict(metric: str, rows: pd.DataFrame) -> str:
    judged = rows[rows["difference_low"] > 0]
    if judged.empty:
        none = rows["difference_low"].isna().all()
        reason = "it has no intervals" if none else "own maps do not score clearly better than exchanged ones"
        return f"{metric} is not judged: {reason}."
    steady = judged["correlation"] >= STEADY
    passes = "passes" if steady.all() else "fails"
    whom = f" for {steady.sum()} of {len(judged)} methods" if len(judged) > 1 else ""
    falls = "worsens steadily" if steady.any() else "does not worsen steadily"
    line = ""
    if judged["linear"].all():
        line = f", at most {judged['departure'].abs().max():.3f} off the straight line on which the truth lies"
    higher = rows[rows["blurred_low"] > 0]
    names = f" of {', '.join(higher['method'])}" if "method" in higher and len(higher) else ""
    blurred = (
        "No blurred copy scores clearly higher."
        if higher.empty
        else f"Blurred copies{names} score higher than the maps."
    )
    blurred = "" if rows["blurred"].isna().all() else f" {blurred}"
    return f"{metric} {passes}: it {falls} from own to exchanged maps{whom}{line}.{blurred}"
