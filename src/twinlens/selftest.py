"""Do the metrics themselves hold, on a model of yours? Maps are made worse step by step, so that their order is known.

As in F-Fidelity (Zheng et al., ICLR 2025): a map is replaced by noise in a growing share of its features, and a metric
that measures faithfulness has to rank the results accordingly.

Shapes: N samples, S = spatial shape of a map, F features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr
from torch import Tensor

from twinlens.curves import Curve, RemovalCurve, SoundnessCurve, soundness_area
from twinlens.imputation import BlurImputer, ConstantImputer, Imputer, LinearImputer
from twinlens.judging import opposite_schedule
from twinlens.maps import ArrayLike, check_ids, check_maps, spatial_shape
from twinlens.metrics import (
    SHARES,
    THRESHOLDS,
    completeness_from_probes,
    removal_from_probes,
    soundness_from_probes,
)
from twinlens.ordering import Schedule, stream
from twinlens.performance import Performance
from twinlens.probing import Labels, Model, probe
from twinlens.table import ProbeTable

DEGRADED = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LEVELS = tuple(percent / 100 for percent in range(98, 0, -4))


def degrade(maps: ArrayLike, share: float, *, ids: Sequence[str | int] | None = None, seed: int = 0) -> Tensor:
    """Replaces a share of each map's features by noise between 0 and the map's maximum.

    Which features and which noise depends on (seed, sample id) alone, so that a larger share degrades what a smaller
    one did, and more.

    Args:
        maps: (N, *S), without negative values.
        share: between 0 and 1.
        ids: one name per sample; 0 … N-1 where none are given.
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


def selftest(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    shares: Sequence[float] = DEGRADED,
    levels: Sequence[float] = LEVELS,
    performance: Performance = "accuracy",
    imputer: Imputer = LinearImputer(),
    sign: str = "error",
    channels: str | None = None,
    output: str = "auto",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Ranks ever worse versions of a map by each metric and tells how well the ranking is that of the truth.

    Args:
        model: see `twinlens.probe`, as for all that is not explained here.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes.
        maps: attribution maps of a good method, (N, *S).
        shares: shares of each map that are replaced by noise, increasing.
        levels: shares of features removed, for soundness; decreasing.
        performance: what all metrics measure.
        imputer: of soundness, completeness and ROAD; deletion and insertion have their own on images.
        sign: what a negative attribution means.
        channels: how the channels of the maps are reduced.
        output: whether the model returns "logits" or "probabilities".
        ids: one name per sample.
        seed: seed of the degradation, of ties and of noise.
        batch_size: rows per call of the model.
        device: where to compute.
        progress: whether to show a progress bar.

    Returns:
        One row per metric: Spearman's correlation of the area with the share that is left of the map (1 is right, -1
        upside down; NaN where the area never changes), then the area at each share, "share 0.2" and so on. Soundness is
        taken up to the highest performance that all versions reach.

    Example:
        >>> from twinlens.laboratory import sparse_linear
        >>> task = sparse_linear(20, features=40)
        >>> result = selftest(task.model, task.inputs, task.labels, task.information, imputer=task.imputer)
        >>> result.set_index("metric")["correlation"]["road"]
        np.float64(1.0)
    """
    spatial, names = spatial_shape(inputs.shape), check_ids(ids, len(inputs))
    good = check_maps(maps, spatial, ids=names, sign=sign, channels=channels)
    tabular = len(inputs.shape) == 2

    def sweep(worse: Tensor, filling: Imputer, by: str, order: str, levels: Sequence[float]) -> ProbeTable:
        schedule = Schedule(by=by, order=order, levels=tuple(levels))
        return probe(
            model,
            inputs,
            labels,
            worse,
            schedule=schedule,
            imputer=filling,
            output=output,
            ids=names,
            seed=seed,
            batch_size=batch_size,
            device=device,
            progress=progress,
        )

    curves: dict[str, dict[float, Curve]] = {}
    for share in shares:
        worse = degrade(good, share, ids=names, seed=seed)
        steps = sweep(worse, imputer, "area", "lerf", levels)
        back = opposite_schedule(steps.settings.schedule, math.prod(spatial))
        opposite = sweep(worse, imputer, "area", "morf", back.levels)
        areas = (0.0, *SHARES)
        found: dict[str, Curve] = {
            "soundness": soundness_from_probes(steps, performance=performance),
            "soundness, two-sided": soundness_from_probes(
                steps, performance=performance, estimator="two_sided", opposite=opposite
            ),
            "completeness": completeness_from_probes(
                sweep(worse, imputer, "value", "morf", (1.0, *THRESHOLDS)), performance=performance
            ),
        }
        for name, filling, order in (
            ("road", imputer, "morf"),
            ("deletion", imputer if tabular else ConstantImputer(0.0), "morf"),
            ("insertion", imputer if tabular else BlurImputer(), "lerf"),
        ):
            found[name] = removal_from_probes(sweep(worse, filling, "area", order, areas), performance=performance)
        for name, curve in found.items():
            curves.setdefault(name, {})[share] = curve
    return rank_degraded(curves)


def rank_degraded(curves: Mapping[str, Mapping[float, Curve]]) -> pd.DataFrame:
    """Tells how well each metric ranks maps of which a known share was replaced by noise.

    Args:
        curves: from the metric's name to its curve for each degraded share.

    Returns:
        As `selftest`.
    """
    rows = []
    for metric, by_share in curves.items():
        measured = list(by_share.values())
        # Of insertion, and of ROAD from the least relevant end, less is better.
        less = isinstance(measured[0], RemovalCurve) and measured[0].table.settings.schedule.order == "lerf"
        top = min(float(curve.performance.max()) for curve in measured)
        areas = [
            soundness_area(curve.performance, curve.values, high=top)
            if isinstance(curve, SoundnessCurve)
            else curve.area()
            for curve in measured
        ]
        scores = np.array(areas, dtype=np.float64) * (-1 if less else 1)
        changes = np.isfinite(scores).all() and np.ptp(scores) > 0
        correlation = float(spearmanr(scores, [-share for share in by_share])[0]) if changes else float("nan")
        columns = {f"share {share:g}": area for share, area in zip(by_share, areas, strict=True)}
        rows.append({"metric": metric, "correlation": correlation} | columns)
    return pd.DataFrame(rows)
