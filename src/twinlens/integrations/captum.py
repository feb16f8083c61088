"""Our metrics, in the manner of captum.metrics: functions that return one score per example.

    from twinlens.integrations.captum import soundness

    attributions = IntegratedGradients(model).attribute(inputs, target=labels)
    scores = soundness(model, inputs, attributions, target=labels, sign="positive", channels="sum")

Captum itself is not imported. Its attributions are signed and have channels, and what that means is for you to say.

Shapes: N examples, C channels, S = spatial shape.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from twinlens.errors import short_repr
from twinlens.integrations.scoring import (
    HOW,
    as_class,
    check_by_sample,
    offers,
    scores_of,
    split_options,
)
from twinlens.metrics.measuring import probe_samples
from twinlens.metrics.metric import Metric
from twinlens.probing.maps import check_ids
from twinlens.probing.model_call import evaluating
from twinlens.probing.probe import ProbeOptions
from twinlens.probing.probe_table import ProbeTable

Forward = Callable[..., Any]
Target = int | Tensor | Sequence[int] | None
_HOW = (*HOW, "ids")


class Scoring(Protocol):
    """A function in the manner of captum.metrics."""

    def __call__(
        self,
        forward_func: Forward,
        inputs: Tensor | tuple[Tensor],
        attributions: Tensor | tuple[Tensor],
        target: Target = None,
        additional_forward_args: Any = None,
        **options: Any,
    ) -> Tensor:
        """Return one score per example."""


def _function(kind: str, summary: str) -> Scoring:
    def score(
        forward_func: Forward,
        inputs: Tensor | tuple[Tensor],
        attributions: Tensor | tuple[Tensor],
        target: Target = None,
        additional_forward_args: Any = None,
        **options: Any,
    ) -> Tensor:
        """Score examples.

        Args:
            forward_func: the model, or a function, from inputs to logits (N, K).
            inputs: (N, C, *S), or (N, D) for tabular rows.
            attributions: (N, *S), (N, 1, *S), or (N, C, *S) with `channels`.
            target: the class of each example, or one class for all.
            additional_forward_args: passed to `forward_func` behind the inputs; a tensor has one row per example.
            **options: of the metric.

        Returns:
            One score per example (N,), of the type and on the device of the inputs; NaN where it is not defined, as the
            soundness of attributions that are all zero.
        """
        return _score(kind, forward_func, inputs, attributions, target, additional_forward_args, options)

    own = inspect.getdoc(score) or ""
    score.__name__ = score.__qualname__ = kind
    score.__doc__ = own.replace("Score examples.", summary).replace("    **options: of the metric.\n", "")
    return offers(kind, _HOW)(score)


soundness = _function(
    "soundness", "Share of an example's attribution that rests on predictive features; more is better."
)
completeness = _function("completeness", "Probability lost with the features that are marked; more is better.")
road = _function("road", "Probability lost as features are removed by rank and imputed linearly (ROAD).")
deletion = _function("deletion", "Probability lost as the most relevant features become a constant; more is better.")
insertion = _function("insertion", "Probability still lost as the most relevant features enter a blur; less is better.")


def _score(
    kind: str,
    forward: Forward,
    inputs: Tensor | tuple[Tensor],
    attributions: Tensor | tuple[Tensor],
    target: Target,
    additional: Any,
    options: Mapping[str, Any],
) -> Tensor:
    metric, how = split_options(kind, options, _HOW)
    check_by_sample(metric)
    given, maps = _only(inputs, "inputs"), _only(attributions, "attributions").detach()
    labels = find_classes(target, len(given))
    arguments = () if additional is None else additional if isinstance(additional, tuple) else (additional,)
    if not isinstance(forward, nn.Module) or arguments:
        how["device"] = given.device  # which the weights of a module would say
    with evaluating(forward):
        tables = _probe(metric, forward, given.detach(), labels, maps, arguments, how)
    return torch.from_numpy(scores_of(metric.read(tables))).to(given.device, given.dtype)


def _probe(
    metric: Metric,
    forward: Forward,
    inputs: Tensor,
    labels: list[int],
    maps: Tensor,
    arguments: tuple[Any, ...],
    how: ProbeOptions,
) -> list[ProbeTable]:
    if not arguments:
        return probe_samples(metric, forward, inputs, labels, maps, how)
    for argument in arguments:
        if isinstance(argument, Tensor) and (argument.dim() == 0 or len(argument) != len(inputs)):
            raise ValueError(
                f"`additional_forward_args` must have one row for each of the {len(inputs)} examples where it is a "
                f"tensor; got shape {tuple(argument.shape)}. Pass a number, or repeat it."
            )
    # One example at a time, so that every row of a call belongs to it, and its own rows of the tensors with it.
    names = check_ids(how.get("ids"), len(inputs))
    each = []
    for k, name in enumerate(names):
        own = [argument[k : k + 1] if isinstance(argument, Tensor) else argument for argument in arguments]
        alone, one = _with(forward, own), slice(k, k + 1)
        each.append(probe_samples(metric, alone, inputs[one], labels[one], maps[one], {**how, "ids": [name]}))
    return [ProbeTable.concatenate(sweep) for sweep in zip(*each, strict=True)]


def _with(forward: Forward, arguments: Sequence[Any]) -> Callable[[Tensor], Any]:
    def call(batch: Tensor) -> Any:
        rows = [a.expand(len(batch), *a.shape[1:]) if isinstance(a, Tensor) else a for a in arguments]
        return forward(batch, *rows)

    return call


def _only(given: Tensor | tuple[Tensor], name: str) -> Tensor:
    """Return the one tensor, which Captum may have put into a tuple."""
    values = given if isinstance(given, tuple) else (given,)
    if len(values) != 1 or not isinstance(values[0], Tensor) or values[0].dim() == 0:
        raise TypeError(f"`{name}` must be one tensor, because features of one kind are ranked; got {_kind(given)}.")
    return values[0]


def _kind(given: object) -> str:
    return f"a tuple of {len(given)}" if isinstance(given, tuple) else type(given).__name__


def find_classes(target: Target, count: int) -> list[int]:
    """Return the class of each example, from a target as Captum takes it.

    Example:
        >>> find_classes(3, 2), find_classes(torch.tensor([0, 1]), 2)
        ([3, 3], [0, 1])
    """
    values = target.tolist() if isinstance(target, Tensor) else target
    given = list(values) if isinstance(values, (list, range)) else [values]
    classes = [found for found in map(as_class, given * count if len(given) == 1 else given) if found is not None]
    if len(classes) != count or len(given) not in (1, count):
        raise ValueError(
            f"`target` must be a class, or one class for each of the {count} examples, because the metrics need the "
            f"logits of all classes; got {short_repr(target)}."
        )
    return classes
