"""Answers of models: where their logits are, and what a single one means.

Shapes: N samples, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = "logits"
"""A tensor (N, K), which needs no reading."""

SINGLE = "one logit"
"""A tensor (N, 1) or (N,): the logit of class 1 of two."""


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


class _ReadAnswer:
    """A forward hook: turns what a model returns into logits (N, K)."""

    def __init__(self, single: bool) -> None:
        self.single = single

    def __call__(self, _: nn.Module, __: Any, answer: Any) -> Tensor | None:
        found, place = find_logits(answer)
        if place == PLAIN or not isinstance(found, Tensor):
            return None
        if not place.endswith(SINGLE):
            return found
        return as_two(found) if self.single else found.reshape(-1, 1)


@contextmanager
def answering_logits(model: object, *, single: bool = False) -> Iterator[None]:
    """Let a module return logits, whatever they were wrapped in; with `single`, two of them for one."""
    if not isinstance(model, nn.Module):
        yield
        return
    handle = model.register_forward_hook(_ReadAnswer(single))
    try:
        yield
    finally:
        handle.remove()
