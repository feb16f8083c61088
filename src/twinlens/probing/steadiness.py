"""Whether a model has one answer to an input: asked twice, alone and in a batch.

Shapes: B inputs, K outputs for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

_ROUNDING = {"cpu": 1e-4}  # relative to the largest output
_COARSE = 2e-2  # elsewhere, and in half precision
_UNUSABLE = 0.1


def check_steady(ask: Callable[[Tensor], Tensor], inputs: Tensor, *, coarse: bool) -> float:
    """Return the largest relative difference between answers (B, K) to the same inputs.

    A difference beyond rounding is a warning, and a large one an error. `coarse` is for models in half precision.
    """
    together = ask(inputs)
    alone = torch.cat([ask(inputs[:1]), ask(inputs[-1:])])
    differences = {
        "when asked again": _difference(ask(inputs), together),
        "alone than in a batch": _difference(alone, together[[0, -1]]),
    }
    when = max(differences, key=lambda kind: differences[kind])
    size, rounding = differences[when], _COARSE if coarse else _ROUNDING.get(together.device.type, _COARSE)
    if size > rounding:
        message = (
            f"`model` gives other answers to the same input {when}: they differ by {size:.2g} of its largest output. "
            "Probes then depend on chance or on the batch. Turn off dropout, noise and statistics of the batch."
        )
        if size > _UNUSABLE:
            raise ValueError(message)
        warnings.warn(message, stacklevel=2)
    return size


def _difference(one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        return float("inf")
    scale = other.abs().max().clamp(min=1e-12)
    return float(((one - other).abs().max() / scale).nan_to_num(0.0))
