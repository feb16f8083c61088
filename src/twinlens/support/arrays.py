"""Conversion of arrays and tensors that callers pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ArrayLike = Tensor | NDArray[Any]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def check_dense(values: Tensor, name: str) -> Tensor:
    """Refuse a tensor without plain numbers in memory: sparse, nested, quantised, meta, or of 8-bit floats."""
    small_floats = values.dtype.is_floating_point and values.dtype.itemsize == 1
    for wrong, kind in (
        (values.is_nested, "nested layout"),
        (values.layout is not torch.strided, str(values.layout)),
        (values.is_meta, "device meta"),
        (values.is_quantized or small_floats, str(values.dtype)),
    ):
        if wrong:
            raise TypeError(f"`{name}` must be a dense tensor of plain numbers; got one of {kind}. Convert it.")
    return values


def as_tensor(values: ArrayLike | Sequence[Any] | float, name: str) -> Tensor:
    """Return the argument `name` as a tensor, sharing memory if possible."""
    if isinstance(values, Tensor):
        if values.is_complex():
            raise TypeError(f"`{name}` must hold real numbers; got complex ones.")
        return check_dense(values, name).detach()
    try:
        array = np.asarray(values)
    except (ValueError, RuntimeError, MemoryError):  # rows of different lengths, or an endless range
        raise TypeError(f"`{name}` must be an array of numbers, with rows of one length; got others.") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` must hold real numbers; got {type(values).__name__} of dtype {array.dtype}.")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        if array.size and array.max() > np.iinfo(np.int64).max:
            raise TypeError(f"`{name}` must hold numbers of 64 bits with a sign; got {array.max()}.")
        array = array.astype(np.int64)
    # torch needs native byte order and positive strides, and warns about read-only memory.
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    shareable = native.flags.writeable and all(step >= 0 for step in native.strides)
    return torch.from_numpy(native if shareable else native.copy())


def as_array(values: ArrayLike | Sequence[Any] | float, name: str) -> NDArray[Any]:
    """Return the argument `name` as a NumPy array, sharing memory if possible.

    Example:
        >>> as_array(torch.ones(2, dtype=torch.bfloat16), "labels")
        array([1., 1.], dtype=float32)
    """
    tensor = as_tensor(values, name).cpu()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()  # NumPy has no bfloat16
