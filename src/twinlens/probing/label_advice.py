"""What to do with labels that are not one number per sample: one-hot rows, several classes, soft labels, masks.

Shapes: N samples, K classes, S = spatial shape of a mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from twinlens.support.arrays import as_array

_ROUNDING = 1e-3  # of the sum of a row of soft labels


def label_advice(labels: Any, samples: int, name: str = "labels", *, items: bool = False) -> str:
    """Return a sentence about labels of the wrong shape, with a space before it; empty if their kind is unknown.

    Args:
        labels: an array or tensor: (N, K), (N, *S), or a single number.
        samples: N.
        name: the argument: "labels", or "targets" of methods.
        items: whether they come one by one, from a data set.

    Example:
        >>> label_advice(np.eye(3), 3)
        ' They are one-hot: pass labels.argmax(1).'
    """
    values = as_array(labels, name)
    if values.size == 1 and samples > 1:
        rest = "[target]" if name == "targets" else "[label] and maps[None]"
        return f" If `inputs` is a single sample, add the batch dimension: pass inputs[None], {rest}."
    if values.ndim < 2 or len(values) != samples:
        return ""
    if values.ndim > 2:
        return _mask_advice(name)
    several = " Pass the class of each sample as one integer."
    if np.isin(values, (0, 1)).all():
        several = _several_advice(name, of_torch=isinstance(labels, Tensor), items=items)
    return _single_advice(values, name, items=items) or several


def _single_advice(values: NDArray[Any], name: str, *, items: bool) -> str | None:
    """Return what to do with rows (N, K) that stand for one class each; None for others."""
    if (values < 0).any() or (np.abs(values.sum(axis=1) - 1) > _ROUNDING).any():
        return None
    largest = "let the data set return label.argmax()" if items else f"pass {name}.argmax(1)"
    if np.isin(values, (0, 1)).all():
        return f" They are one-hot: {largest}."
    return f" They are soft labels, whose rows sum to 1: {largest}, the most likely class of each sample."


def _several_advice(name: str, *, of_torch: bool, items: bool) -> str:
    find = f"{name}.nonzero(as_tuple=True)" if of_torch else f"np.nonzero({name})"
    stacked = "stack inputs and labels, and pass " if items else "pass "
    options = "" if name == "targets" else ", with a map for each row and output='multi_label'"
    return (
        f" They are multi-hot, with several classes per sample: {stacked}one row for each class that is present, "
        f"`rows, {name} = {find}` and `inputs = inputs[rows]`{options}."
    )


def _mask_advice(name: str) -> str:
    masks = " They are masks, with a class for each position"
    if name == "targets":
        return (
            f"{masks}: let the model return one logit per class, as nn.Sequential(model, nn.AdaptiveAvgPool2d(1), "
            "nn.Flatten()) does, and pass the class to explain."
        )
    return (
        f"{masks}, and each sample needs one score: pass target=, a function of the model's output such as lambda "
        "answer: answer[:, 3].mean((1, 2)) for class 3, with performance='score', and [0] * len(inputs) as labels."
    )
