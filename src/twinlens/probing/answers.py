"""Answers of models: where their logits are, what a single one means, and scores that are made of them.

Shapes: N samples, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

CLASSIFICATION, REGRESSION = "classification", "regression"
PLAIN = "logits"
"""A tensor (N, K), which needs no reading."""

SINGLE = "one logit"
"""A tensor (N, 1) or (N,): the logit of class 1 of two."""


SCORE = "score"
"""A tensor (N,) that a function of the user's makes of what the model returns."""

Target = Callable[[Any], Tensor]
"""From what a model returns for N inputs to one score for each of them, (N,)."""


def task_of(labels: NDArray[Any]) -> str:
    """Return the kind of model by the type of its labels: values mean regression, integers are classes.

    Example:
        >>> import numpy as np
        >>> task_of(np.array([0.5, 1.5])), task_of(np.array([0, 1]))
        ('regression', 'classification')
    """
    return REGRESSION if labels.dtype.kind == "f" else CLASSIFICATION


def find_logits(answer: Any) -> tuple[Any, str]:
    """Return the tensor with the logits in what a model returned, and where it was; anything else as it is.

    Example:
        >>> find_logits({"features": torch.zeros(2, 8, 4, 4), "logits": torch.zeros(2, 3)})[1]
        "['logits']"
        >>> find_logits((torch.zeros(2, 3), torch.zeros(2, 3)))[1]
        '[0]'
        >>> find_logits(torch.zeros(2, 1))[1]
        'one logit'
    """
    found, place = answer, PLAIN
    if isinstance(getattr(answer, "logits", None), Tensor):
        found, place = answer.logits, ".logits"
    elif isinstance(answer, Mapping):
        rows = [key for key, value in answer.items() if isinstance(value, Tensor) and value.dim() == 2]
        key = "logits" if "logits" in answer else rows[0] if len(rows) == 1 else None
        found, place = (answer[key], f"[{key!r}]") if key is not None else (answer, PLAIN)
    elif isinstance(answer, (tuple, list)) and answer and isinstance(answer[0], Tensor):
        found, place = answer[0], "[0]"
    if isinstance(found, Tensor) and (found.dim() == 1 or (found.dim() == 2 and found.shape[1] == 1)):
        place = SINGLE if place == PLAIN else f"{place}, {SINGLE}"
    return found, place


def as_two(logit: Tensor) -> Tensor:
    """Return one logit (N,) or (N, 1) as those of two classes, (N, 2), with the same probabilities.

    Example:
        >>> as_two(torch.tensor([0.0, 2.0]))
        tensor([[-0.,  0.],
                [-1.,  1.]])
    """
    half = logit.reshape(-1) / 2
    return torch.stack([-half, half], dim=1)


def score_of(answer: Any, target: Target, count: int) -> Tensor:
    """Return the scores (N, 1) that a function of the user's makes of an answer about `count` inputs.

    Example:
        >>> score_of({"boxes": torch.eye(2)}, lambda answer: answer["boxes"].sum(dim=1), 2)
        tensor([[1.],
                [1.]])
    """
    found = target(answer)
    if not isinstance(found, Tensor) or found.shape not in ((count,), (count, 1)):
        what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"`target` must return one score for each of {count} inputs, a tensor; it returned {what}.")
    return found.reshape(-1, 1)


class _ReadAnswer:
    """A forward hook: turns what a model returns into logits (N, K)."""

    def __init__(self, single: bool, target: Target | None) -> None:
        self.single, self.target = single, target

    def __call__(self, _: nn.Module, inputs: Any, answer: Any) -> Tensor | None:
        if self.target is not None:
            return score_of(answer, self.target, len(inputs[0]))
        found, place = find_logits(answer)
        if place == PLAIN or not isinstance(found, Tensor):
            return None
        if not place.endswith(SINGLE):
            return found
        return as_two(found) if self.single else found.reshape(-1, 1)


@contextmanager
def answering_logits(model: object, *, single: bool = False, target: Target | None = None) -> Iterator[None]:
    """Let a module return logits (N, K), whatever they were wrapped in.

    Args:
        model: the module; anything else is left as it is, and so are programs of TorchScript, which take no hooks.
        single: return two logits where the model has one, of class 1 of two.
        target: return the scores (N, 1) that this makes of the answers instead.
    """
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        yield
        return
    handle = model.register_forward_hook(_ReadAnswer(single, target))
    try:
        yield
    finally:
        handle.remove()
