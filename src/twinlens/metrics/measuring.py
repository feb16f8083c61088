"""The metrics as functions of a model: probe it, then read the curve.

Each function takes the options of its metric and of `twinlens.probe`; `measure_metric` does the same for any metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

from twinlens.imputation.imputers import BlurImputer, ConstantImputer, Imputer, LinearImputer
from twinlens.metrics.curves import CompletenessCurve, Curve, RemovalCurve
from twinlens.metrics.estimators import opposite_schedule
from twinlens.metrics.metric import Metric
from twinlens.metrics.performance import Performance
from twinlens.metrics.protocols import Protocol
from twinlens.metrics.removal import SHARES, THRESHOLDS, Completeness, Deletion, Insertion, Road
from twinlens.metrics.soundness import Soundness
from twinlens.metrics.soundness_curve import SoundnessCurve
from twinlens.probing.model_call import Labels, Model
from twinlens.probing.probe import ProbeOptions, Prober, RankedMaps
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike
from twinlens.support.signatures import lists_options

_LEVELS_BETWEEN_LOOKS = 8  # levels probed before performance is compared with `stop_at`


@checked
@lists_options()
def measure_metric(
    metric: Metric, model: Model, inputs: ArrayLike, labels: Labels, maps: ArrayLike, **how: Unpack[ProbeOptions]
) -> Curve:
    """Probe a model as a metric needs it, and read the curve.

    Args:
        metric: such as `Soundness()`.
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        maps: attribution maps, (N, *S).
    """
    return metric.read(probe_samples(metric, model, inputs, labels, maps, how))


def probe_metric(metric: Metric, prober: Prober, ranked: RankedMaps) -> list[ProbeTable]:
    """Make the probe tables that a metric reads, one per sweep."""
    return [prober.sweep(ranked, sweep.schedule, sweep.imputer) for sweep in metric.sweeps(ranked.features)]


def probe_samples(
    metric: Metric, model: Model, inputs: ArrayLike, labels: Labels, maps: ArrayLike, how: ProbeOptions
) -> list[ProbeTable]:
    """Probe a model as a metric needs it; one table per sweep."""
    prober = Prober(model, inputs, labels, imputer=metric.imputer, **how)
    return probe_metric(metric, prober, prober.rank(maps))


@checked
@lists_options(Soundness)
def soundness(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    levels: Sequence[float] | None = None,
    epsilon: float = 0.01,
    performance: Performance = "accuracy",
    estimator: Literal["paper", "two_sided"] = "paper",
    extrapolate: bool = True,
    stop_at: float | None = None,
    imputer: Imputer = LinearImputer(),
    protocol: str | Protocol = "paper",
    **how: Unpack[ProbeOptions],
) -> SoundnessCurve:
    """Measure soundness: which part of the attribution rests on features that are truly predictive?

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        maps: attribution maps, (N, *S).
        stop_at: a predictive level; the sweep ends soon after performance has reached it.

    Example:
        >>> import torch
        >>> def model(x):  # reads the first feature and no other
        ...     return torch.stack([x[:, 0], -x[:, 0]], dim=1)
        >>> x = torch.ones(4, 10)
        >>> maps = torch.tensor([3.0, 1.0] + 8 * [0.0]).expand(4, -1)
        >>> curve = soundness(model, x, [0] * 4, maps, imputer=ConstantImputer(-1.0), levels=(0.9, 0.8, 0.5))
        >>> curve.values  # a quarter of the attribution lies on a feature that gains nothing
        array([1.  , 0.75, 0.75])
    """
    metric = Soundness(
        epsilon=epsilon,
        estimator=estimator,
        extrapolate=extrapolate,
        performance=performance,
        levels=levels,
        imputer=imputer,
        protocol=protocol,
    )
    prober = Prober(model, inputs, labels, imputer=imputer, **how)
    ranked = prober.rank(maps)
    if stop_at is None:
        return metric.read(probe_metric(metric, prober, ranked))
    steps = _probe_until(stop_at, metric, prober, ranked)
    if metric.estimator == "paper":
        return metric.read([steps])
    opposite = opposite_schedule(steps.settings.schedule, ranked.features)
    return metric.read([steps, prober.sweep(ranked, opposite, imputer)])


def _probe_until(level: float, metric: Soundness, prober: Prober, ranked: RankedMaps) -> ProbeTable:
    """Probe a soundness sweep, some levels at a time, until performance has reached a predictive level."""
    [steps, *_] = metric.sweeps(ranked.features)
    shares, table = steps.schedule.levels, None
    paper = Soundness(epsilon=metric.epsilon, performance=metric.performance, protocol=metric.protocol)
    for first in range(0, len(shares), _LEVELS_BETWEEN_LOOKS):
        part = shares[first : first + _LEVELS_BETWEEN_LOOKS]
        schedule = Schedule(by="area", order="lerf", levels=part, rounding=steps.schedule.rounding)
        probes = prober.sweep(ranked, schedule, steps.imputer)
        table = probes if table is None else table.join_levels(probes)
        if paper.read([table]).reached(level):
            break
    assert table is not None  # there is at least one level
    return table


@checked
@lists_options(Completeness)
def completeness(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    relative: bool = True,
    performance: Performance = "accuracy",
    imputer: Imputer = LinearImputer(),
    protocol: str | Protocol = "paper",
    **how: Unpack[ProbeOptions],
) -> CompletenessCurve:
    """Measure completeness: how much performance is lost with the features that the map marks?

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        maps: attribution maps, (N, *S).

    Example:
        >>> import torch
        >>> def model(x):  # needs one of the first two features
        ...     z = x[:, :2].amax(dim=1)
        ...     return torch.stack([z, -z], dim=1)
        >>> x, maps = torch.ones(4, 3), torch.tensor([1.0, 0.5, 0.0]).expand(4, -1)
        >>> completeness(model, x, [0] * 4, maps, imputer=ConstantImputer(-1.0), thresholds=(0.9, 0.4)).values
        array([0., 1.])
    """
    metric = Completeness(
        thresholds=thresholds, relative=relative, performance=performance, imputer=imputer, protocol=protocol
    )
    return metric.read(probe_samples(metric, model, inputs, labels, maps, how))


@checked
@lists_options(Road)
def road(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    order: Literal["morf", "lerf"] = "morf",
    levels: Sequence[float] = SHARES,
    performance: Performance = "accuracy",
    imputer: Imputer = LinearImputer(),
    protocol: str | Protocol = "paper",
    **how: Unpack[ProbeOptions],
) -> RemovalCurve:
    """Measure ROAD (Rong et al. 2022): the loss of performance as features are removed by rank.

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        maps: attribution maps, (N, *S).

    Example:
        >>> import torch
        >>> def model(x):
        ...     return torch.stack([x[:, 0], -x[:, 0]], dim=1)
        >>> x, maps = torch.ones(4, 10), torch.arange(10.0, 0.0, -1.0).expand(4, -1)
        >>> road(model, x, [0] * 4, maps, imputer=ConstantImputer(-1.0), levels=(0.1, 0.5), order="lerf").values
        array([0., 0.])
    """
    metric = Road(
        order=order,
        levels=levels,
        performance=performance,
        imputer=imputer,
        protocol=protocol,
    )
    return metric.read(probe_samples(metric, model, inputs, labels, maps, how))


@checked
@lists_options(Deletion)
def deletion(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    levels: Sequence[float] = SHARES,
    performance: Performance = "accuracy",
    imputer: Imputer = ConstantImputer(0.0),
    protocol: str | Protocol = "paper",
    **how: Unpack[ProbeOptions],
) -> RemovalCurve:
    """Measure deletion (Samek et al. 2016, Petsiuk et al. 2018): the most relevant features go first, to a constant.

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        maps: attribution maps, (N, *S).

    Example:
        >>> import torch
        >>> def model(x):
        ...     return torch.stack([x[:, 0], 0.5 + 0 * x[:, 0]], dim=1)
        >>> x, maps = torch.ones(4, 10), torch.arange(10.0, 0.0, -1.0).expand(4, -1)
        >>> deletion(model, x, [0] * 4, maps, levels=(0.1, 0.5)).values
        array([1., 1.])
    """
    metric = Deletion(levels=levels, performance=performance, imputer=imputer, protocol=protocol)
    return metric.read(probe_samples(metric, model, inputs, labels, maps, how))


@checked
@lists_options(Insertion)
def insertion(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    levels: Sequence[float] = SHARES,
    performance: Performance = "accuracy",
    imputer: Imputer = BlurImputer(),
    protocol: str | Protocol = "paper",
    **how: Unpack[ProbeOptions],
) -> RemovalCurve:
    """Measure insertion (Petsiuk et al. 2018): the most relevant features stand on a blurred input.

    At level 0.9 the tenth of the features that matters most has been inserted. The smaller the loss against the
    untouched input, the better.

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        maps: attribution maps, (N, *S).

    Example:
        >>> import torch
        >>> def model(x):
        ...     return torch.stack([x[:, 0, 5], 0.5 + 0 * x[:, 0, 5]], dim=1)
        >>> x = torch.eye(10)[5].reshape(1, 1, 10)
        >>> insertion(model, x, [0], x, levels=(0.9, 1.0)).values
        array([0., 1.])
    """
    metric = Insertion(levels=levels, performance=performance, imputer=imputer, protocol=protocol)
    return metric.read(probe_samples(metric, model, inputs, labels, maps, how))
