"""Correlation of rows, by values and by ranks. SciPy has both, but not for many rows at once with NaN for constants.

Shapes: N rows of F values, M vectors of each row.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from twinlens.support.arrays import Floats


def pearson(one: Floats, other: Floats) -> Floats:
    """Correlation (N,) of rows (N, F); NaN for a constant row."""
    a, b = (values - values.mean(axis=1, keepdims=True) for values in (one, other))
    lengths = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    constant = (np.ptp(one, axis=1) == 0) | (np.ptp(other, axis=1) == 0)
    correlation = np.full(len(a), np.nan)
    np.divide((a * b).sum(axis=1), lengths, out=correlation, where=~constant & (lengths > 0))
    return correlation


def spearman(one: Floats, other: Floats) -> Floats:
    """Rank correlation (N,) of rows (N, F), equal values sharing their mean rank; NaN for a constant row."""
    from scipy.stats import rankdata  # noqa: PLC0415 (takes half a second, and few programs rank)

    return pearson(rankdata(one, axis=1), rankdata(other, axis=1))


def mean_rank_correlation(vectors: Tensor) -> Floats:
    """Mean rank correlation (N,) over all pairs of the M vectors (N, M, F) of a row; ties have any order.

    Example:
        >>> import torch
        >>> mean_rank_correlation(torch.tensor([[[1.0, 2.0, 9.0], [3.0, 2.0, 1.0]]]))
        array([-1.])
    """
    ranks = vectors.argsort(dim=2).argsort(dim=2).double()
    centred = ranks - ranks.mean(dim=2, keepdim=True)
    unit = centred / centred.norm(dim=2, keepdim=True).clamp(min=1e-12)
    products = unit @ unit.transpose(1, 2)
    count = vectors.shape[1]
    pairs = products.sum(dim=(1, 2)) - products.diagonal(dim1=1, dim2=2).sum(dim=1)
    return np.asarray((pairs / (count * (count - 1))).numpy())
