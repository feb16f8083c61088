"""Arrays as callers pass them and as tables hold them."""

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


def as_tensor(values: ArrayLike | Sequence[Any], name: str) -> Tensor:
    """Turn what a caller passed as argument `name` into a tensor, sharing memory where that is possible.

    Example:
        >>> as_tensor([1.0, 2.0], "maps")
        tensor([1., 2.], dtype=torch.float64)
    """
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` must hold real numbers; got {type(values).__name__} of dtype {array.dtype}.")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    # torch wants native byte order, no negative strides, and warns about memory that it may not write to.
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    shareable = native.flags.writeable and all(step >= 0 for step in native.strides)
    return torch.from_numpy(native if shareable else native.copy())
