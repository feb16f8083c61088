"""Explanations of the shap library, read as maps: the contributions to the output of each sample's own class.

They are recognised by their attributes; shap is not imported.

Shapes: N samples, K outputs of a model, S = shape of one input, (D,) for tabular rows; T tokens, t without padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeGuard, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.probing.maps import Reading
from twinlens.support.arrays import ArrayLike, Floats, as_array

R = TypeVar("R", bound=Reading)
_CLOSE = 1e-4  # inputs may be rounded to float32


def is_explanation(maps: object) -> TypeGuard[Any]:
    """Return whether maps are a `shap.Explanation`."""
    attributes = ("values", "base_values", "data")
    return not isinstance(maps, (Tensor, np.ndarray)) and all(hasattr(maps, name) for name in attributes)


def read_contributions(reading: R) -> R:
    """Return how contributions are read: those of channels are summed, and negative ones dropped unless `sign` says."""
    sign = "positive" if reading.sign == "error" else reading.sign
    return dataclasses.replace(reading, sign=sign, channels=reading.channels or "sum")


def contributions_to_targets(
    explanation: Any, labels: ArrayLike, inputs: Sequence[Any] | Tensor, name: str = "maps"
) -> Tensor:
    """Return the contributions (N, *S) to the class of each label: positive where a feature speaks for it.

    With contributions to every class, (N, *S, K), those to the label are taken. Contributions to a single output,
    (N, *S), are those to class 1 of two, as of gradient boosting: what speaks for class 1 speaks against class 0. Those
    of a regression, with floating-point labels, stay as they are.

    Args:
        explanation: a `shap.Explanation` of the same samples in the same order.
        labels: (N,) explained classes, or values of a regression.
        inputs: (N, *S) what was explained, or token ids (N, T) or (N, 2, T).
        name: of the argument, in errors.

    Example:
        >>> from types import SimpleNamespace
        >>> single = SimpleNamespace(values=np.array([[0.5, -1.0], [0.5, -1.0]]), base_values=np.zeros(2), data=None)
        >>> contributions_to_targets(single, [1, 0], torch.zeros(2, 2))
        tensor([[ 0.5000, -1.0000],
                [-0.5000,  1.0000]], dtype=torch.float64)
    """
    classes, rows, data = as_array(labels, "labels"), list(explanation.values), explanation.data
    if len(rows) != len(inputs) or (isinstance(data, np.ndarray) and len(data) != len(rows)):
        raise ValueError(
            f"`{name}` is a shap explanation of {len(rows)} samples, and there are {len(inputs)}. Explain all of them, "
            "in their order."
        )
    _check_same_rows(data, inputs, name)
    tokens = as_array(inputs[0], "inputs").dtype.kind in "iu"
    maps = []
    for sample, (row, one, label) in enumerate(zip(rows, inputs, classes.tolist(), strict=True)):
        given = as_array(one, "inputs")
        kept = _positions(given) if tokens else np.ones(given.shape, dtype=bool)
        shape = (int(kept.sum()),) if tokens else given.shape
        whole = np.zeros(kept.shape)
        whole[kept] = _to_class(as_array(row, f"{name}.values"), shape, label, f"`{name}`", sample).reshape(-1)
        maps.append(torch.from_numpy(whole))
    return torch.stack(maps)


def _positions(tokens: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which positions (T,) of one sample's ids, with or without an attention mask, are no padding."""
    return tokens[1] != 0 if tokens.ndim == 2 else np.ones(tokens.shape, dtype=bool)


def _to_class(row: NDArray[Any], shape: tuple[int, ...], label: float, name: str, sample: int) -> Floats:
    """Return the contributions (*S) to one class."""
    values = row.astype(np.float64)
    if values.shape == (*shape, 1):
        values = values[..., 0]
    if values.shape == shape:
        if isinstance(label, float) or label == 1:
            return values
        if label == 0:
            return 0.0 - values
        raise ValueError(
            f"{name} explains a single output, which is that of class 1 of two; the label of sample {sample} is "
            f"{label}. Explain all classes, as with model.predict_proba, and hand over the explanation whole."
        )
    if values.shape[:-1] != shape:
        raise ValueError(
            f"{name} is a shap explanation whose values of sample {sample} have shape {values.shape}; they must have "
            f"that of the input, {shape}, or one axis more, for the classes. Explain the inputs that the model is "
            "evaluated on."
        )
    if isinstance(label, float) or not 0 <= label < values.shape[-1]:
        raise ValueError(
            f"{name} explains {values.shape[-1]} outputs; the label of sample {sample} is {label}, and must be one of "
            f"0 to {values.shape[-1] - 1}."
        )
    return np.asarray(values[..., label])


def _check_same_rows(data: Any, inputs: Sequence[Any] | Tensor, name: str) -> None:
    """Refuse an explanation of other rows, or of the same ones in another order."""
    shape = as_array(inputs[0], "inputs").shape
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "iuf" or data.shape[1:] != shape:
        return
    for sample, (theirs, one) in enumerate(zip(data, inputs, strict=True)):
        ours = as_array(one, "inputs")
        different = ~np.isclose(theirs, ours, rtol=_CLOSE, atol=0, equal_nan=True)
        if different.any():
            first = tuple(int(k) for k in np.argwhere(different)[0])
            raise ValueError(
                f"`{name}` is a shap explanation of other samples: at {(sample, *first)} it has {theirs[first]:g}, and "
                f"the input {ours[first]:g}. Explain the same samples in the same order. If they were transformed "
                "before, set explanation.data = None."
            )
