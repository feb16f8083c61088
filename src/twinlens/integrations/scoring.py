"""What the integrations share: a metric from keywords, and one score per sample from its curve.

Other libraries score each sample by itself, often a few at a time. So the defaults differ from those of `twinlens`:
soundness judges from two sides, and everything else is a loss of probability. The score of a sample then depends on
that sample alone.

Shapes: N samples.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from twinlens.errors import unknown
from twinlens.metrics.curves import Curve
from twinlens.metrics.metric import Metric
from twinlens.metrics.removal import Completeness, Deletion, Insertion, Road
from twinlens.metrics.soundness import Soundness
from twinlens.probing.probe import ProbeOptions
from twinlens.support.arrays import Floats
from twinlens.support.fields import Field, fields_of, replaced
from twinlens.support.signatures import show_options

T = TypeVar("T", bound=Callable[..., Any])

BY_SAMPLE: dict[str, Metric] = {
    "soundness": Soundness(estimator="two_sided"),
    "completeness": Completeness(performance="probability"),
    "road": Road(performance="probability"),
    "deletion": Deletion(performance="probability"),
    "insertion": Insertion(performance="probability"),
}
"""Every kind of metric, with defaults that score a sample by itself."""

HOW = ("sign", "channels", "resize", "seed", "batch_size")
"""The options of `twinlens.probe` that all integrations take."""

_OF_THE_DATA_SET = ("balanced_accuracy", "r2", "neg_mse")


def options_of(kind: str, how: Sequence[str] = HOW) -> list[Field]:
    """List the options of a kind of metric, and those of `twinlens.probe` that `how` names."""
    metric = BY_SAMPLE[kind]
    own = [dataclasses.replace(field, default=getattr(metric, field.name)) for field in fields_of(type(metric))]
    return own + [field for field in fields_of(ProbeOptions) if field.name in how]


def offers(kind: str, how: Sequence[str] = HOW) -> Callable[[T], T]:
    """List a metric's options in the signature and docstring of a class or function, in the place of `**options`."""

    def decorate(function: T) -> T:
        show_options(function, options_of(kind, how), instead_of="options")
        return function

    return decorate


def split_options(kind: str, options: Mapping[str, Any], how: Sequence[str] = HOW) -> tuple[Metric, ProbeOptions]:
    """Return the metric, and how it probes a model, from the keywords of both.

    Example:
        >>> metric, how = split_options("soundness", {"epsilon": 0.02, "sign": "positive"})
        >>> metric.epsilon, metric.estimator, how
        (0.02, 'two_sided', {'sign': 'positive'})
        >>> split_options("soundness", {"epsilom": 0.02})
        Traceback (most recent call last):
            ...
        ValueError: `options` must be one of epsilon, estimator, extrapolate, performance, levels, imputer, protocol,
        sign, channels, resize, seed, batch_size; got 'epsilom'. Did you mean 'epsilon'?
    """
    known = [field.name for field in options_of(kind, how)]
    for name in options:
        if name not in known:
            raise unknown("options", name, known)
    probing = ProbeOptions(**{name: value for name, value in options.items() if name in how})  # type: ignore[typeddict-item]
    own = {name: value for name, value in options.items() if name not in how}
    return replaced(BY_SAMPLE[kind], own, "options"), probing


def check_by_sample(metric: Metric) -> None:
    """Refuse a loss of performance that no single sample has, before any work.

    Example:
        >>> check_by_sample(Completeness(performance="balanced_accuracy"))
        Traceback (most recent call last):
            ...
        ValueError: `performance` must be one that each sample has, such as 'probability', 'logit' or 'accuracy', or a
        function from the probe table to (samples, levels); 'balanced_accuracy' is one of the data set as a whole.
    """
    if not isinstance(metric, Soundness) and metric.performance in _OF_THE_DATA_SET:
        raise _no_score(str(metric.performance))


def as_class(value: object) -> int | None:
    """Return a class as a number, whichever type of whole number it is; None for anything else.

    Example:
        >>> import torch
        >>> as_class(3), as_class(torch.tensor(3)), as_class(3.0), as_class((3, 1))
        (3, 3, None, None)
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def scores_of(curve: Curve) -> Floats:
    """Return the score (N,) of each sample; NaN where it has none, as the soundness of a map of zeros."""
    scores = curve.area_per_sample()
    if scores is None:
        raise _no_score(curve.measure)
    return scores


def _no_score(measure: str) -> ValueError:
    return ValueError(
        "`performance` must be one that each sample has, such as 'probability', 'logit' or 'accuracy', or a function "
        f"from the probe table to (samples, levels); {measure!r} is one of the data set as a whole."
    )
