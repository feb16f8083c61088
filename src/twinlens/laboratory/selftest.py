"""Do the metrics themselves hold on your model? Maps are degraded step by step, so that their true order is known.

As in F-Fidelity (Zheng et al., ICLR 2025): a map is replaced by noise in a growing share of its features, and a metric
that measures faithfulness has to rank the results accordingly.

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
TESTED = ("soundness", "soundness_two_sided", "completeness", "road_morf", "deletion", "insertion")


def degrade(maps: ArrayLike, share: float, *, ids: Sequence[str | int] | None = None, seed: int = 0) -> Tensor:
    """Replace a share of each map's features by noise between 0 and the map's maximum.

    The choice of features and the noise depend on (seed, sample id) alone, so that a larger share degrades what a
    smaller one did, and more.

    Args:
        maps: (N, *S), without negative values.
        share: between 0 and 1.
        ids: one name per sample; by default 0 … N-1.
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
    """Rank ever more degraded versions of a map by each metric, and correlate the ranking with the truth.

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes.
        maps: attribution maps of a good method, (N, *S).
        shares: shares of each map that are replaced by noise, increasing.
        levels: shares of features removed, for soundness; decreasing.
        metrics: the metrics to test: names, values, or a table from names of your own to either.
        performance: performance measure of metrics requested by name.
        imputer: for metrics that have none of their own; deletion and insertion have one on images.

    Returns:
        One row per metric: Spearman's correlation of the area with the share that is left of the map (1 is right, -1
        upside down; NaN where the area never changes), then the area at each share, "share 0.2" and so on. Soundness by
        the paper's estimator is taken up to the highest performance that all versions reach.

    Example:
        >>> from twinlens.laboratory.tasks import sparse_linear
        >>> task = sparse_linear(20, features=40)
        >>> result = selftest(task.model, task.inputs, task.labels, task.information, imputer=task.imputer)
        >>> result.set_index("metric")["correlation"]["road_morf"]
        np.float64(1.0)
    """
    prober = Prober(model, inputs, labels, **how)
    first, neighbours = prober.rank(maps), prober.inputs.dim() > 2
    good, features = first.maps, first.features
    found = find_metrics(metrics, {"levels": levels, "performance": performance})
    tested = {
        # Without neighbours there is no blur, and one filling serves all metrics.
        name: metric.bound(imputer, neighbours=True)
        if neighbours
        else replaced(metric, {"imputer": metric.imputer or imputer}, name)
        for name, metric in found.items()
    }
    needed = merge_sweeps(sweep for metric in tested.values() for sweep in metric.sweeps(features))
    curves: dict[str, dict[float, Curve]] = {}
    for share in shares:
        ranked = prober.rank(degrade(good, share, ids=prober.ids, seed=prober.how["seed"]))
        tables = {sweep.kind(): prober.sweep(ranked, sweep.schedule, sweep.imputer) for sweep in needed}
        for name, metric in tested.items():
            read = [tables[sweep.kind()].join_levels(levels=sweep.schedule.levels) for sweep in metric.sweeps(features)]
            curves.setdefault(name, {})[share] = metric.read(read)
    return rank_degraded(curves)


def rank_degraded(curves: Mapping[str, Mapping[float, Curve]]) -> pd.DataFrame:
    """Correlate each metric's ranking of degraded maps with the share that was replaced by noise.

    Args:
        curves: from the metric's name to its curve for each degraded share.

    Returns:
        As `selftest`.
    """
    rows = []
    for metric, by_share in curves.items():
        measured = [curve.in_steps() for curve in by_share.values()]  # of equal levels: to extrapolate would add noise
        by_level = any(curve.by_predictive_level for curve in measured)
        top = np.array([min(float(curve.performance.max()) for curve in measured)]) if by_level else None
        areas = [float(curve.areas(curve.performance[None], curve.values[None], top)[0]) for curve in measured]
        scores = np.array(areas) * (1 if measured[0].higher_is_better else -1)
        changes = np.isfinite(scores).all() and np.ptp(scores) > 0
        correlation = float(spearmanr(scores, [-share for share in by_share])[0]) if changes else float("nan")
        columns = {f"share {share:g}": area for share, area in zip(by_share, areas, strict=True)}
        rows.append({"metric": metric, "correlation": correlation} | columns)
    return pd.DataFrame(rows)
