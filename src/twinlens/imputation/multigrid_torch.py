"""The solver of ``multigrid`` in plain torch, for tensors on an accelerator, and where nothing was compiled.

It is batched over images, coarsens down to sides of 2 and eliminates there. Every operation is element by element: the
result of an image does not depend on the rest of the batch, not even in the last bit. A converged image is frozen.
Images and volumes share all of it but the expected rounding.

Shapes: N images or volumes, C channels, S = spatial shape of two or three axes; the arrays of an operator are
(N, 1, *S).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

# The numbers of the method; `multigrid.c` has the same.
_PRE, _POST = 1.3, 0.81  # the Chebyshev pair for [2/3, 4/3], where the finest grid's high frequencies lie
_COARSE_DAMPING = 0.9
_OVERCORRECTION = 1.05  # grid 1, visited once, removes 90 to 100 % of a smooth error: this makes it ±5 %
_VISIT_ONCE = 32  # larger coarse grids are visited twice from the grid above
# The error estimate, calibrated on true errors: what the next corrections would add, if they go on shrinking at
# the rate of the last two, plus a share of the last Jacobi step for errors that the coarse grids cannot see.
_SAFETY, _FIRST_RATE, _LEAST_RATE, _STEP_SHARE = 2.6, 0.3, 0.1, 0.3
_ROUNDING_LIMIT = 5.0  # rounding seldom adds more than this many times what `_rounding` expects
MISSED, NOTHING_KEPT, NOT_FINITE = -1.0, -2.0, -3.0  # returned instead of an error estimate

_Offset = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class _Operator:
    """A coarse grid: all coefficients of each row, the inverse damping diagonal, the dip."""

    half: dict[_Offset, Tensor]
    """The centre, and the coefficients of `_forward`."""
    around: dict[_Offset, Tensor]
    """All coefficients but the centre."""
    inverse: Tensor
    dip: Tensor

    @property
    def centre(self) -> Tensor:
        return next(iter(self.half.values()))


@cache
def _forward(axes: int) -> tuple[_Offset, ...]:
    """List half of a symmetric stencil: east, south, southeast and southwest of a pixel."""
    return tuple(o for o in product((0, 1, -1), repeat=axes) if next((step for step in o if step), 0) == 1)


def _opposite(offset: _Offset) -> _Offset:
    return tuple(-step for step in offset)


def _replaced(offset: _Offset, axis: int, step: int) -> _Offset:
    """Replace the step along one axis, counted from the end."""
    return (*offset[:axis], step, *offset[len(offset) + axis + 1 :])


def _spatial(x: Tensor) -> list[int]:
    """List the spatial axes, counted from the end."""
    return list(range(2 - x.dim(), 0))


def _pad(x: Tensor, ends: Iterable[tuple[int, int]]) -> Tensor:
    """Pad the spatial axes with zeros, by as many before and behind each as listed."""
    return pad(x, [side for both in reversed(list(ends)) for side in both])


def _shift(x: Tensor, offset: _Offset) -> Tensor:
    """Return the neighbour at that offset, zero outside the grid."""
    padded = _pad(x, [(max(-step, 0), max(step, 0)) for step in offset])
    return _window(padded, [max(step, 0) for step in offset], x.shape[2:])


def _window(x: Tensor, start: Sequence[int], shape: Sequence[int]) -> Tensor:
    index: tuple[Any, ...] = tuple(slice(first, first + side) for first, side in zip(start, shape, strict=True))
    return x[(..., *index)]


def _along(x: Tensor, axis: int, start: int, stop: int | None, step: int = 1) -> Tensor:
    """Slice along one axis, counted from the end."""
    return x[(..., slice(start, stop, step), *[slice(None)] * (-axis - 1))]


def _neighbour_sum(x: Tensor) -> Tensor:
    """Compute Σ weight·neighbour + 2^axes x on the finest grid: the product of [1, 2, 1] along all axes."""
    axes = _spatial(x)
    x = _pad(x, [(1, 1)] * len(axes))
    for axis in axes:
        x = _along(x, axis, 0, -2) + _along(x, axis, 2, None) + 2 * _along(x, axis, 1, -1)
    return x


def _restrict(x: Tensor) -> Tensor:
    axes = _spatial(x)
    x = _pad(x, [(1, 2 * (n // 2 + 1) - n) for n in x.shape[2:]])
    for axis in axes:
        x = _along(x, axis, 1, None, 2) + 0.5 * (_along(x, axis, 0, -1, 2) + _along(x, axis, 2, None, 2))
    return x


def _interpolate(x: Tensor, shape: Sequence[int]) -> Tensor:
    for axis, n in zip(_spatial(x), shape, strict=True):
        ends = [(0, int(other == axis)) for other in _spatial(x)]
        between = 0.5 * (x + _along(_pad(x, ends), axis, 1, None))
        x = _along(torch.stack((x, between), dim=axis).flatten(axis - 1, axis), axis, 0, n)
    return x


def _split(x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return entries 2J - 1, 2J and 2J + 1 along the axis, for every coarse J."""
    n = x.shape[axis]
    x = _pad(x, [(1, 2 * (n // 2 + 1) - n) if other == axis else (0, 0) for other in _spatial(x)])
    return _along(x, axis, 0, -1, 2), _along(x, axis, 1, None, 2), _along(x, axis, 2, None, 2)


def _fold(half: dict[_Offset, Tensor], axis: int) -> dict[_Offset, Tensor]:
    """Compute the Galerkin product along one axis of a symmetric operator, of which `half` is stored.

    An offset that is not stored is the opposite of one that is: its coefficient at p is that one's at p + offset.
    """
    parts = {offset: _split(x, axis) for offset, x in half.items()}
    coarse = {}
    for offset, (before, here, after) in parts.items():
        back, still, ahead = (_replaced(offset, axis, step) for step in (-1, 0, 1))
        if offset == ahead:
            crossing = parts[still][2] if still in parts else _shift(parts[_opposite(still)][2], still)
            coarse[offset] = 0.25 * crossing + 0.5 * (here + after)
        elif offset == back:
            coarse[offset] = 0.25 * parts[still][0] + 0.5 * (before + here)
        else:
            middle, joined = here + 0.25 * (before + after), parts[ahead][0] + parts[ahead][1]
            if not any(offset):
                coarse[offset] = middle + parts[ahead][0] + parts[ahead][1]
            elif back in parts:
                coarse[offset] = middle + 0.5 * (joined + parts[back][1] + parts[back][2])
            else:
                mirrored = parts[_opposite(back)]
                coarse[offset] = middle + 0.5 * (joined + _shift(mirrored[0] + mirrored[1], still))
    return coarse


def _coarsen(half: dict[_Offset, Tensor], dip: Tensor) -> _Operator:
    """Compute the Galerkin product with the interpolation scaled by `dip`."""
    half = {offset: a * dip * _shift(dip, offset) for offset, a in half.items()}
    for axis in reversed(_spatial(dip)):
        half = _fold(half, axis)
    return _complete(half)


def _complete(half: dict[_Offset, Tensor]) -> _Operator:
    around = {}
    (_, size), *forward = half.items()
    for offset, a in forward:
        around[offset] = a
        around[_opposite(offset)] = _shift(a, _opposite(offset))
    total = size
    for a in around.values():
        size, total = size + a.clamp(min=0), total + a
    solved = size > 1e-5
    inverse = torch.where(solved, 1 / torch.where(solved, size, 1), 0)
    dip = torch.where(solved, (1 - total.clamp(min=0) * inverse).clamp(min=0), 0)
    return _Operator(half=half, around=around, inverse=inverse, dip=dip)


def _miss(a: _Operator, x: Tensor, b: Tensor) -> Tensor:
    padded = _pad(x, [(1, 1)] * (x.dim() - 2))
    total = a.centre * x
    for offset, coefficient in a.around.items():
        total = total + coefficient * _window(padded, [1 + step for step in offset], x.shape[2:])
    return b - total


def _eliminate(a: _Operator, b: Tensor) -> Tensor:
    """Solve the coarsest grid by Gaussian elimination, one small array per matrix entry."""
    points = list(product(*map(range, b.shape[2:])))

    def at(x: Tensor, index: tuple[Any, ...]) -> Tensor:
        return x[(..., *index)]

    def entry(p: _Offset, q: _Offset) -> Tensor:
        offset = tuple(y - x for x, y in zip(p, q, strict=True))
        return at(a.around[offset] if any(offset) else a.centre, p)

    matrix = [[entry(p, q) for q in points] for p in points]
    right = [at(b, p) for p in points]
    inverses = []
    for k in range(len(points)):
        pivot, whole = matrix[k][k], entry(points[k], points[k])
        regular = (whole > 1e-5) & (pivot > 1e-7 * whole)
        inverses.append(torch.where(regular, 1 / torch.where(regular, pivot, 1), 0))
        for r in range(k + 1, len(points)):
            factor = matrix[r][k] * inverses[k]
            matrix[r] = [m - factor * n for m, n in zip(matrix[r], matrix[k], strict=True)]
            right[r] = right[r] - factor * right[k]
    solution = [right[0]] * len(points)
    for k in reversed(range(len(points))):
        total = right[k]
        for q in range(k + 1, len(points)):
            total = total - matrix[k][q] * solution[q]
        solution[k] = total * inverses[k]
    return torch.stack(solution, dim=-1).view(b.shape)


def _coarse_cycle(operators: list[_Operator], b: Tensor, x: Tensor | None) -> Tensor:
    """Run one cycle on the first of these grids, from x, or from zero."""
    a = operators[0]
    if len(operators) == 1:
        return _eliminate(a, b)
    x = _COARSE_DAMPING * a.inverse * b if x is None else x + _COARSE_DAMPING * a.inverse * _miss(a, x, b)
    rhs = _restrict(a.dip * _miss(a, x, b))
    correction = _coarse_cycle(operators[1:], rhs, None)
    if max(rhs.shape[2:]) > _VISIT_ONCE:
        correction = _coarse_cycle(operators[1:], rhs, correction)
    x = x + a.dip * _interpolate(correction, x.shape[2:])
    return x + _COARSE_DAMPING * a.inverse * _miss(a, x, b)


@dataclass(frozen=True, kw_only=True)
class _System:
    """The finest grid and the operators below it."""

    gain: Tensor
    dip: Tensor
    diagonal: Tensor
    operators: list[_Operator]

    def miss(self, x: Tensor) -> Tensor:
        return _neighbour_sum(x) - self.diagonal * x

    def cycle(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run one cycle; also return the largest correction and the largest last step of every image."""
        x = x + _PRE * self.gain * self.miss(x)
        rhs = _restrict(self.dip * self.miss(x))
        coarse = _coarse_cycle(self.operators, rhs, None)
        correction = _OVERCORRECTION * self.dip * _interpolate(coarse, x.shape[2:])
        x = x + correction
        step = _POST * self.gain * self.miss(x)
        return x + step, correction.abs().flatten(1).amax(1), step.abs().flatten(1).amax(1)


def _set_up(keep: Tensor, dtype: torch.dtype) -> _System:
    """Set up everything that depends on `keep` (N, 1, *S) alone."""
    removed, axes = (~keep).to(dtype), keep.dim() - 2
    diagonal = torch.ones((), dtype=dtype, device=keep.device)
    for side in keep.shape[2:]:
        along = torch.full((side,), 4, dtype=dtype, device=keep.device)
        along[0] -= 1
        along[-1] -= 1
        diagonal = diagonal[..., None] * along  # with the 2^axes of the pixel itself that _neighbour_sum adds
    gain = removed / (diagonal - 2**axes).clamp(min=1)
    dip = gain * (_neighbour_sum(removed) - 2**axes * removed)
    ones = torch.ones_like(dip)
    finest = {offset: -(2 ** offset.count(0)) * ones for offset in _forward(axes)}
    operators = [_coarsen({(0,) * axes: (diagonal - 2**axes) * ones, **finest}, dip)]
    while max(operators[-1].dip.shape[2:]) > 2:
        operators.append(_coarsen(operators[-1].half, operators[-1].dip))
    return _System(gain=gain, dip=dip, diagonal=diagonal, operators=operators)


def _guess(x: Tensor, weights: Tensor) -> Tensor:
    """Guess removed values from ever wider weighted means of kept ones; x is zero where a value was removed."""
    if max(x.shape[2:]) <= 2:
        return x
    weight = _restrict(weights)
    coarse = _guess(_restrict(x) / weight.clamp(min=1), weight.clamp(max=1))
    return x + (1 - weights) * _interpolate(coarse, x.shape[2:])


def _rounding(keep: Tensor, dtype: torch.dtype) -> Tensor | float:
    """Return about what rounding adds to the error, over the range of an image: a number, or one per volume."""
    eps: float = torch.finfo(dtype).eps
    if keep.dim() == 3:
        longer, shorter = max(keep.shape[1:]), min(keep.shape[1:])
        return eps * math.sqrt(longer**3 / shorter)
    a, b, c = sorted(keep.shape[1:], reverse=True)
    across = keep.flatten(1).sum(1).clamp(min=1).to(dtype) ** (1 / 3)
    return eps * (a * a + a * b + a * b * c / across) / math.sqrt(a * b * c)


def solve_batch(images: Tensor, keep: Tensor, tolerance: float, most_cycles: int) -> tuple[Tensor, Tensor, Tensor]:
    """Solve images or volumes (N, C, *S), as ``multigrid_compiled.solve_images`` does."""
    kept, axes = keep[:, None], tuple(_spatial(images))
    low = images.masked_fill(~kept, torch.inf).amin(axes, keepdim=True)
    high = images.masked_fill(~kept, -torch.inf).amax(axes, keepdim=True)
    middle = 0.5 * low + 0.5 * high
    system = _set_up(kept, images.dtype)
    x = _guess(torch.where(kept, images - middle, 0), kept.to(images.dtype))
    zeros = torch.zeros(len(images), dtype=images.dtype, device=images.device)
    rounding = _rounding(keep, images.dtype) * (high - low).flatten(1).amax(1)
    trivial = keep.flatten(1).all(1) | (low == high).flatten(1).all(1)
    finite = (images.isfinite() | ~kept).flatten(1).all(1)
    estimate = torch.where(trivial, 0, zeros + MISSED)
    estimate = torch.where(finite, estimate, NOT_FINITE)
    estimate = torch.where(keep.flatten(1).any(1), estimate, NOTHING_KEPT)
    active = (estimate == MISSED) & (_ROUNDING_LIMIT * rounding <= tolerance)
    cycles, before, previous = zeros.long(), zeros + torch.inf, zeros + torch.inf
    for cycle in range(1, most_cycles + 1):
        if not active.any():
            break
        new, correction, step = system.cycle(x)
        x = torch.where(active.view(-1, *[1] * (x.dim() - 1)), new, x)
        rate = torch.maximum(correction / previous.clamp(min=1e-30), (correction / before.clamp(min=1e-30)).sqrt())
        rate = rate.clamp(_LEAST_RATE if cycle > 2 else _FIRST_RATE, 0.95)
        error = _SAFETY * (correction * rate / (1 - rate) + _STEP_SHARE * step) + rounding
        before, previous = previous, correction
        cycles = torch.where(active, cycle, cycles)
        good = active & (error <= tolerance) if cycle > 1 else torch.zeros_like(active)
        estimate = torch.where(good, error, estimate)
        active = active & ~good
    filled = torch.minimum(torch.maximum(x + middle, low), high)
    return torch.where(kept, images, filled), cycles.cpu(), estimate.double().cpu()
