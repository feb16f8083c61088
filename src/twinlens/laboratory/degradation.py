"""The self-test: do the metrics rank maps correctly on your model, when maps are degraded step by step?

As in F-Fidelity (Zheng et al., ICLR 2025), noise replaces a growing share of a map's features, and a metric of
faithfulness should rank the results in this order.

Shapes: N samples, S = spatial shape of a map, F features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr
from torch import Tensor

from twinlens.imputation.imputers import Imputer, LinearImputer
from twinlens.metrics.catalogue import MetricRequests, find_metrics
from twinlens.metrics.curves import Curve
from twinlens.metrics.performance import Performance
from twinlens.metrics.sweeps import merge_sweeps
from twinlens.probing.maps import check_ids, check_maps
from twinlens.probing.model_call import Labels, Model
from twinlens.probing.probe import ProbeOptions, Prober
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike
from twinlens.support.fields import replaced
from twinlens.support.randomness import stream
from twinlens.support.signatures import lists_options

DEGRADED = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LEVELS = tuple(percent / 100 for percent in range(98, 0, -4))
TESTED = ("soundness", "completeness", "road_morf", "deletion", "insertion")


def degrade(maps: ArrayLike, share: float, *, ids: Sequence[str | int] | None = None, seed: int = 0) -> Tensor:
    """Replace a share of each map's features by noise between 0 and the map's maximum.

    Features and noise depend on the seed and the sample id: a larger share replaces the features of a smaller one, and
    more.

    Args:
        maps: (N, *S), without negative values.
        share: between 0 and 1.
        ids: sample ids, 0 … N-1 by default.
        seed: seed of the noise.

    Returns:
        New maps (N, *S) of the same type.

    Example:
        >>> degrade(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), 0.5).eq(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).sum()
        tensor(2)
    """
    if not 0 <= share <= 1:
        raise ValueError(f"`share` must lie within [0, 1]; got {share!r}.")
    names = check_ids(ids, len(maps))
    values = check_maps(maps, tuple(maps.shape[1:]), ids=names)
    worse = values.clone()
    for row, name in zip(worse.flatten(1), names, strict=True):
        rng = np.random.default_rng(stream(seed, "degrade", name))
        order, noise = rng.permutation(len(row)), rng.random(len(row))
        replaced = torch.from_numpy(order[: round(share * len(row))]).to(row.device)
        row[replaced] = (torch.from_numpy(noise).to(row) * row.max())[replaced]
    return worse


@checked
@lists_options
def selftest(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    shares: Sequence[float] = DEGRADED,
    levels: Sequence[float] = LEVELS,
    metrics: MetricRequests = TESTED,
    performance: Performance = "accuracy",
    imputer: Imputer = LinearImputer(),
    **how: Unpack[ProbeOptions],
) -> pd.DataFrame:
    """Rank degraded versions of maps by each metric, and correlate the ranking with the truth.

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes.
        maps: attribution maps of a good method, (N, *S).
        shares: shares of each map that noise replaces, increasing.
        levels: shares of features removed, for soundness; decreasing.
        metrics: metrics to test: names, values, or a table from your own names to either.
        performance: performance measure of metrics requested by name.
        imputer: imputer of metrics without their own; deletion and insertion have one on images.

    Returns:
        One row per metric: Spearman's correlation of the area with the intact share of the map (1 is right, -1 is
        upside down, NaN if the area never changes), and the area at each share, "share 0.2" and so on. The area of
        soundness by the paper's estimator ends at the highest performance that all versions reach.

    Example:
        >>> from twinlens.laboratory.tasks import sparse_linear
        >>> task = sparse_linear(20, features=40)
        >>> result = selftest(task.model, task.inputs, task.labels, task.information, imputer=task.imputer)
        >>> result.set_index("metric")["correlation"]["road_morf"]
        np.float64(1.0)
    """
    prober = Prober(model, inputs, labels, **how)
    original, neighbours = prober.rank(maps), prober.inputs.dim() > 2
    features = original.features
    tested = {
        # Without neighbours there is no blur: all metrics have one imputer.
        name: metric.bound(imputer, neighbours=True)
        if neighbours
        else replaced(metric, {"imputer": metric.imputer or imputer}, name)
        for name, metric in find_metrics(metrics, {"levels": levels, "performance": performance}).items()
    }
    sweeps = merge_sweeps(sweep for metric in tested.values() for sweep in metric.sweeps(features))
    curves: dict[str, dict[float, Curve]] = {}
    for share in shares:
        ranked = prober.rank(degrade(original.maps, share, ids=prober.ids, seed=prober.how["seed"]))
        tables = {sweep.kind(): prober.sweep(ranked, sweep.schedule, sweep.imputer) for sweep in sweeps}
        for name, metric in tested.items():
            read = [tables[sweep.kind()].join_levels(levels=sweep.schedule.levels) for sweep in metric.sweeps(features)]
            curves.setdefault(name, {})[share] = metric.read(read)
    return rank_degraded(curves)


def rank_degraded(curves: Mapping[str, Mapping[float, Curve]]) -> pd.DataFrame:
    """Correlate the areas of curves, by metric and degraded share, with the shares; return a table as `selftest`."""
    rows = []
    for metric, by_share in curves.items():
        measured = list(by_share.values())
        by_level = any(curve.by_predictive_level for curve in measured)
        top = np.array([min(float(curve.performance.max()) for curve in measured)]) if by_level else None
        areas = [float(curve.areas(curve.performance[None], curve.values[None], top)[0]) for curve in measured]
        scores = np.array(areas) * (1 if measured[0].higher_is_better else -1)
        changes = np.isfinite(scores).all() and np.ptp(scores) > 0
        correlation = float(spearmanr(scores, [-share for share in by_share])[0]) if changes else float("nan")
        columns = {f"share {share:g}": area for share, area in zip(by_share, areas, strict=True)}
        rows.append({"metric": metric, "correlation": correlation} | columns)
    return pd.DataFrame(rows)
