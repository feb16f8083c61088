"""What the integrations share: a metric from keywords, and one score per sample from its curve.

Other libraries score each sample by itself. Soundness and completeness are therefore the headline pair by
default, a rank and a share; everything else is a loss of probability.

Shapes: N samples.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from twinlens.metrics.curves import Curve
from twinlens.metrics.measuring import options_of, split_options
from twinlens.metrics.metric import Metric
from twinlens.metrics.removal import Completeness, Deletion, Insertion, Road
from twinlens.metrics.soundness import Soundness
from twinlens.probing.probe import ProbeOptions
from twinlens.support.arrays import Floats
from twinlens.support.signatures import show_options

T = TypeVar("T")

BY_SAMPLE: dict[str, Metric] = {
    "soundness": Soundness(estimator="rank"),
    "completeness": Completeness(estimator="share", performance="probability"),
    "road": Road(performance="probability"),
    "deletion": Deletion(performance="probability"),
    "insertion": Insertion(performance="probability"),
}
"""Every kind of metric, with defaults that score a sample by itself."""

SUMMARIES = {
    "soundness": "How often attribution lies on features that matter more than others: 0.5 by chance, 1 is best.",
    "completeness": "Share of the predictive information on the first features of the map: 0.5 by chance, 1 is best.",
    "road": "Probability lost as features are removed by rank and imputed linearly (ROAD).",
    "deletion": "Probability lost as the most relevant features become a constant first; more is better.",
    "insertion": "Probability still lost as the most relevant features enter a blurred input first; less is better.",
}

HOW = ("sign", "channels", "resize", "seed", "batch_size")
"""The options of `twinlens.probe` that all integrations take."""

_OF_THE_DATA_SET = ("balanced_accuracy", "r2", "neg_mse")


def metric_classes(base: type[T]) -> list[type[T]]:
    """Return a subclass of `base` for every kind of metric, with its name, docstring and signature.

    The subclass has the attribute `kind`; options of the metric are listed instead of `**options`.
    """
    classes = []
    for kind, summary in SUMMARIES.items():
        members = {"kind": kind, "__doc__": summary, "__module__": base.__module__}
        classes.append(type(kind.capitalize(), (base,), members))
        show_options(classes[-1], options_of(BY_SAMPLE[kind], HOW), instead_of="options")
    return classes


def sample_metric(kind: str, options: Mapping[str, Any], how: Sequence[str] = HOW) -> tuple[Metric, ProbeOptions]:
    """Return the metric and the options of `twinlens.probe`; refuse a metric that gives no score per sample.

    Example:
        >>> metric, how = sample_metric("soundness", {"steps": 10, "sign": "positive"})
        >>> metric.estimator, how
        ('rank', {'sign': 'positive'})
        >>> sample_metric("road", {"performance": "r2"})
        Traceback (most recent call last):
            ...
        ValueError: `performance` must be one that each sample has, such as 'probability', 'logit' or 'accuracy', or a
        function from the probe table to (samples, levels); 'r2' is one of the data set as a whole.
    """
    metric, probing = split_options(BY_SAMPLE[kind], options, how)
    if metric.needs_performance and metric.performance in _OF_THE_DATA_SET:
        raise _no_score(str(metric.performance))
    return metric, probing


def as_class(value: object) -> int | None:
    """Return a class as a number, for any integer type; None for anything else."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def scores_of(curve: Curve) -> Floats:
    """Return the score (N,) of each sample; NaN where it is not defined, as the soundness of a map of zeros."""
    scores = curve.area_per_sample()
    if scores is None:
        raise _no_score(curve.measure)
    return scores


def _no_score(measure: str) -> ValueError:
    return ValueError(
        "`performance` must be one that each sample has, such as 'probability', 'logit' or 'accuracy', or a function "
        f"from the probe table to (samples, levels); {measure!r} is one of the data set as a whole."
    )
