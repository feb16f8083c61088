"""Outputs of models: where their logits are, what a single logit means, and scores computed from them.

Shapes: N samples, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

CLASSIFICATION, REGRESSION = "classification", "regression"
PLAIN = "logits"
"""A tensor (N, K)."""

SINGLE = "one logit"
"""A tensor (N, 1) or (N,): the logit of class 1 of two."""

SCORE = "score"
"""A tensor (N,) that a custom function computes from the model's output."""

Target = Callable[[Any], Tensor]
"""A function from a model's output for N inputs to one score for each of them, (N,)."""


def task_of(labels: NDArray[Any]) -> str:
    """Return the task by the type of the labels: floating-point labels mean regression, integers classification."""
    return REGRESSION if labels.dtype.kind == "f" else CLASSIFICATION


def find_logits(answer: Any) -> tuple[Any, str]:
    """Return the logits in a model's output, and where they were; other outputs are returned unchanged."""
    logits, where = answer, PLAIN
    if isinstance(getattr(answer, "logits", None), Tensor):
        logits, where = answer.logits, ".logits"
    elif isinstance(answer, Mapping):
        rows = [key for key, value in answer.items() if isinstance(value, Tensor) and value.dim() == 2]
        key = "logits" if "logits" in answer else rows[0] if len(rows) == 1 else None
        logits, where = (answer[key], f"[{key!r}]") if key is not None else (answer, PLAIN)
    elif isinstance(answer, (tuple, list)) and answer and isinstance(answer[0], Tensor):
        logits, where = answer[0], "[0]"
    if isinstance(logits, Tensor) and (logits.dim() == 1 or (logits.dim() == 2 and logits.shape[1] == 1)):
        where = SINGLE if where == PLAIN else f"{where}, {SINGLE}"
    return logits, where


def advise_on_shape(logits: object) -> str:
    """Return a sentence about outputs that are no rows of logits, with a space before it; empty for most."""
    if isinstance(logits, Tensor) and logits.dim() == 3:
        return (
            " Of a causal language model pass tl.probing.NextToken(model): the tokens that may come next are its "
            "classes."
        )
    return ""


def as_two(logit: Tensor) -> Tensor:
    """Return one logit (N,) or (N, 1) as those of two classes, (N, 2), with the same probabilities.

    Example:
        >>> as_two(torch.tensor([0.0, 2.0]))
        tensor([[-0.,  0.],
                [-1.,  1.]])
    """
    half = logit.reshape(-1) / 2
    return torch.stack([-half, half], dim=1)


def warn_of_softmax(logits: Tensor) -> None:
    """Warn where rows (N, K) that are read as logits are probabilities, as after a softmax."""
    if logits.dim() != 2 or logits.shape[1] < 2 or bool((logits < 0).any()):
        return
    if bool(((logits.sum(dim=1) - 1).abs() < 1e-4).all() and (logits.max(dim=1).values < 1).any()):
        warnings.warn(
            "`model` seems to end with a softmax: its outputs are >= 0 and sum to 1 for each input, but they are read "
            "as logits, which flattens every answer. Pass output='probabilities', or 'logits' if they are logits.",
            stacklevel=2,
        )


def score_of(answer: Any, target: Target, count: int) -> Tensor:
    """Return the scores (N, 1) that a custom function computes from an output for `count` inputs."""
    scores = target(answer)
    if not isinstance(scores, Tensor) or scores.shape not in ((count,), (count, 1)):
        what = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"`target` must return one score for each of {count} inputs, a tensor; it returned {what}.")
    return scores.reshape(-1, 1)


@contextmanager
def answering_logits(model: object, *, single: bool = False, target: Target | None = None) -> Iterator[None]:
    """Let a module return plain logits (N, K), or the scores (N, 1) of a `target`.

    With `single`, it returns two logits where it has one, of class 1 of two. Other callables and TorchScript programs
    take no hooks and stay unchanged.
    """
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        yield
        return

    def read(_: nn.Module, inputs: Any, answer: Any) -> Tensor | None:
        if target is not None:
            return score_of(answer, target, len(inputs[0]))
        logits, where = find_logits(answer)
        if where == PLAIN or not isinstance(logits, Tensor):
            return None
        if not where.endswith(SINGLE):
            return logits
        return as_two(logits) if single else logits.reshape(-1, 1)

    handle = model.register_forward_hook(read)
    try:
        yield
    finally:
        handle.remove()
