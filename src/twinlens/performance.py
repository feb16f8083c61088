"""How well the model does at each level, and the two protocols that decide by it.

Shapes: N samples, L levels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.table import Floats, ProbeTable

Performance = str | Callable[[ProbeTable], NDArray[Any]]


def percent_levels(first: int, last: int) -> tuple[float, ...]:
    """Lists levels one percent apart, first to last.

    Example:
        >>> percent_levels(98, 95)
        (0.98, 0.97, 0.96, 0.95)
    """
    return tuple(percent / 100 for percent in range(first, last - 1, -1))


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The fine print of the metrics: the paper's text and its authors' code differ in it.

    To change a single point, pass `dataclasses.replace(PROTOCOLS["paper"], start_level=0.04)`.
    """

    name: str
    """How results name the protocol."""

    levels: tuple[float, ...]
    """Shares removed in a soundness sweep, where the caller names none."""

    score: str
    """What performance="score" means: the target's "probability" or its raw "logit"."""

    strict: bool
    """Whether a step is judged false if the gain is < epsilon; otherwise, if it is <= epsilon."""

    lag: bool
    """Whether a level's value is taken before that level's own features were judged."""

    start_level: float | None
    """No step is judged while the mean performance is at most this."""

    mass_offset: float
    """Added to the attribution mass that a soundness value is divided by."""

    count_offset: float
    """Added to the number of samples that an accuracy is divided by."""

    rounding: str
    """How a share of features becomes a count: "round" or "floor"."""


PROTOCOLS = {
    "paper": Protocol(
        name="paper",
        levels=percent_levels(98, 1),
        score="probability",
        strict=True,
        lag=False,
        start_level=None,
        mass_offset=0.0,
        count_offset=0.0,
        rounding="round",
    ),
    "soco": Protocol(
        name="soco",
        levels=percent_levels(98, 3),
        score="logit",
        strict=False,
        lag=True,
        start_level=0.04,
        mass_offset=1e-6,
        count_offset=1e-6,
        rounding="floor",
    ),
}
"""`paper` follows the text of the paper, `soco` the code that its authors published."""


def find_protocol(protocol: str | Protocol) -> Protocol:
    """Gives the protocol of that name, or the one passed."""
    if isinstance(protocol, Protocol):
        return protocol
    if protocol not in PROTOCOLS:
        raise ValueError(
            f"`protocol` must be one of {', '.join(map(repr, PROTOCOLS))}, or a Protocol; got {protocol!r}."
        )
    return PROTOCOLS[protocol]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The performance at each level."""

    name: str
    """The measure."""

    mean: Floats
    """(L,) over the data set."""

    gain: Floats
    """Since the previous level: (L,) for measures of the data set, (N, L) for measures of each sample."""


def _proportion(hits: NDArray[np.bool_], name: str, protocol: Protocol) -> Measured:
    # Gains are differences of counts: a difference of two rounded quotients would miss a gain of exactly epsilon.
    counts, samples = hits.sum(axis=0), len(hits) + protocol.count_offset
    return Measured(name=name, mean=counts / samples, gain=np.diff(counts, prepend=0) / samples)


def _series(values: Floats, name: str, initial: float = 0.0) -> Measured:
    mean = values if values.ndim == 1 else values.mean(axis=0)
    return Measured(name=name, mean=mean, gain=np.diff(values, axis=-1, prepend=initial))


def _balanced_accuracy(table: ProbeTable) -> Floats:
    recalls = [table.correct[table.labels == label].mean(axis=0) for label in np.unique(table.labels)]
    return np.asarray(np.mean(recalls, axis=0))


def _squared_error(table: ProbeTable) -> Floats:
    return np.asarray(((table.predicted - table.labels[:, None]) ** 2).mean(axis=0))


def _label_variance(table: ProbeTable) -> float:
    variance = float(np.var(table.labels))
    if variance == 0:
        raise ValueError("`performance`: 'r2' and 'neg_mse' need labels that differ; all labels are equal.")
    return variance


# Each from (table, its name, protocol). A regression model that knows nothing predicts the mean label; that is where
# 'r2' and 'neg_mse' start, as accuracy and the scores start from zero.
_CLASSIFICATION: dict[str, Callable[[ProbeTable, str, Protocol], Measured]] = {
    "accuracy": lambda table, name, protocol: _proportion(table.correct, name, protocol),
    "balanced_accuracy": lambda table, name, _: _series(_balanced_accuracy(table), name),
    "probability": lambda table, name, _: _series(table.probability, name),
    "logit": lambda table, name, _: _series(table.logit, name),
    "score": lambda table, _, protocol: _series(getattr(table, protocol.score), protocol.score),
}
_REGRESSION: dict[str, Callable[[ProbeTable, str, Protocol], Measured]] = {
    "r2": lambda table, name, _: _series(1 - _squared_error(table) / _label_variance(table), name),
    "neg_mse": lambda table, name, _: _series(-_squared_error(table), name, -_label_variance(table)),
}
MEASURES = (*_CLASSIFICATION, "top<k>", *_REGRESSION)
"""The names that `performance` may have."""


def measure(table: ProbeTable, performance: Performance, protocol: Protocol) -> Measured:
    """Measures the performance at each level of the table.

    Args:
        table: the probe table.
        performance: one of `MEASURES`: "accuracy", "top5", "balanced_accuracy" (decided over the data set), "score",
            "probability", "logit" (decided for each sample), "r2", "neg_mse" (regression); or a callable from the
            table to an array (L,), decided over the data set, or (N, L), decided for each sample.
        protocol: decides what "score" means and how an accuracy is divided.
    """
    if callable(performance):
        values = np.asarray(performance(table), dtype=np.float64)
        if values.shape not in ((len(table.levels),), table.kept_mass.shape):
            raise ValueError(
                f"`performance` must return shape {(len(table.levels),)} for the data set, or {table.kept_mass.shape} "
                f"for each sample; it returned {values.shape}."
            )
        return _series(values, getattr(performance, "__name__", "custom"))
    top = re.fullmatch(r"top(\d+)", performance)
    if top and int(top[1]) > 0 and table.task == "classification":
        return _proportion(table.target_rank < int(top[1]), performance, protocol)
    measures = _CLASSIFICATION if table.task == "classification" else _REGRESSION
    if performance not in measures:
        names = ", ".join(map(repr, measures)) + (", 'top5'" if table.task == "classification" else "")
        raise ValueError(
            f"`performance` must be one of {names} for a {table.task} model, or a callable; got {performance!r}."
        )
    return measures[performance](table, performance, protocol)
