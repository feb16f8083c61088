"""Numbers in few bytes, for what a page has to know about every feature."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import ArrayLike


def packed(values: ArrayLike) -> str:
    """Encode numbers from 0 to 255 in base64, one byte each; fractions are rounded.

    Example:
        >>> packed([0, 1, 254.7])
        'AAH/'
    """
    numbers = np.clip(np.rint(np.asarray(values, dtype=np.float64)), 0, 255)
    return base64.b64encode(numbers.astype(np.uint8).tobytes()).decode()


def short_number(value: float) -> float:
    """Return a number with six significant digits, about as many as float32 has.

    Example:
        >>> short_number(0.1234567891), short_number(1234567.0)
        (0.123457, 1234570.0)
    """
    return float(f"{value:.6g}")
