"""Our metrics with the interface of captum.metrics: functions that return one score per example.

    from twinlens.integrations.captum import soundness

    attributions = IntegratedGradients(model).attribute(inputs, target=labels)
    scores = soundness(model, inputs, attributions, target=labels, sign="positive", channels="sum")

Captum itself is not imported. Its attributions are signed and have channels: pass `sign` and `channels`.

Shapes: N examples, C channels, S = spatial shape.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.errors import short_repr
from twinlens.integrations.scoring import BY_SAMPLE, HOW, SUMMARIES, as_class, sample_metric, scores_of
from twinlens.metrics.measuring import options_of, probe_samples
from twinlens.metrics.metric import Metric
from twinlens.probing.maps import check_ids
from twinlens.probing.model_call import evaluating
from twinlens.probing.probe import ProbeOptions
from twinlens.probing.probe_table import ProbeTable
from twinlens.support.signatures import show_options

Forward = Callable[..., Any]
Target = int | Tensor | Sequence[int] | None
_HOW = (*HOW, "ids")


def _function(kind: str) -> Callable[..., Tensor]:
    def score(
        forward_func: Forward,
        inputs: Tensor | tuple[Tensor],
        attributions: Tensor | tuple[Tensor],
        target: Target = None,
        additional_forward_args: Any = None,
        **options: Any,
    ) -> Tensor:
        """Args:
            forward_func: the model, or a function, from inputs to logits (N, K).
            inputs: (N, C, *S), or (N, D) for tabular rows.
            attributions: (N, *S), (N, 1, *S), or (N, C, *S) with `channels`.
            target: the class of each example, or one class for all.
            additional_forward_args: passed to `forward_func` after the inputs; a tensor has one row per example.

        Returns:
            One score per example (N,), of the type and on the device of the inputs; NaN where it is not defined, as the
            soundness of attributions that are all zero.
        """  # noqa: D205 (the summary is added below)
        metric, how = sample_metric(kind, options, _HOW)
        samples, maps = _only(inputs, "inputs"), _only(attributions, "attributions").detach()
        labels, more = find_classes(target, len(samples)), additional_forward_args
        arguments = () if more is None else more if isinstance(more, tuple) else (more,)
        if not isinstance(forward_func, nn.Module) or arguments:
            how["device"] = samples.device  # a module has its weights there
        with evaluating(forward_func):
            tables = _probe(metric, forward_func, samples.detach(), labels, maps, arguments, how)
        return torch.from_numpy(scores_of(metric.read(tables))).to(samples.device, samples.dtype)

    score.__name__ = score.__qualname__ = kind
    score.__doc__ = f"{SUMMARIES[kind]}\n\n{inspect.getdoc(score)}"
    show_options(score, options_of(BY_SAMPLE[kind], _HOW), instead_of="options")
    return score


soundness, completeness, road, deletion, insertion = map(_function, SUMMARIES)


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
    # One example at a time: every row of a call then takes that example's rows of the tensors.
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


def _only(values: Tensor | tuple[Tensor], name: str) -> Tensor:
    """Return the one tensor, which Captum may have put into a tuple."""
    tensors = values if isinstance(values, tuple) else (values,)
    if len(tensors) != 1 or not isinstance(tensors[0], Tensor) or tensors[0].dim() == 0:
        got = f"a tuple of {len(tensors)}" if isinstance(values, tuple) else type(values).__name__
        raise TypeError(f"`{name}` must be one tensor, because features of one kind are ranked; got {got}.")
    return tensors[0]


def find_classes(target: Target, count: int) -> list[int]:
    """Return the class of each example, from a target as Captum takes it."""
    values = target.tolist() if isinstance(target, Tensor) else target
    named = list(values) if isinstance(values, (list, range)) else [values]
    classes = [label for label in map(as_class, named * count if len(named) == 1 else named) if label is not None]
    if len(classes) != count or len(named) not in (1, count):
        raise ValueError(
            f"`target` must be a class, or one class for each of the {count} examples, because the metrics need the "
            f"logits of all classes; got {short_repr(target)}."
        )
    return classes
