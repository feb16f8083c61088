"""The metrics as functions of a model: probe it, then read the curve.

Each function takes the options of its metric and of `twinlens.probe`; `measure_metric` does the same for any metric.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from twinlens.errors import unknown
from twinlens.imputation.imputers import LinearImputer
from twinlens.metrics.curves import Curve, RemovalCurve
from twinlens.metrics.metric import Metric, PerformanceMetric
from twinlens.metrics.removal import Completeness, Deletion, Insertion, Road
from twinlens.metrics.soundness import Soundness
from twinlens.probing.model_call import Labels, Model
from twinlens.probing.probe import ProbeOptions, Prober
from twinlens.probing.probe_table import ProbeTable
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike
from twinlens.support.fields import Field, fields_of, replaced
from twinlens.support.signatures import lists_options, show_options, with_all_arguments

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Metric)

PROBE_OPTIONS = tuple(field.name for field in fields_of(ProbeOptions))
_ARGUMENTS = {
    "model": "See `twinlens.probe`.",
    "inputs": "(N, C, *S), or (N, D) for tabular rows.",
    "labels": "(N,) target classes, or target values for a regression model.",
    "maps": "Attribution maps, (N, *S).",
}


def probe_samples(
    metric: Metric, model: Model, inputs: ArrayLike, labels: Labels, maps: ArrayLike, how: ProbeOptions
) -> list[ProbeTable]:
    """Return the probe tables that a metric reads, one per sweep."""
    prober = Prober(model, inputs, labels, imputer=metric.imputer, **how)
    ranked = prober.rank(maps, part=metric.sweeps(None)[0].schedule.part)
    return [prober.sweep(ranked, sweep.schedule, sweep.imputer) for sweep in metric.sweeps(ranked.features)]


@checked
@lists_options
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


def options_of(metric: object, how: Sequence[str] = PROBE_OPTIONS) -> list[Field]:
    """List the options of a metric, its values as defaults, and those of `twinlens.probe` that `how` names."""
    own = [dataclasses.replace(field, default=getattr(metric, field.name)) for field in fields_of(type(metric))]
    return own + [field for field in fields_of(ProbeOptions) if field.name in how]


def split_options(metric: M, options: Mapping[str, Any], how: Sequence[str] = PROBE_OPTIONS) -> tuple[M, ProbeOptions]:
    """Return the metric with its own options replaced, and the options of `twinlens.probe`.

    Example:
        >>> metric, how = split_options(Soundness(), {"epsilon": 0.02, "sign": "positive"})
        >>> metric.epsilon, how
        (0.02, {'sign': 'positive'})
        >>> split_options(Deletion(), {"level": 0.5}, how=["sign"])
        Traceback (most recent call last):
            ...
        TypeError: `options` must be one of performance, imputer, protocol, levels, sign; got 'level'. Did you mean
        'levels'?
    """
    names = [field.name for field in options_of(metric, how)]
    for name in options:
        if name not in names:
            raise TypeError(str(unknown("options", name, names)))
    probing = ProbeOptions(**{name: value for name, value in options.items() if name in how})  # type: ignore[typeddict-item]
    return replaced(metric, {name: options[name] for name in options if name not in how}, "options"), probing


def _with_options(metric: PerformanceMetric) -> Callable[[F], F]:
    """List the options of a metric and of `probe` in a function's signature and docstring, instead of `**options`."""
    shown = dataclasses.replace(metric, imputer=metric.own_imputer or LinearImputer())

    def decorate(function: F) -> F:
        function.__doc__ = with_all_arguments(inspect.getdoc(function) or "", _ARGUMENTS)
        show_options(function, options_of(shown), instead_of="options")
        return function

    return decorate


@_with_options(Soundness())
def soundness(model: Model, inputs: ArrayLike, labels: Labels, maps: ArrayLike, **options: Any) -> Curve:
    """Measure soundness: which part of the attribution rests on features that are truly predictive?

    Example:
        >>> import torch
        >>> from twinlens import ConstantImputer
        >>> def model(x):  # reads the first feature and no other
        ...     return torch.stack([x[:, 0], -x[:, 0]], dim=1)
        >>> x = torch.ones(4, 10)
        >>> maps = torch.tensor([3.0, 1.0] + 8 * [0.0]).expand(4, -1)
        >>> curve = soundness(model, x, [0] * 4, maps, imputer=ConstantImputer(-1.0), levels=(0.9, 0.8, 0.5))
        >>> curve.values  # a quarter of the attribution lies on a feature that gains nothing
        array([1.  , 0.75, 0.75])
    """
    metric, how = split_options(Soundness(), options)
    return metric.read(probe_samples(metric, model, inputs, labels, maps, how))


@_with_options(Completeness())
def completeness(model: Model, inputs: ArrayLike, labels: Labels, maps: ArrayLike, **options: Any) -> Curve:
    """Measure completeness: how much performance is lost with the features that the map marks?

    Example:
        >>> import torch
        >>> from twinlens import ConstantImputer
        >>> def model(x):  # needs one of the first two features
        ...     z = x[:, :2].amax(dim=1)
        ...     return torch.stack([z, -z], dim=1)
        >>> x, maps = torch.ones(4, 3), torch.tensor([1.0, 0.5, 0.0]).expand(4, -1)
        >>> completeness(model, x, [0] * 4, maps, imputer=ConstantImputer(-1.0), thresholds=(0.9, 0.4)).values
        array([0., 1.])
    """
    metric, how = split_options(Completeness(), options)
    return metric.read(probe_samples(metric, model, inputs, labels, maps, how))


@_with_options(Road())
def road(model: Model, inputs: ArrayLike, labels: Labels, maps: ArrayLike, **options: Any) -> RemovalCurve:
    """Measure ROAD (Rong et al. 2022): the loss of performance as features are removed by rank.

    Example:
        >>> import torch
        >>> from twinlens import ConstantImputer
        >>> def model(x):
        ...     return torch.stack([x[:, 0], -x[:, 0]], dim=1)
        >>> x, maps = torch.ones(4, 10), torch.arange(10.0, 0.0, -1.0).expand(4, -1)
        >>> road(model, x, [0] * 4, maps, imputer=ConstantImputer(-1.0), levels=(0.1, 0.5), order="lerf").values
        array([0., 0.])
    """
    metric, how = split_options(Road(), options)
    return metric.read(probe_samples(metric, model, inputs, labels, maps, how))


@_with_options(Deletion())
def deletion(model: Model, inputs: ArrayLike, labels: Labels, maps: ArrayLike, **options: Any) -> RemovalCurve:
    """Measure deletion (Samek et al. 2016, Petsiuk et al. 2018): the most relevant features become a constant first.

    Example:
        >>> import torch
        >>> def model(x):
        ...     return torch.stack([x[:, 0], 0.5 + 0 * x[:, 0]], dim=1)
        >>> x, maps = torch.ones(4, 10), torch.arange(10.0, 0.0, -1.0).expand(4, -1)
        >>> deletion(model, x, [0] * 4, maps, levels=(0.1, 0.5)).values
        array([1., 1.])
    """
    metric, how = split_options(Deletion(), options)
    return metric.read(probe_samples(metric, model, inputs, labels, maps, how))


@_with_options(Insertion())
def insertion(model: Model, inputs: ArrayLike, labels: Labels, maps: ArrayLike, **options: Any) -> RemovalCurve:
    """Measure insertion (Petsiuk et al. 2018): the most relevant features enter a blurred input first.

    At level 0.9 the most relevant tenth of the features has been inserted. The smaller the loss compared with the
    original input, the better.

    Example:
        >>> import torch
        >>> def model(x):
        ...     return torch.stack([x[:, 0, 5], 0.5 + 0 * x[:, 0, 5]], dim=1)
        >>> x = torch.eye(10)[5].reshape(1, 1, 10)
        >>> insertion(model, x, [0], x, levels=(0.9, 1.0)).values
        array([0., 1.])
    """
    metric, how = split_options(Insertion(), options)
    return metric.read(probe_samples(metric, model, inputs, labels, maps, how))
