"""How wrong are the metrics? Their values for maps of a task, beside the truth.

Shapes: N samples, L levels.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from twinlens.laboratory.tasks import Task, map_grid
from twinlens.laboratory.truth import true_completeness, true_soundness_curve, true_steps
from twinlens.metrics.calibration import Calibration
from twinlens.metrics.catalogue import MetricRequests, find_metrics
from twinlens.metrics.curves import Curve
from twinlens.metrics.metric import Metric
from twinlens.metrics.performance import weighted_mean
from twinlens.metrics.removal import Completeness, Road
from twinlens.metrics.soundness import Soundness
from twinlens.metrics.step_curve import area_under
from twinlens.probing.probe import Prober
from twinlens.support.arrays import Floats
from twinlens.support.fields import replaced

ESTIMATORS: dict[str, Metric] = {
    "soundness": Soundness(estimator="rank"),
    "soundness, paper, accuracy": Soundness(),
    "soundness, paper, score": Soundness(performance="score"),
    "soundness, soco, accuracy": Soundness(protocol="soco"),
    "soundness, soco, score": Soundness(performance="score", protocol="soco"),
    "completeness": Completeness(estimator="share"),
    "completeness, paper": Completeness(),
    "ROAD": Road(),
    "calibration": Calibration(),
}
"""The metrics to compare."""

DISTINCT = 0.01
"""Truths that differ by less are ties: maps of a task differ by this much because of the features that were drawn."""


def metric_errors(task: Task, *, metrics: MetricRequests = ESTIMATORS, seed: int = 0) -> pd.DataFrame:
    """Measure maps of a task by each metric, and compare with the truth.

    The truth of soundness as a rank, completeness as a share and calibration is the same number from exact Shapley
    values of single features. That of the paper's soundness is the share of the attribution on predictive features. The
    paper's completeness and ROAD are no shares and have no error; their truth is the share of information above each
    threshold of completeness.

    Args:
        task: the task.
        metrics: metrics to compare, as in `twinlens.evaluate`.
        seed: seed of maps, ties and noise.

    Returns:
        One row per map and metric: the value and the truth for the whole curve; "error", the mean absolute error over
        the levels of the curve; and the number of model calls per sample.

    Example:
        >>> from twinlens.laboratory.tasks import sparse_linear
        >>> errors = metric_errors(sparse_linear(30, features=50), metrics=["soundness_rank", "soundness"])
        >>> errors.groupby("metric")["error"].mean().idxmin()
        'soundness_rank'
    """
    rows, prober = [], Prober(task.model, task.inputs, task.labels, seed=seed)
    for kind, maps in map_grid(task, seed=seed).items():
        ranked = prober.rank(maps)
        for name, metric in find_metrics(metrics).items():
            sweeps = replaced(metric, {"imputer": task.imputer}, name).sweeps(maps[0].size)
            curve = metric.read([prober.sweep(ranked, sweep.schedule, sweep.imputer) for sweep in sweeps])
            calls = sum(level not in (0.0,) for sweep in sweeps for level in sweep.schedule.levels)
            described = {"task": task.name, "map": kind, "metric": name}
            rows.append(described | _compared(metric, curve, maps, task, seed) | {"calls": calls})
    return pd.DataFrame(rows)


def _compared(metric: Metric, curve: Curve, maps: Floats, task: Task, seed: int) -> dict[str, float]:
    """Return value, truth and error of one curve."""
    table, area = curve.table, curve.area()
    if metric.name == "soundness":
        true = _mean(true_soundness_curve(maps, task.predictive, table))
        return {"value": curve.values.mean(), "truth": true.mean(), "error": np.abs(curve.values - true).mean()}
    exact = true_steps(maps, task.effects, ids=table.ids, seed=seed)
    kept = (table.counts[:, None] - table.removed).astype(np.int64) - 1
    if metric.name == "soundness_rank":
        everywhere = exact.soundness()
        true, whole = np.take_along_axis(everywhere, kept, axis=1), everywhere[:, -1:]
    elif metric.name == "completeness_share":
        everywhere = exact.completeness()
        true = np.take_along_axis(everywhere, kept, axis=1)
        whole = area_under(exact.kept(), everywhere).sum(axis=1, keepdims=True)
    elif metric.name == "calibration":
        true = exact.calibration(curve.levels)
        whole = area_under(np.broadcast_to(curve.levels, true.shape), true).sum(axis=1, keepdims=True)
    else:
        above = [true_completeness(maps, task.information, threshold) for threshold in Completeness().thresholds]
        return {"value": area or 0.0, "truth": float(np.nanmean(above)), "error": np.nan}
    error = np.abs(curve.values - _mean(true)).mean()
    return {"value": np.nan if area is None else area, "truth": _mean(whole)[0], "error": error}


def _mean(values: Floats) -> Floats:
    return weighted_mean(values, np.ones(len(values)))


def rank_correlations(errors: pd.DataFrame) -> pd.DataFrame:
    """Correlate values and truths over the maps of each task.

    Returns:
        One row per task and metric: "spearman", Spearman's correlation, which ties of the truth lower at random; and
        "pairs", the share of pairs of maps in the right order minus the share in the wrong order, among pairs whose
        truths differ by at least 0.01.

    Example:
        >>> rows = {"task": "t", "metric": "m", "truth": [0.5, 0.502, 0.7], "value": [0.6, 0.5, 0.8]}
        >>> rank_correlations(pd.DataFrame(rows))[["spearman", "pairs"]].values.tolist()
        [[0.5, 1.0]]
    """
    rows = []
    for (task, metric), own in errors.groupby(["task", "metric"], sort=False):
        truth, value = own["truth"].to_numpy(), own["value"].to_numpy()
        signs = [
            np.sign((truth[a] - truth[b]) * (value[a] - value[b]))
            for a, b in combinations(range(len(own)), 2)
            if abs(truth[a] - truth[b]) >= DISTINCT
        ]
        pairs = float(np.mean(signs)) if signs else np.nan
        rows.append({"task": task, "metric": metric, "spearman": float(spearmanr(truth, value)[0]), "pairs": pairs})
    return pd.DataFrame(rows)
