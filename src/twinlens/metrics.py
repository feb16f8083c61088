"""From a probe table to curves: soundness, completeness, ROAD, deletion and insertion.

The functions named `…_from_probes` are pure functions of the table: ask the same table again under another epsilon,
protocol or measure, and no model is called. Those that take a model probe it first.

Shapes: N samples, L levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch

from twinlens.curves import CompletenessCurve, RemovalCurve, SoundnessCurve
from twinlens.imputation import BlurImputer, ConstantImputer, Imputer, LinearImputer
from twinlens.judging import Judge, check_estimator, opposite_schedule
from twinlens.maps import ArrayLike
from twinlens.ordering import Schedule
from twinlens.performance import Performance, Protocol, find_protocol, measure
from twinlens.probing import Labels, Model, probe
from twinlens.table import ProbeTable

THRESHOLDS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
AnyLoss = TypeVar("AnyLoss", CompletenessCurve, RemovalCurve)
_LEVELS_BETWEEN_LOOKS = 8  # levels probed before performance is compared with `stop_at`


def soundness_from_probes(
    table: ProbeTable,
    *,
    epsilon: float = 0.01,
    performance: Performance = "accuracy",
    protocol: str | Protocol = "paper",
    estimator: str = "paper",
    opposite: ProbeTable | None = None,
) -> SoundnessCurve:
    """Computes the progressive soundness of the paper (its Algorithm 3) from a probe table.

    Going through the levels, a step whose gain in performance stays below epsilon adds false attribution; the value
    of a level is the share of the kept attribution that is not false, averaged over the samples for which it is
    defined. With a measure of the data set the decision is one for all samples, with a measure of each sample
    ("score", "probability", "logit") each sample has its own.

    Args:
        table: probes by area, least relevant first, from the largest share removed to the smallest.
        epsilon: the gain below which a step's features are falsely attributed.
        performance: see `twinlens.performance.measure`.
        protocol: "paper", "soco", or a `Protocol`.
        estimator: "paper" judges a step by its gain in performance. "two_sided" judges it for each sample, by its
            share in the range of the sample's log-odds, and comes nearer to the truth where that is known; see
            docs/statistics.md.
        opposite: for "two_sided", probes of the same samples and maps by `twinlens.judging.opposite_schedule`.
    """
    schedule, rules = table.settings.schedule, find_protocol(protocol)
    if (schedule.by, schedule.order) != ("area", "lerf") or schedule.levels[0] < schedule.levels[-1]:
        raise ValueError(
            "`table` must hold probes by area, least relevant first, with decreasing levels; got probes "
            f"by {schedule.by}, {schedule.order}, levels {schedule.levels[0]:g} to {schedule.levels[-1]:g}."
        )
    judge = Judge(table, performance, epsilon=epsilon, protocol=rules, estimator=estimator, opposite=opposite)
    judgement = judge(np.ones(len(table)))
    return SoundnessCurve(
        levels=table.levels,
        performance=judgement.performance,
        values=judgement.values,
        measure=judge.measured.name,
        asked=performance,
        protocol=rules,
        table=table,
        epsilon=epsilon,
        estimator=estimator,
        opposite=opposite,
        per_sample=judgement.per_sample,
        judged_false=judgement.judged_false,
    )


def completeness_from_probes(
    table: ProbeTable, *, performance: Performance = "accuracy", protocol: str | Protocol = "paper"
) -> CompletenessCurve:
    """Computes the completeness of the paper (its Algorithm 4) from a probe table.

    Args:
        table: probes by value, most relevant first; the threshold 1, which removes nothing, has to be among them.
        performance: see `twinlens.performance.measure`.
        protocol: "paper", "soco", or a `Protocol`.
    """
    return _loss(CompletenessCurve, table, performance, protocol, by="value", untouched=1.0)


def removal_from_probes(
    table: ProbeTable, *, performance: Performance = "accuracy", protocol: str | Protocol = "paper"
) -> RemovalCurve:
    """Computes the loss of performance under removal by rank: ROAD, deletion and insertion.

    Args:
        table: probes by area; the share 0, which removes nothing, has to be among them.
        performance: see `twinlens.performance.measure`.
        protocol: "paper", "soco", or a `Protocol`.
    """
    return _loss(RemovalCurve, table, performance, protocol, by="area", untouched=0.0)


def _loss(
    curve: type[AnyLoss],
    table: ProbeTable,
    performance: Performance,
    protocol: str | Protocol,
    *,
    by: str,
    untouched: float,
) -> AnyLoss:
    schedule, rules = table.settings.schedule, find_protocol(protocol)
    if schedule.by != by or untouched not in schedule.levels or len(schedule.levels) < 2:
        raise ValueError(
            f"`table` must hold probes by {by}, among them level {untouched:g}, at which nothing is removed, and one "
            f"other; got probes by {schedule.by} at levels {schedule.levels}."
        )
    measured = measure(table, performance, rules)
    base = schedule.levels.index(untouched)
    mean = np.delete(measured.mean, base)
    return curve(
        levels=np.delete(table.levels, base),
        performance=mean,
        values=measured.mean[base] - mean,
        measure=measured.name,
        asked=performance,
        protocol=rules,
        table=table,
        baseline=float(measured.mean[base]),
    )


def soundness(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    levels: Sequence[float] | None = None,
    epsilon: float = 0.01,
    performance: Performance = "accuracy",
    stop_at: float | None = None,
    imputer: Imputer = LinearImputer(),
    protocol: str | Protocol = "paper",
    estimator: str = "paper",
    sign: str = "error",
    channels: str | None = None,
    output: str = "auto",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    progress: bool = False,
) -> SoundnessCurve:
    """Measures soundness: which part of the attribution rests on features that are truly predictive?

    Args:
        model: see `twinlens.probe`, as for all that is not explained here.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        maps: attribution maps, (N, *S).
        levels: shares of features removed, decreasing; those of the protocol where none are given.
        epsilon: a step that gains less performance than this adds false attribution.
        performance: what is gained; see `twinlens.performance.measure`.
        stop_at: a predictive level; the sweep ends soon after performance has reached it.
        imputer: what stands in the place of removed features.
        protocol: "paper", "soco", or a `Protocol`.
        estimator: how a step is judged, "paper" or "two_sided"; the latter calls the model twice as often. See
            `soundness_from_probes`.
        sign: what a negative attribution means.
        channels: how the channels of the maps are reduced.
        output: whether the model returns "logits" or "probabilities".
        ids: one name per sample.
        seed: seed of ties and noise.
        batch_size: rows per call of the model.
        device: where to compute.
        progress: whether to show a progress bar.

    Example:
        >>> def model(x):  # reads the first feature and no other
        ...     return torch.stack([x[:, 0], -x[:, 0]], dim=1)
        >>> x = torch.ones(4, 10)
        >>> maps = torch.tensor([3.0, 1.0] + 8 * [0.0]).expand(4, -1)
        >>> curve = soundness(model, x, [0] * 4, maps, imputer=ConstantImputer(-1.0), levels=(0.9, 0.8, 0.5))
        >>> curve.values  # a quarter of the attribution lies on a feature that gains nothing
        array([1.  , 0.75, 0.75])
    """
    rules = find_protocol(protocol)
    check_estimator(estimator)
    shares = rules.levels if levels is None else _monotone("levels", levels, decreasing=True)
    per_look = len(shares) if stop_at is None else _LEVELS_BETWEEN_LOOKS

    def sweep(schedule: Schedule) -> ProbeTable:
        return probe(
            model,
            inputs,
            labels,
            maps,
            schedule=schedule,
            imputer=imputer,
            sign=sign,
            channels=channels,
            output=output,
            ids=ids,
            seed=seed,
            batch_size=batch_size,
            device=device,
            progress=progress,
        )

    table = None
    for first in range(0, len(shares), per_look):
        part = shares[first : first + per_look]
        probes = sweep(Schedule(by="area", order="lerf", levels=part, rounding=rules.rounding))
        table = probes if table is None else table.join_levels(probes)
        curve = soundness_from_probes(table, epsilon=epsilon, performance=performance, protocol=rules)
        if stop_at is not None and curve.at(stop_at) is not None:
            break
    if estimator == "paper":
        return curve
    settings = curve.table.settings
    return soundness_from_probes(
        curve.table,
        epsilon=epsilon,
        performance=performance,
        protocol=rules,
        estimator=estimator,
        opposite=sweep(opposite_schedule(settings.schedule, math.prod(settings.spatial))),
    )


def completeness(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    performance: Performance = "accuracy",
    imputer: Imputer = LinearImputer(),
    protocol: str | Protocol = "paper",
    sign: str = "error",
    channels: str | None = None,
    output: str = "auto",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    progress: bool = False,
) -> CompletenessCurve:
    """Measures completeness: how much performance is lost with the features that the map marks?

    Args:
        model: see `twinlens.probe`, as for all that is not explained here.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        maps: attribution maps, (N, *S).
        thresholds: features above threshold × maximum of their map are removed; decreasing.
        performance: what is lost; see `twinlens.performance.measure`.
        imputer: what stands in the place of removed features.
        protocol: "paper", "soco", or a `Protocol`.
        sign: what a negative attribution means.
        channels: how the channels of the maps are reduced.
        output: whether the model returns "logits" or "probabilities".
        ids: one name per sample.
        seed: seed of ties and noise.
        batch_size: rows per call of the model.
        device: where to compute.
        progress: whether to show a progress bar.

    Example:
        >>> def model(x):  # needs one of the first two features
        ...     z = x[:, :2].amax(dim=1)
        ...     return torch.stack([z, -z], dim=1)
        >>> x, maps = torch.ones(4, 3), torch.tensor([1.0, 0.5, 0.0]).expand(4, -1)
        >>> completeness(model, x, [0] * 4, maps, imputer=ConstantImputer(-1.0), thresholds=(0.9, 0.4)).values
        array([0., 1.])
    """
    values = _monotone("thresholds", thresholds, decreasing=True)
    table = probe(
        model,
        inputs,
        labels,
        maps,
        schedule=Schedule(by="value", order="morf", levels=(1.0, *values)),
        imputer=imputer,
        sign=sign,
        channels=channels,
        output=output,
        ids=ids,
        seed=seed,
        batch_size=batch_size,
        device=device,
        progress=progress,
    )
    return completeness_from_probes(table, performance=performance, protocol=protocol)


def road(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    order: str = "morf",
    levels: Sequence[float] = SHARES,
    performance: Performance = "accuracy",
    imputer: Imputer = LinearImputer(),
    protocol: str | Protocol = "paper",
    sign: str = "error",
    channels: str | None = None,
    output: str = "auto",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    progress: bool = False,
) -> RemovalCurve:
    """Measures ROAD (Rong et al. 2022): the loss of performance as features are removed by rank.

    Args:
        model: see `twinlens.probe`, as for all that is not explained here.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        maps: attribution maps, (N, *S).
        order: "morf" removes the most relevant features first, "lerf" the least relevant.
        levels: shares of features removed, increasing.
        performance: what is lost; see `twinlens.performance.measure`.
        imputer: what stands in the place of removed features.
        protocol: "paper", "soco", or a `Protocol`.
        sign: what a negative attribution means.
        channels: how the channels of the maps are reduced.
        output: whether the model returns "logits" or "probabilities".
        ids: one name per sample.
        seed: seed of ties and noise.
        batch_size: rows per call of the model.
        device: where to compute.
        progress: whether to show a progress bar.

    Example:
        >>> def model(x):
        ...     return torch.stack([x[:, 0], -x[:, 0]], dim=1)
        >>> x, maps = torch.ones(4, 10), torch.arange(10.0, 0.0, -1.0).expand(4, -1)
        >>> road(model, x, [0] * 4, maps, imputer=ConstantImputer(-1.0), levels=(0.1, 0.5), order="lerf").values
        array([0., 0.])
    """
    shares = _monotone("levels", levels, decreasing=False)
    table = probe(
        model,
        inputs,
        labels,
        maps,
        schedule=Schedule(by="area", order=order, levels=(0.0, *shares), rounding=find_protocol(protocol).rounding),
        imputer=imputer,
        sign=sign,
        channels=channels,
        output=output,
        ids=ids,
        seed=seed,
        batch_size=batch_size,
        device=device,
        progress=progress,
    )
    return removal_from_probes(table, performance=performance, protocol=protocol)


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
    sign: str = "error",
    channels: str | None = None,
    output: str = "auto",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    progress: bool = False,
) -> RemovalCurve:
    """Measures deletion (Samek et al. 2016, Petsiuk et al. 2018): the most relevant features go first, to a constant.

    All arguments are those of `road`.

    Example:
        >>> def model(x):
        ...     return torch.stack([x[:, 0], 0.5 + 0 * x[:, 0]], dim=1)
        >>> x, maps = torch.ones(4, 10), torch.arange(10.0, 0.0, -1.0).expand(4, -1)
        >>> deletion(model, x, [0] * 4, maps, levels=(0.1, 0.5)).values
        array([1., 1.])
    """
    return road(
        model,
        inputs,
        labels,
        maps,
        order="morf",
        levels=levels,
        performance=performance,
        imputer=imputer,
        protocol=protocol,
        sign=sign,
        channels=channels,
        output=output,
        ids=ids,
        seed=seed,
        batch_size=batch_size,
        device=device,
        progress=progress,
    )


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
    sign: str = "error",
    channels: str | None = None,
    output: str = "auto",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    progress: bool = False,
) -> RemovalCurve:
    """Measures insertion (Petsiuk et al. 2018): the most relevant features stand on a blurred input.

    At level 0.9 the tenth of the features that matters most has been inserted. The smaller the loss against the
    untouched input, the better. All arguments are those of `road`.

    Example:
        >>> def model(x):
        ...     return torch.stack([x[:, 0, 5], 0.5 + 0 * x[:, 0, 5]], dim=1)
        >>> x = torch.eye(10)[5].reshape(1, 1, 10)
        >>> insertion(model, x, [0], x, levels=(0.9, 1.0)).values
        array([0., 1.])
    """
    return road(
        model,
        inputs,
        labels,
        maps,
        order="lerf",
        levels=levels,
        performance=performance,
        imputer=imputer,
        protocol=protocol,
        sign=sign,
        channels=channels,
        output=output,
        ids=ids,
        seed=seed,
        batch_size=batch_size,
        device=device,
        progress=progress,
    )


def _monotone(name: str, levels: Sequence[float], *, decreasing: bool) -> tuple[float, ...]:
    """Checks that levels move away from the one at which nothing is removed, which is not among them."""
    given = tuple(float(level) for level in levels)
    word, inside = ("decrease", "[0, 1)") if decreasing else ("increase", "(0, 1]")
    for level in given:
        if not 0 <= level <= 1 or level == (1 if decreasing else 0):
            raise ValueError(f"`{name}` must {word} within {inside}; got {level:g}.")
    for one, other in pairwise(given):
        if (one <= other) if decreasing else (one >= other):
            raise ValueError(f"`{name}` must {word} within {inside}; got {one:g} then {other:g}. Sort them.")
    if not given:
        raise ValueError(f"`{name}` must name at least one level; got none.")
    return given
