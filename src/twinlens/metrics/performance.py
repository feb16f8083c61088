"""Performance measures: how well a model does at each level.

Shapes: N samples, L levels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.errors import unknown
from twinlens.metrics.protocols import Protocol
from twinlens.probing.answers import CLASSIFICATION, REGRESSION
from twinlens.probing.model_call import blaming
from twinlens.probing.probe_table import ProbeTable
from twinlens.support.arrays import Floats

Performance = str | Callable[[ProbeTable], NDArray[Any]]
Weighted = Callable[[Floats], tuple[Floats, Floats]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The performance at each level, for the data set and for any weighting of its samples."""

    name: str
    """The measure."""

    weighted: Weighted
    """From the weight of each sample (N,) to mean and gain. In a bootstrap resample, the weight is the number of times
    that a sample was drawn."""

    mean: Floats
    """(L,) over the data set."""

    gain: Floats
    """Since the previous level: (L,) for measures of the data set, (N, L) for measures of each sample."""

    per_sample: Floats | None
    """(N, L) where the mean is taken over samples; None for measures of the data set as a whole."""


def _measured(name: str, samples: int, weighted: Weighted, per_sample: Floats | None = None) -> Measured:
    mean, gain = weighted(np.ones(samples))
    return Measured(name=name, weighted=weighted, mean=mean, gain=gain, per_sample=per_sample)


def _proportion(hits: NDArray[np.bool_], name: str, protocol: Protocol) -> Measured:
    counted = hits.astype(np.float64)

    def weighted(weights: Floats) -> tuple[Floats, Floats]:
        # Gains are differences of counts: a difference of two rounded quotients would miss a gain of exactly epsilon.
        counts, samples = total(counted, weights), weights.sum() + protocol.count_offset
        return counts / samples, np.diff(counts, prepend=0.0) / samples

    return _measured(name, len(hits), weighted, counted)


def _scores(values: Floats, name: str) -> Measured:
    gain = np.diff(values, axis=1, prepend=0.0)

    def weighted(weights: Floats) -> tuple[Floats, Floats]:
        return weighted_mean(values, weights), gain

    return _measured(name, len(values), weighted, values)


def _series(of: Callable[[Floats], Floats], name: str, samples: int, start: float = 0.0) -> Measured:
    """Measure the data set by a function from weights to one number per level, which is `start` without features."""

    def weighted(weights: Floats) -> tuple[Floats, Floats]:
        series = of(weights)
        return series, np.diff(series, prepend=start)

    return _measured(name, samples, weighted)


def weighted_mean(values: Floats, weights: Floats) -> Floats:
    """Mean of each column of (N, L) over its finite values; NaN for a column without any.

    Example:
        >>> weighted_mean(np.array([[1.0, np.nan], [4.0, np.nan]]), np.array([2.0, 1.0]))
        array([ 2., nan])
    """
    defined = np.isfinite(values)
    if defined.all():
        return np.asarray(total(values, weights) / weights.sum())
    count = total(defined.astype(np.float64), weights)
    with np.errstate(invalid="ignore"):
        return np.asarray(total(np.where(defined, values, 0.0), weights) / count)


def total(values: Floats, weights: Floats) -> Floats:
    """Weighted sum of each column of (N, L)."""
    # Not by BLAS: added in the order of the samples, independent of threads and further levels to the last bit.
    return np.asarray(np.einsum("n,nl->l", weights, values))


def _balanced_accuracy(table: ProbeTable, name: str) -> Measured:
    correct = table.correct.astype(np.float64)
    members = [np.flatnonzero(table.labels == label) for label in np.unique(table.labels)]

    def of(weights: Floats) -> Floats:
        # A resample may miss a class; the mean is then over the others.
        drawn = [index for index in members if weights[index].any()]
        recalls = [total(correct[index], weights[index]) / weights[index].sum() for index in drawn]
        return np.asarray(np.mean(recalls, axis=0))

    return _series(of, name, len(table))


def _squared_error(table: ProbeTable, name: str) -> Measured:
    error, labels = (table.predicted - table.labels[:, None]) ** 2, table.labels
    variance = float(np.var(labels))
    if variance == 0:
        raise ValueError("`performance`: 'r2' and 'neg_mse' need labels that differ; all labels are equal.")
    if name == "neg_mse":
        return _series(lambda weights: -weighted_mean(error, weights), name, len(table), start=-variance)

    def r2(weights: Floats) -> Floats:
        centre = np.average(labels, weights=weights)
        spread = np.average((labels - centre) ** 2, weights=weights)
        return np.asarray(1 - weighted_mean(error, weights) / (spread if spread > 0 else np.nan))

    return _series(r2, name, len(table))


def _custom(table: ProbeTable, performance: Callable[[ProbeTable], NDArray[Any]]) -> Measured:
    with blaming("performance"):
        returned, levels = performance(table), len(table.levels)
    try:
        values = np.asarray(returned, dtype=np.float64)
    except (ValueError, TypeError, RuntimeError):
        raise TypeError(f"`performance` must return numbers; it returned {type(returned).__name__}.") from None
    name = getattr(performance, "__name__", "custom")
    if values.shape not in ((levels,), table.kept_mass.shape):
        raise ValueError(
            f"`performance` must return shape {(levels,)} for the data set, or {table.kept_mass.shape} "
            f"for each sample; it returned {values.shape}."
        )
    finite = np.isfinite(values).reshape(-1, levels).any(axis=0)
    if not finite.all():
        raise ValueError(f"`performance` must be a number at every level; at {table.levels[~finite][0]:g} it is none.")
    if values.shape != (levels,):
        return _scores(values, name)

    def of(weights: Floats) -> Floats:
        if (weights == 1).all():
            return values
        drawn = np.repeat(np.arange(len(table)), weights.astype(np.int64))
        return np.asarray(performance(table.take(drawn)), dtype=np.float64)

    return _series(of, name, len(table))


# Functions of (table, name, protocol). Without features, a regression model predicts the mean label: 'r2' and 'neg_mse'
# start from there, accuracy and the scores from zero.
_CLASSIFICATION: dict[str, Callable[[ProbeTable, str, Protocol], Measured]] = {
    "accuracy": lambda table, name, protocol: _proportion(table.correct, name, protocol),
    "balanced_accuracy": lambda table, name, _: _balanced_accuracy(table, name),
    "probability": lambda table, name, _: _scores(table.probability, name),
    "logit": lambda table, name, _: _scores(table.logit, name),
    "score": lambda table, _, protocol: _scores(getattr(table, protocol.score), protocol.score),
}
_REGRESSION: dict[str, Callable[[ProbeTable, str, Protocol], Measured]] = {
    "r2": lambda table, name, _: _squared_error(table, name),
    "neg_mse": lambda table, name, _: _squared_error(table, name),
    "score": lambda table, name, _: _scores(table.predicted, name),
}
MEASURES = (*dict.fromkeys((*_CLASSIFICATION, "top5", *_REGRESSION)),)
"""The values of `performance`; "top5" stands for "top" with any number."""
_SHARES = ("accuracy", "balanced_accuracy", "probability")
SCORES = ("probability", "logit", "score")
"""Measures that are decided for each sample by itself."""
_BY_TASK = {CLASSIFICATION: _CLASSIFICATION, REGRESSION: _REGRESSION}
_TOP = r"top([1-9][0-9]*)"


def check_performance(performance: Performance) -> Performance:
    """Return the measure as requested; refuse a name that no task has."""
    if isinstance(performance, str) and performance not in MEASURES and not re.fullmatch(_TOP, performance):
        raise unknown("performance", performance, MEASURES, or_else=", or a function of the probe table")
    return performance


def is_share(performance: Performance) -> bool:
    """Return whether a measure lies within [0, 1] for every model.

    Example:
        >>> is_share("top5"), is_share("logit")
        (True, False)
    """
    if not isinstance(performance, str):
        return False
    return performance in _SHARES or re.fullmatch(_TOP, performance) is not None


def measure(table: ProbeTable, performance: Performance, protocol: Protocol) -> Measured:
    """Measure the performance at each level of the table.

    Args:
        table: the probe table.
        performance: one of `MEASURES`: "accuracy", "top5", "balanced_accuracy" (decided over the data set), "score",
            "probability", "logit" (decided for each sample), "r2", "neg_mse" (regression, where "score" is the
            predicted value); or a callable from the table to an array (L,), decided over the data set, or (N, L),
            decided for each sample.
        protocol: decides what "score" means and how an accuracy is divided.
    """
    if callable(performance):
        return _custom(table, performance)
    check_measure(performance, table.task)
    if top := re.fullmatch(_TOP, performance):
        return _proportion(table.target_rank < int(top[1]), performance, protocol)
    return _BY_TASK[table.task][performance](table, performance, protocol)


def check_measure(performance: Performance, task: str) -> None:
    """Refuse a measure that a task does not have.

    Example:
        >>> check_measure("accuracy", "regression")
        Traceback (most recent call last):
            ...
        ValueError: `performance` must be one of r2, neg_mse, score for a regression model, or a function of the probe
        table; got 'accuracy'.
    """
    classes = task == CLASSIFICATION
    if callable(performance) or performance in _BY_TASK[task] or (classes and re.fullmatch(_TOP, performance)):
        return
    names = [*_BY_TASK[task], *(["top5"] if classes else [])]
    raise unknown("performance", performance, names, or_else=f" for a {task} model, or a function of the probe table")
