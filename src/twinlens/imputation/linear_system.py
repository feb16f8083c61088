"""The linear system of noisy linear imputation (Rong et al. 2022), and its exact solution.

Every removed feature equals the weighted mean of its neighbours. The weights are the product of the binomial kernels
[1, 2, 1] of all axes, without its centre: 1/6 for the four direct and 1/12 for the four diagonal neighbours of a pixel.
A neighbour outside the grid is dropped. Times the common denominator, the weights are integers, exact in float32.

Shapes: N samples, C channels, S = spatial shape of one to three axes, F = number of features in S, T moments.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu
from torch import Tensor


def neighbours(axes: int) -> list[tuple[tuple[int, ...], int]]:
    """List the offset and the integer weight of every neighbour on a grid with that many axes."""
    offsets = [o for o in product((-1, 0, 1), repeat=axes) if any(o)]
    return [(offset, 2 ** offset.count(0)) for offset in offsets]


@lru_cache(maxsize=8)  # a sweep asks for the same one at every sample and level
def assemble(shape: tuple[int, ...]) -> sparse.csr_array:
    """Assemble the matrix (F, F) of the whole grid: summed weights on the diagonal, -weight elsewhere.

    It is symmetric and positive semidefinite with zero row sums; dropping the rows and columns of the kept
    features leaves it positive definite if at least one is kept.
    """
    index = np.arange(np.prod(shape)).reshape(shape)
    rows, columns, weights = [], [], []
    for offset, weight in neighbours(len(shape)):
        here = tuple(slice(max(-o, 0), n - max(o, 0)) for o, n in zip(offset, shape, strict=True))
        shifted = tuple(slice(max(o, 0), n - max(-o, 0)) for o, n in zip(offset, shape, strict=True))
        rows.append(index[here].ravel())
        columns.append(index[shifted].ravel())
        weights.append(np.full(rows[-1].size, float(weight)))
    i, j, w = np.concatenate(rows), np.concatenate(columns), np.concatenate(weights)
    off = sparse.coo_array((w, (i, j)), shape=(index.size, index.size)).tocsr()
    return sparse.csr_array(sparse.diags_array(off.sum(axis=1)) - off)


def solve_direct(values: NDArray[np.floating], keep: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Fill in the removed features of one sample (C, *S) exactly, by a sparse LU factorisation in float64.

    The cost grows faster than the number of removed features: this is the ground truth for tests and the fallback of
    the iterative solver.

    Example:
        >>> solve_direct(np.array([[0.0, 9.0, 9.0, 3.0]]), np.array([True, False, False, True]))
        array([[0., 1., 2., 3.]])
    """
    kept = keep.ravel()
    if not kept.any():
        raise ValueError("`keep` must keep at least one feature of every sample; nothing is kept here.")
    filled = values.reshape(values.shape[0], -1).astype(np.float64)
    if not kept.all():
        rows = assemble(keep.shape)[~kept]
        unknown, boundary = rows[:, ~kept].tocsc(), rows[:, kept]
        factor = splu(unknown, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
        filled[:, ~kept] = factor.solve(-(boundary @ filled[:, kept].T)).T
    return filled.reshape(values.shape)


def interpolate(signals: Tensor, keep: Tensor) -> Tensor:
    """Fill in the removed moments of signals (N, C, T) exactly, like ``np.interp``, in float64 where the device has it.

    Precondition: at least one moment of every signal is kept.
    """
    wide = signals if signals.device.type == "mps" else signals.double()
    moment, last = torch.arange(keep.shape[1], device=keep.device).expand_as(keep), keep.shape[1]
    before = torch.where(keep, moment, -1).cummax(dim=1).values
    behind = torch.where(keep, moment, last).flip(1).cummin(dim=1).values.flip(1)
    left, right = torch.where(before < 0, behind, before), torch.where(behind == last, before, behind)
    share = (moment - left).to(wide) / (right - left).clamp(min=1)
    start, end = (wide.gather(2, each[:, None].expand_as(wide)) for each in (left, right))
    return start + share[:, None] * (end - start)
