"""The solver of ``multigrid`` in plain torch, for tensors on an accelerator, and where nothing was compiled.

It is batched over images, coarsens down to 2×2 and eliminates there. Every operation is element by element: the result
of an image does not depend on the rest of the batch, not even in the last bit. A converged image is frozen.

Shapes: N images, C channels, H×W pixels; the arrays of an operator are (N, 1, H, W).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
# Rounding adds about eps·range·sqrt(longer³ / shorter side) where few pixels are kept, seldom more than
# this many times as much.
_ROUNDING_LIMIT = 5.0
MISSED, NOTHING_KEPT, NOT_FINITE = -1.0, -2.0, -3.0  # returned instead of an error estimate


@dataclass(frozen=True, kw_only=True)
class _Operator:
    """A coarse grid: the nine coefficients of each row, the inverse damping diagonal, the dip."""

    centre: Tensor
    around: dict[tuple[int, int], Tensor]
    inverse: Tensor
    dip: Tensor


_FORWARD = ((0, 1), (1, 0), (1, 1), (1, -1))  # east, south, southeast, southwest: half of a symmetric stencil


def _shift(x: Tensor, down: int, right: int) -> Tensor:
    """Return the neighbour at that offset, zero outside the grid."""
    h, w = x.shape[-2:]
    return pad(x, (1, 1, 1, 1))[..., 1 + down : 1 + down + h, 1 + right : 1 + right + w]


def _neighbour_sum(x: Tensor) -> Tensor:
    """Compute Σ weight·neighbour + 4 x on the finest grid: [1, 2, 1] down times [1, 2, 1] across."""
    x = pad(x, (1, 1, 1, 1))
    x = x[..., :-2, :] + x[..., 2:, :] + 2 * x[..., 1:-1, :]
    return x[..., :-2] + x[..., 2:] + 2 * x[..., 1:-1]


def _restrict(x: Tensor) -> Tensor:
    h, w = x.shape[-2:]
    x = pad(x, (1, 2 * (w // 2 + 1) - w, 1, 2 * (h // 2 + 1) - h))
    x = x[..., 1::2, :] + 0.5 * (x[..., :-1:2, :] + x[..., 2::2, :])
    return x[..., 1::2] + 0.5 * (x[..., :-1:2] + x[..., 2::2])


def _interpolate(x: Tensor, h: int, w: int) -> Tensor:
    x = torch.stack((x, 0.5 * (x + _shift(x, 1, 0))), dim=-2).flatten(-3, -2)[..., :h, :]
    return torch.stack((x, 0.5 * (x + _shift(x, 0, 1))), dim=-1).flatten(-2, -1)[..., :w]


def _split(x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return entries 2J - 1, 2J and 2J + 1 along the axis, for every coarse J."""
    n = x.shape[axis]
    ends = (1, 2 * (n // 2 + 1) - n)
    x = pad(x, ends if axis == -1 else (0, 0, *ends)).movedim(axis, 0)
    return x[:-1:2].movedim(0, axis), x[1::2].movedim(0, axis), x[2::2].movedim(0, axis)


def _fold(within: tuple[Tensor, Tensor], axis: int) -> tuple[Tensor, Tensor]:
    """Compute the Galerkin product of a symmetric tridiagonal operator along one axis: diagonal and forward part."""
    (cl, cm, cr), (el, em, er) = _split(within[0], axis), _split(within[1], axis)
    return cm + 0.25 * (cl + cr) + el + em, 0.25 * cr + 0.5 * (em + er)


def _coarsen(centre: Tensor, forward: list[Tensor], dip: Tensor) -> _Operator:
    """Compute the Galerkin product with the interpolation scaled by `dip`."""
    c = centre * dip * dip
    e, s, se, sw = (a * dip * _shift(dip, *o) for a, o in zip(forward, _FORWARD, strict=True))
    c, e = _fold((c, e), -1)
    (sl, sm, sr), (al, am, ar), (bl, bm, br) = _split(s, -1), _split(se, -1), _split(sw, -1)
    s = sm + 0.25 * (sl + sr) + 0.5 * (al + am + bm + br)
    se = 0.25 * sr + 0.5 * (am + ar)
    sw = 0.25 * sl + 0.5 * (bl + bm)
    (el, em, er), (al, am, ar), (bl, bm, br) = _split(e, -2), _split(se, -2), _split(sw, -2)
    c, s = _fold((c, s), -2)
    e = em + 0.25 * (el + er) + 0.5 * (al + am + _shift(bl + bm, 0, 1))
    se = 0.25 * er + 0.5 * (am + ar)
    sw = 0.25 * _shift(er, 0, -1) + 0.5 * (bm + br)
    return _complete(c, [e, s, se, sw])


def _complete(centre: Tensor, forward: list[Tensor]) -> _Operator:
    around = {}
    for (down, right), a in zip(_FORWARD, forward, strict=True):
        around[down, right] = a
        around[-down, -right] = _shift(a, -down, -right)
    size, total = centre, centre
    for a in around.values():
        size, total = size + a.clamp(min=0), total + a
    solved = size > 1e-5
    inverse = torch.where(solved, 1 / torch.where(solved, size, 1), 0)
    dip = torch.where(solved, (1 - total.clamp(min=0) * inverse).clamp(min=0), 0)
    return _Operator(centre=centre, around=around, inverse=inverse, dip=dip)


def _miss(a: _Operator, x: Tensor, b: Tensor) -> Tensor:
    h, w = x.shape[-2:]
    padded = pad(x, (1, 1, 1, 1))
    total = a.centre * x
    for (down, right), coefficient in a.around.items():
        total = total + coefficient * padded[..., 1 + down : 1 + down + h, 1 + right : 1 + right + w]
    return b - total


def _eliminate(a: _Operator, b: Tensor) -> Tensor:
    """Solve the coarsest grid by Gaussian elimination, one small array per matrix entry."""
    h, w = b.shape[-2:]
    points = [(i, j) for i in range(h) for j in range(w)]

    def entry(p: tuple[int, int], q: tuple[int, int]) -> Tensor:
        source = a.centre if p == q else a.around[q[0] - p[0], q[1] - p[1]]
        return source[..., p[0], p[1]]

    matrix = [[entry(p, q) for q in points] for p in points]
    right = [b[..., i, j] for i, j in points]
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
    return torch.stack(solution, dim=-1).view(*b.shape[:-2], h, w)


def _coarse_cycle(operators: list[_Operator], b: Tensor, x: Tensor | None) -> Tensor:
    """Run one cycle on the first of these grids, from x, or from zero."""
    a = operators[0]
    if len(operators) == 1:
        return _eliminate(a, b)
    x = _COARSE_DAMPING * a.inverse * b if x is None else x + _COARSE_DAMPING * a.inverse * _miss(a, x, b)
    rhs = _restrict(a.dip * _miss(a, x, b))
    correction = _coarse_cycle(operators[1:], rhs, None)
    if max(rhs.shape[-2:]) > _VISIT_ONCE:
        correction = _coarse_cycle(operators[1:], rhs, correction)
    x = x + a.dip * _interpolate(correction, *x.shape[-2:])
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
        correction = _OVERCORRECTION * self.dip * _interpolate(coarse, *x.shape[-2:])
        x = x + correction
        step = _POST * self.gain * self.miss(x)
        return x + step, correction.abs().amax((1, 2, 3)), step.abs().amax((1, 2, 3))


def _set_up(keep: Tensor, dtype: torch.dtype) -> _System:
    """Set up everything that depends on `keep` (N, 1, H, W) alone."""
    removed = (~keep).to(dtype)
    down, across = (torch.full((n,), 4, dtype=dtype, device=keep.device) for n in keep.shape[-2:])
    for side in (down, across):
        side[0] -= 1
        side[-1] -= 1
    diagonal = down[:, None] * across  # with the 4 of the pixel itself that _neighbour_sum adds
    gain = removed / (diagonal - 4).clamp(min=1)
    dip = gain * (_neighbour_sum(removed) - 4 * removed)
    ones = torch.ones_like(dip)
    operators = [_coarsen((diagonal - 4) * ones, [-2 * ones, -2 * ones, -ones, -ones], dip)]
    while max(operators[-1].dip.shape[-2:]) > 2:
        a = operators[-1]
        operators.append(_coarsen(a.centre, [a.around[o] for o in _FORWARD], a.dip))
    return _System(gain=gain, dip=dip, diagonal=diagonal, operators=operators)


def _guess(x: Tensor, weights: Tensor) -> Tensor:
    """Guess removed values from ever wider weighted means of kept ones; x is zero where a value was removed."""
    if max(x.shape[-2:]) <= 2:
        return x
    weight = _restrict(weights)
    coarse = _guess(_restrict(x) / weight.clamp(min=1), weight.clamp(max=1))
    return x + (1 - weights) * _interpolate(coarse, *x.shape[-2:])


def solve_batch(images: Tensor, keep: Tensor, tolerance: float, most_cycles: int) -> tuple[Tensor, Tensor, Tensor]:
    """Solve images (N, C, H, W), as ``multigrid_compiled.solve_images`` does."""
    kept = keep[:, None]
    low = images.masked_fill(~kept, torch.inf).amin((2, 3), keepdim=True)
    high = images.masked_fill(~kept, -torch.inf).amax((2, 3), keepdim=True)
    middle = 0.5 * low + 0.5 * high
    system = _set_up(kept, images.dtype)
    x = _guess(torch.where(kept, images - middle, 0), kept.to(images.dtype))
    zeros = torch.zeros(len(images), dtype=images.dtype, device=images.device)
    longer, shorter = max(keep.shape[1:]), min(keep.shape[1:])
    eps: float = torch.finfo(images.dtype).eps
    rounding = eps * math.sqrt(longer**3 / shorter) * (high - low).flatten(1).amax(1)
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
        x = torch.where(active[:, None, None, None], new, x)
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
