"""The compiled kernels of ``multigrid``, for tensors on the CPU.

Shapes: C channels, H×W pixels. A *plane* is one channel of one grid, flattened: rows of ``stride``
numbers with at least one zero after the last column, one zero row above and one below, and one zero in
front, so that every neighbour is a shift of the plane and whole blocks of rows are a single loop. The stride
is even, so that halving a row never crosses into the next.
"""

# Kernels are typed by numba when they are first called.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

# NaN and infinity keep their meaning: a diverging image must be seen as such and solved otherwise.
_jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})

# The numbers of the method. They stand here, and not with the torch path that shares them, because what numba
# has compiled is only recompiled when this file changes.
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
_MISSED, _NOTHING_KEPT, _NOT_FINITE = -1.0, -2.0, -3.0  # in the place of an error estimate

# Up to this share of removed pixels, and this dip, plain sweeps over them are cheaper than a cycle over all pixels.
_SCATTERED_SHARE, _SCATTERED_DIP, _MOST_SWEEPS = 0.17, 0.95, 200

_LANES = 16  # rows of large images are padded to a multiple of this, so that they begin where a cache line does
_BLOCK = 8  # rows handled at once, so that what one pass writes is still in cache when the next one reads it
_COARSEST = 16  # grids of at most this height and width are solved by factorisation
_SMALL = 64  # of images up to this height and width, grids of half that size
_CENTRE, _EAST, _SOUTH, _SOUTHEAST, _SOUTHWEST, _INVERSE, _DIP = range(7)  # the planes of a coarse operator


class _Workspace(NamedTuple):
    """The buffers of one thread. Planes of all grids follow each other in flat arrays, finest grid first."""

    layout: Any  # (grids, 5): height, width, stride, offset of the grid's first plane, size of a plane
    solution: Any
    smoothed: Any
    rhs: Any
    operator: Any  # seven planes per grid, see _CENTRE and so on
    weight: Any  # how much of a point is known, for the first guess
    finest: Any  # (4, plane): gain = removed / diagonal, dip, diagonal + 4, removed
    residual: Any  # one block of rows for each channel; of those that follow, one block each, down to `steps`
    missed: Any
    zeros: Any
    sums: Any
    changes: Any
    corrections: Any
    steps: Any
    rows: Any  # single rows
    scaled: Any  # one block of stencils, the same by odd and even columns, and after folding its columns
    odd: Any
    even: Any
    folded: Any
    band: Any  # the factorised operator of the coarsest grid and its unknowns
    column: Any
    visits: Any


def make_workspace(channels: int, height: int, width: int, dtype: Any) -> _Workspace:
    """Allocate the buffers for images of that shape and type; each thread needs its own."""
    shapes = [(height, width)]
    # Factorising 16 × 16 unknowns would be most of the work for a small image.
    enough = _COARSEST if max(height, width) > _SMALL else _COARSEST // 2
    while len(shapes) < 2 or max(shapes[-1]) > enough:
        shapes.append((shapes[-1][0] // 2 + 1, shapes[-1][1] // 2 + 1))
    layout, total = [], 0
    for h, w in shapes:
        stride = _rounded(w + 1, _LANES if max(height, width) > _SMALL else 2)
        size = _rounded((h + 3) * stride + 2)
        layout.append((h, w, stride, total, size))
        total += size
    h, w, stride, size = *shapes[-1], layout[0][2], layout[0][4]
    block = _rounded((_BLOCK + 3) * stride + 2)
    finest = _zeros((4, size), dtype, 1)
    inside = finest[2, stride + 1 : (height + 1) * stride + 1].reshape(height, stride)[:, :width]
    # [1, 2, 1] sums to 4, less 1 for every neighbour that is outside; down times across.
    down, across = (np.array([4 - (i == 0) - (i == n - 1) for i in range(n)]) for n in (height, width))
    inside[:] = down[:, None] * across
    return _Workspace(
        layout=np.array(layout, dtype=np.int64),
        **{name: _zeros((channels * total,), dtype, 1) for name in ("solution", "smoothed", "rhs")},
        operator=_zeros((7 * total,), dtype, 1),
        weight=_zeros((total,), dtype, 1),
        finest=finest,
        **{
            name: _zeros((block,), dtype, name == "sums")
            for name in ("missed", "zeros", "sums", "changes", "corrections", "steps")
        },
        residual=_zeros((channels, block), dtype, 0),
        rows=np.zeros((3, stride + 2), dtype),
        **{name: _zeros((5, block), dtype, name == "scaled") for name in ("scaled", "odd", "even", "folded")},
        band=np.zeros((h * w + w + 2, w + 2)),
        column=np.zeros((channels, h * w + w + 2)),
        visits=np.zeros(len(shapes), dtype=np.int64),
    )


def _rounded(count: int, unit: int = _LANES) -> int:
    return -(-count // unit) * unit


def _zeros(shape: tuple[int, ...], dtype: Any, skip: int) -> Any:
    """Allocate zeros of which number `skip` lies at the beginning of a cache line."""
    flat = np.zeros(int(np.prod(shape)) + 2 * _LANES, dtype)
    start = (-flat.ctypes.data // flat.itemsize - skip) % _LANES
    return flat[start : start + int(np.prod(shape))].reshape(shape)


@_jit
def _planes(flat, planes, grid, layout):
    start, size = planes * layout[grid, 3], layout[grid, 4]
    return flat[start : start + planes * size].reshape((planes, size))


@_jit
def _sum_down(x, first, last, stride, sums):
    """Apply [1, 2, 1] down the columns, for some rows of the finest grid."""
    n, k = (last - first) * stride, (first + 1) * stride + 1
    above, here = x[k - stride - 1 : k - stride + n + 1], x[k - 1 : k + n + 1]
    below = x[k + stride - 1 : k + stride + n + 1]
    for j in range(n + 2):
        sums[j] = above[j] + below[j] + (here[j] + here[j])


@_jit
def _sum_across(sums, j):
    """Apply [1, 2, 1] along the row: with _sum_down, Σ weight·neighbour plus four times the pixel itself."""
    return sums[j] + sums[j + 2] + (sums[j + 1] + sums[j + 1])


@_jit
def _restrict(fine, out, first, rows, width, stride, coarse_stride, sums):
    """Apply the transpose of the interpolation; row 0 of `fine` is the one above fine row 2·first."""
    half = out.dtype.type(0.5)
    for i in range(rows):
        k, o = 2 * i * stride, (first + i + 1) * coarse_stride + 1
        above, here = fine[k : k + stride], fine[k + stride : k + 2 * stride]
        below = fine[k + 2 * stride : k + 3 * stride]
        sums[0] = 0
        middle = sums[1 : stride + 1]
        for j in range(stride):
            middle[j] = here[j] + half * (above[j] + below[j])
        target = out[o : o + width]
        for j in range(width):
            target[j] = sums[2 * j + 1] + half * (sums[2 * j] + sums[2 * j + 2])


@_jit
def _widen(coarse, row, width, coarse_stride, out):
    """Interpolate one coarse row along the row; the padding of the fine row becomes zero."""
    half = out.dtype.type(0.5)
    out[2 * width :] = 0
    k = (row + 1) * coarse_stride + 1
    here = coarse[k : k + width + 1]
    for j in range(width):
        out[2 * j] = here[j]
        out[2 * j + 1] = half * (here[j] + here[j + 1])


@_jit
def _correct(coarse, y, dip, first, last, width, stride, coarse_stride, changes, factor, largest):
    """Add the interpolated correction, times dip and factor, to rows first (even) to last, block by block."""
    half = y.dtype.type(0.5)
    for start in range(first, last, _BLOCK):
        stop = min(start + _BLOCK, last)
        for i in range(start, stop + 1, 2):
            o = (i - start) * stride
            _widen(coarse, i // 2, width, coarse_stride, changes[o : o + stride])
        for i in range(start + 1, stop, 2):
            o = (i - start) * stride
            above, out = changes[o - stride : o], changes[o : o + stride]
            below = changes[o + stride : o + 2 * stride]
            for j in range(stride):
                out[j] = half * (above[j] + below[j])
        n, k = (stop - start) * stride, (start + 1) * stride + 1
        out, share = y[k : k + n], dip[k : k + n]
        for j in range(n):
            change = factor * share[j] * changes[j]
            out[j] += change
            largest[j] = max(largest[j], abs(change))


@_jit
def _descend_finest(w, channels):
    """Smooth on the finest grid and restrict the residual to the next."""
    H, W, stride, coarse_stride = w.layout[0, 0], w.layout[0, 1], w.layout[0, 2], w.layout[1, 2]
    solution, smoothed = _planes(w.solution, channels, 0, w.layout), _planes(w.smoothed, channels, 0, w.layout)
    rhs = _planes(w.rhs, channels, 1, w.layout)
    omega, sums = solution.dtype.type(_PRE), w.sums
    for c in range(channels):
        x, y = solution[c], smoothed[c]
        residual, missed = w.residual[c], w.residual[c, stride:]
        residual[:stride] = 0
        done = 0
        for first in range(0, H, _BLOCK):
            last = min(first + _BLOCK, H)
            ahead = min(last + 1, H)  # the residual of a row needs the smoothed row below it
            n, k = (ahead - done) * stride, (done + 1) * stride + 1
            _sum_down(x, done, ahead, stride, sums)
            here, out, gain, diagonal = x[k : k + n], y[k : k + n], w.finest[0, k : k + n], w.finest[2, k : k + n]
            for j in range(n):
                out[j] = here[j] + omega * gain[j] * (_sum_across(sums, j) - diagonal[j] * here[j])
            done = ahead
            n, k = (last - first) * stride, (first + 1) * stride + 1
            _sum_down(y, first, last, stride, sums)
            here, dip, diagonal = y[k : k + n], w.finest[1, k : k + n], w.finest[2, k : k + n]
            for j in range(n):
                missed[j] = dip[j] * (_sum_across(sums, j) - diagonal[j] * here[j])
            _hand_down(residual, rhs[c], first, last, H, W, stride, coarse_stride, w.rows[0])


@_jit
def _hand_down(residual, rhs, first, last, H, W, stride, coarse_stride, sums):
    """Restrict a block of residual rows and keep its last row for the next block."""
    rows = _BLOCK // 2
    if last == H:
        residual[(last - first + 1) * stride :] = 0
        rows = H // 2 + 1 - first // 2
    _restrict(residual, rhs, first // 2, rows, W // 2 + 1, stride, coarse_stride, sums)
    residual[:stride] = residual[_BLOCK * stride : (_BLOCK + 1) * stride]


@_jit
def _ascend_finest(w, channels):
    """Correct and smooth on the finest grid; return the largest correction and the largest step."""
    H, W, stride, coarse_stride = w.layout[0, 0], w.layout[0, 1], w.layout[0, 2], w.layout[1, 2]
    solution, smoothed = _planes(w.solution, channels, 0, w.layout), _planes(w.smoothed, channels, 0, w.layout)
    coarse = _planes(w.solution, channels, 1, w.layout)
    omega, factor = solution.dtype.type(_POST), solution.dtype.type(_OVERCORRECTION)
    sums, steps, corrections = w.sums, w.steps, w.corrections
    steps[:] = 0
    corrections[:] = 0
    for c in range(channels):
        x, y = solution[c], smoothed[c]
        done = 0
        for first in range(0, H, _BLOCK):
            last = min(first + _BLOCK, H)
            _correct(
                coarse[c],
                y,
                w.finest[1],
                first,
                last,
                W // 2 + 1,
                stride,
                coarse_stride,
                w.changes,
                factor,
                corrections,
            )
            ready = last if last == H else last - 1  # the row below the last one is not corrected yet
            n, k = (ready - done) * stride, (done + 1) * stride + 1
            _sum_down(y, done, ready, stride, sums)
            here, out, gain, diagonal = y[k : k + n], x[k : k + n], w.finest[0, k : k + n], w.finest[2, k : k + n]
            for j in range(n):
                step = omega * gain[j] * (_sum_across(sums, j) - diagonal[j] * here[j])
                out[j] = here[j] + step
                steps[j] = max(steps[j], abs(step))
            done = ready
    return _largest(corrections), _largest(steps)


@_jit
def _coarse_sweep(a, x, b, share, base, factor, k, n, stride, partial, out):
    """Compute base + factor·share·(b - A x) on the n numbers from k on; in two loops, for lack of registers."""
    rhs, partial = b[k : k + n], partial[:n]
    above = x[k - stride - 1 : k - stride + n + 1]
    here = x[k - 1 : k + n + 1]
    below = x[k + stride - 1 : k + stride + n + 1]
    centre, east, south = a[_CENTRE, k : k + n], a[_EAST, k - 1 : k + n], a[_SOUTH, k : k + n]
    for j in range(n):
        partial[j] = rhs[j] - (
            centre[j] * here[j + 1] + east[j + 1] * here[j + 2] + east[j] * here[j] + south[j] * below[j + 1]
        )
    north = a[_SOUTH, k - stride : k - stride + n]
    southeast, southwest = a[_SOUTHEAST, k : k + n], a[_SOUTHWEST, k : k + n]
    northwest = a[_SOUTHEAST, k - stride - 1 : k - stride + n]
    northeast = a[_SOUTHWEST, k - stride : k - stride + n + 1]
    share, base, out = share[k : k + n], base[:n], out[:n]
    for j in range(n):
        rest = (
            north[j] * above[j + 1]
            + southeast[j] * below[j + 2]
            + southwest[j] * below[j]
            + northwest[j] * above[j]
            + northeast[j + 1] * above[j + 2]
        )
        out[j] = base[j] + factor * share[j] * (partial[j] - rest)


@_jit
def _relax(a, x, b, H, stride, partial, out):
    """Run one damped Jacobi sweep on a coarse grid."""
    omega = x.dtype.type(_COARSE_DAMPING)
    for first in range(0, H, _BLOCK):
        n, k = (min(first + _BLOCK, H) - first) * stride, (first + 1) * stride + 1
        for c in range(x.shape[0]):
            _coarse_sweep(a, x[c], b[c], a[_INVERSE], x[c, k:], omega, k, n, stride, partial, out[c, k:])


@_jit
def _descend(w, channels, grid, fresh):
    """Smooth on a coarse grid, from zero if it is fresh, and restrict the residual to the next."""
    H, W, stride, coarse_stride = w.layout[grid, 0], w.layout[grid, 1], w.layout[grid, 2], w.layout[grid + 1, 2]
    solution = _planes(w.solution, channels, grid, w.layout)
    smoothed = _planes(w.smoothed, channels, grid, w.layout)
    rhs, coarse_rhs = _planes(w.rhs, channels, grid, w.layout), _planes(w.rhs, channels, grid + 1, w.layout)
    a = _planes(w.operator, 7, grid, w.layout)
    omega, one = solution.dtype.type(_COARSE_DAMPING), solution.dtype.type(1)
    if fresh:
        inverse = a[_INVERSE]
        for c in range(channels):
            y, b = smoothed[c], rhs[c]
            for j in range(y.size):
                y[j] = omega * inverse[j] * b[j]
    else:
        _relax(a, solution, rhs, H, stride, w.missed, smoothed)
    w.residual[:, :stride] = 0
    for first in range(0, H, _BLOCK):
        last = min(first + _BLOCK, H)
        n, k = (last - first) * stride, (first + 1) * stride + 1
        for c in range(channels):  # inside, so that the operator is still in cache
            residual = w.residual[c]
            _coarse_sweep(a, smoothed[c], rhs[c], a[_DIP], w.zeros, one, k, n, stride, w.missed, residual[stride:])
            _hand_down(residual, coarse_rhs[c], first, last, H, W, stride, coarse_stride, w.rows[0])


@_jit
def _ascend(w, channels, grid):
    """Correct and smooth on a coarse grid."""
    H, W, stride, coarse_stride = w.layout[grid, 0], w.layout[grid, 1], w.layout[grid, 2], w.layout[grid + 1, 2]
    solution = _planes(w.solution, channels, grid, w.layout)
    smoothed = _planes(w.smoothed, channels, grid, w.layout)
    rhs, coarse = _planes(w.rhs, channels, grid, w.layout), _planes(w.solution, channels, grid + 1, w.layout)
    a = _planes(w.operator, 7, grid, w.layout)
    one = a.dtype.type(1)
    for c in range(channels):
        _correct(
            coarse[c], smoothed[c], a[_DIP], 0, H, W // 2 + 1, stride, coarse_stride, w.changes, one, w.corrections
        )
    _relax(a, smoothed, rhs, H, stride, w.missed, solution)


@_jit
def _factor(w):
    """Factorise the coarsest operator as L·D·L' in float64: its smallest eigenvalue can be near float32's precision."""
    grid = w.layout.shape[0] - 1
    H, W, stride = w.layout[grid, 0], w.layout[grid, 1], w.layout[grid, 2]
    a, band = _planes(w.operator, 7, grid, w.layout), w.band
    band[:] = 0
    for i in range(H):
        for j in range(W):
            row, k = i * W + j, (i + 1) * stride + 1 + j
            band[row, 0] = a[_CENTRE, k]
            # On a grid one or two pixels wide some of these share a place in the band: hence +=.
            if j + 1 < W:
                band[row, 1] += a[_EAST, k]
            if i + 1 < H:
                band[row, W] += a[_SOUTH, k]
                if j + 1 < W:
                    band[row, W + 1] += a[_SOUTHEAST, k]
                if j > 0:
                    band[row, W - 1] += a[_SOUTHWEST, k]
    for row in range(H * W):
        pivot = band[row, 0]
        whole = a[_CENTRE, (row // W + 1) * stride + 1 + row % W]
        inverse = 1.0 / pivot if whole > 1e-5 and pivot > 1e-7 * whole else 0.0  # 0: no unknown there
        for p in range(1, W + 2):
            factor = band[row, p] * inverse
            for q in range(p, W + 2):
                band[row + p, q - p] -= factor * band[row, q]
        for p in range(1, W + 2):
            band[row, p] *= inverse
        band[row, 0] = inverse


@_jit
def _solve_coarsest(w, channels):
    grid = w.layout.shape[0] - 1
    H, W, stride = w.layout[grid, 0], w.layout[grid, 1], w.layout[grid, 2]
    rhs, solution = _planes(w.rhs, channels, grid, w.layout), _planes(w.solution, channels, grid, w.layout)
    band, column, n = w.band, w.column, H * W
    for c in range(channels):
        for i in range(H):
            for j in range(W):
                column[c, i * W + j] = rhs[c, (i + 1) * stride + 1 + j]
        column[c, n:] = 0
    # Channels inside the rows: their chains of dependent operations overlap.
    for row in range(n):
        factors = band[row, 1 : W + 2]
        for c in range(channels):
            head, tail = column[c, row], column[c, row + 1 : row + W + 2]
            for p in range(W + 1):
                tail[p] -= factors[p] * head
    column[:, n:] = 0
    for row in range(n - 1, -1, -1):
        factors, inverse = band[row, 1 : W + 2], band[row, 0]
        for c in range(channels):
            total, tail = 0.0, column[c, row + 1 : row + W + 2]
            for p in range(W + 1):
                total += factors[p] * tail[p]
            column[c, row] = column[c, row] * inverse - total
    for c in range(channels):
        for i in range(H):
            for j in range(W):
                solution[c, (i + 1) * stride + 1 + j] = column[c, i * W + j]


@_jit
def _coarse_cycle(w, channels):
    """Run one cycle from grid 1 on, without recursion: a W-cycle between large grids, a V-cycle below.

    V-cycles alone leave too much of the smooth error where nearly everything was removed.
    """
    last = w.layout.shape[0] - 1
    visits = w.visits
    visits[:] = 0
    grid = 1
    while True:
        while grid < last:
            _descend(w, channels, grid, visits[grid] == 0)
            visits[grid] += 1
            grid += 1
        _solve_coarsest(w, channels)
        while grid > 1:
            grid -= 1
            _ascend(w, channels, grid)
            if grid > 1 and visits[grid] == 1 and max(w.layout[grid, 0], w.layout[grid, 1]) > _VISIT_ONCE:
                break
            visits[grid] = 0
        if grid == 1 and (last == 1 or visits[1] == 0):
            return


@_jit
def _couple(coefficient, here, there, out):
    for j in range(out.size):
        out[j] = coefficient[j] * here[j] * there[j]


@_jit
def _couple_finest(weight, here, there, out):
    for j in range(out.size):
        out[j] = -weight * here[j] * there[j]


@_jit
def _scale(a, finest, dip, diagonal, k, n, stride, out):
    """Scale the stencils of some rows: each coefficient times the dips at both of its ends."""
    t = dip[k : k + n]
    east, south = dip[k + 1 : k + 1 + n], dip[k + stride : k + stride + n]
    southeast, southwest = dip[k + stride + 1 : k + stride + 1 + n], dip[k + stride - 1 : k + stride - 1 + n]
    if finest:
        one, two, four = dip.dtype.type(1), dip.dtype.type(2), dip.dtype.type(4)
        d, centre = diagonal[k : k + n], out[_CENTRE, 1 : n + 1]
        for j in range(n):
            centre[j] = (d[j] - four) * t[j] * t[j]
        _couple_finest(two, t, east, out[_EAST, 1 : n + 1])
        _couple_finest(two, t, south, out[_SOUTH, 1 : n + 1])
        _couple_finest(one, t, southeast, out[_SOUTHEAST, 1 : n + 1])
        _couple_finest(one, t, southwest, out[_SOUTHWEST, 1 : n + 1])
    else:
        _couple(a[_CENTRE, k : k + n], t, t, out[_CENTRE, 1 : n + 1])
        _couple(a[_EAST, k : k + n], t, east, out[_EAST, 1 : n + 1])
        _couple(a[_SOUTH, k : k + n], t, south, out[_SOUTH, 1 : n + 1])
        _couple(a[_SOUTHEAST, k : k + n], t, southeast, out[_SOUTHEAST, 1 : n + 1])
        _couple(a[_SOUTHWEST, k : k + n], t, southwest, out[_SOUTHWEST, 1 : n + 1])


@_jit
def _split_columns(fine, odd, even, n):
    """Separate odd and even columns of the stencils, so that folding them needs no strided access."""
    for plane in range(5):
        row, left, mid = fine[plane], odd[plane], even[plane]
        for j in range(n):
            left[j] = row[2 * j]
            mid[j] = row[2 * j + 1]
        left[n] = row[2 * n]


@_jit
def _fold_columns(odd, even, out, o, n):
    """Compute the Galerkin product along the rows: column J gathers columns 2J - 1, 2J and 2J + 1.

    These are odd[J], even[J] and odd[J + 1]. One loop for each plane that is written.
    """
    half, quarter = out.dtype.type(0.5), out.dtype.type(0.25)
    centre, centre_odd, east, east_odd = even[_CENTRE], odd[_CENTRE], even[_EAST], odd[_EAST]
    south, south_odd = even[_SOUTH], odd[_SOUTH]
    right, right_odd, left, left_odd = even[_SOUTHEAST], odd[_SOUTHEAST], even[_SOUTHWEST], odd[_SOUTHWEST]
    target = out[_CENTRE, o : o + n]
    for j in range(n):
        target[j] = centre[j] + quarter * (centre_odd[j] + centre_odd[j + 1]) + east_odd[j] + east[j]
    target = out[_EAST, o : o + n]
    for j in range(n):
        target[j] = quarter * centre_odd[j + 1] + half * (east[j] + east_odd[j + 1])
    target = out[_SOUTH, o : o + n]
    for j in range(n):
        crossing = right_odd[j] + right[j] + left[j] + left_odd[j + 1]
        target[j] = south[j] + quarter * (south_odd[j] + south_odd[j + 1]) + half * crossing
    target = out[_SOUTHEAST, o : o + n]
    for j in range(n):
        target[j] = quarter * south_odd[j + 1] + half * (right[j] + right_odd[j + 1])
    target = out[_SOUTHWEST, o : o + n]
    for j in range(n):
        target[j] = quarter * south_odd[j] + half * (left_odd[j] + left[j])


@_jit
def _three_rows(folded, plane, first, n):
    """Return folded rows 2Y - 1, 2Y and 2Y + 1 of one plane, each with the number that follows it."""
    rows = folded[plane, first : first + 3 * n + 1]
    return rows[: n + 1], rows[n : 2 * n + 1], rows[2 * n :]


@_jit
def _fold_rows(folded, first, n, out, o):
    """Compute the Galerkin product across the rows: one coarse row of n from three folded ones."""
    half, quarter = out.dtype.type(0.5), out.dtype.type(0.25)
    above, here, below = _three_rows(folded, _CENTRE, first, n)
    above_s, here_s, below_s = _three_rows(folded, _SOUTH, first, n)
    centre, south = out[_CENTRE, o : o + n], out[_SOUTH, o : o + n]
    for j in range(n):
        centre[j] = here[j] + quarter * (above[j] + below[j]) + above_s[j] + here_s[j]
        south[j] = quarter * below[j] + half * (here_s[j] + below_s[j])
    above, here, below = _three_rows(folded, _EAST, first, n)
    above_se, here_se, below_se = _three_rows(folded, _SOUTHEAST, first, n)
    above_sw, here_sw, below_sw = _three_rows(folded, _SOUTHWEST, first, n)
    east, southeast, southwest = out[_EAST, o : o + n], out[_SOUTHEAST, o : o + n], out[_SOUTHWEST, o : o + n]
    for j in range(n):
        crossing = above_se[j] + here_se[j] + above_sw[j + 1] + here_sw[j + 1]
        east[j] = here[j] + quarter * (above[j] + below[j]) + half * crossing
    for j in range(n):
        southeast[j] = quarter * below[j] + half * (here_se[j] + below_se[j])
    southwest[0] = 0
    for j in range(1, n):
        southwest[j] = quarter * below[j - 1] + half * (here_sw[j] + below_sw[j])


@_jit
def _galerkin(w, grid, dip):
    """Compute the operator of the next coarser grid."""
    H, stride, coarse_stride = w.layout[grid, 0], w.layout[grid, 2], w.layout[grid + 1, 2]
    a, coarse = _planes(w.operator, 7, grid, w.layout), _planes(w.operator, 7, grid + 1, w.layout)
    scaled, folded, width = w.scaled, w.folded, stride // 2
    for plane in range(5):
        folded[plane, :width] = 0
    for first in range(0, H, _BLOCK):
        last = min(first + _BLOCK, H)
        n, k = (last - first) * stride, (first + 1) * stride + 1
        _scale(a, grid == 0, dip, w.finest[2], k, n, stride, scaled)
        for plane in range(5):
            scaled[plane, 0] = 0
            scaled[plane, n + 1] = 0
        _split_columns(scaled, w.odd, w.even, n // 2)
        _fold_columns(w.odd, w.even, folded, width, n // 2)
        rows = _BLOCK // 2
        if last == H:
            rows = H // 2 + 1 - first // 2
            for plane in range(5):
                folded[plane, width + n // 2 :] = 0
        for i in range(rows):
            _fold_rows(folded, 2 * i * width, width, coarse, (first // 2 + i + 1) * coarse_stride + 1)
        for plane in range(5):
            folded[plane, :width] = folded[plane, _BLOCK * width : (_BLOCK + 1) * width]


@_jit
def _complete_operator(w, grid):
    """Compute the damping diagonal and the dip of a coarse grid.

    Positive couplings appear there, with which the plain diagonal makes Jacobi diverge: they are added to it.
    """
    H, stride = w.layout[grid, 0], w.layout[grid, 2]
    a = _planes(w.operator, 7, grid, w.layout)
    zero, one, tiny = a.dtype.type(0), a.dtype.type(1), a.dtype.type(1e-5)
    n, k = H * stride, stride + 1
    centre, east, south = a[_CENTRE, k : k + n], a[_EAST, k - 1 : k + n], a[_SOUTH, k : k + n]
    north = a[_SOUTH, k - stride : k - stride + n]
    size, total = a[_INVERSE, k : k + n], a[_DIP, k : k + n]
    for j in range(n):
        size[j] = centre[j] + max(east[j + 1], zero) + max(east[j], zero) + max(south[j], zero) + max(north[j], zero)
        total[j] = centre[j] + east[j + 1] + east[j] + south[j] + north[j]
    southeast, southwest = a[_SOUTHEAST, k : k + n], a[_SOUTHWEST, k : k + n]
    northwest = a[_SOUTHEAST, k - stride - 1 : k - stride + n]
    northeast = a[_SOUTHWEST, k - stride : k - stride + n + 1]
    for j in range(n):
        size[j] += max(southeast[j], zero) + max(southwest[j], zero)
        size[j] += max(northwest[j], zero) + max(northeast[j + 1], zero)
        total[j] += southeast[j] + southwest[j] + northwest[j] + northeast[j + 1]
    for j in range(n):
        there = size[j] > tiny
        inverse = one / (size[j] if there else one)
        total[j] = max(one - max(total[j], zero) * inverse, zero) if there else zero
        size[j] = inverse if there else zero


@_jit
def _prepare_finest(w):
    """Compute gain and dip of the finest grid."""
    H, stride = w.layout[0, 0], w.layout[0, 2]
    one, four = w.finest.dtype.type(1), w.finest.dtype.type(4)
    sums = w.sums
    for first in range(0, H, _BLOCK):
        last = min(first + _BLOCK, H)
        n, k = (last - first) * stride, (first + 1) * stride + 1
        _sum_down(w.finest[3], first, last, stride, sums)
        gain, dip, diagonal, removed = (
            w.finest[0, k : k + n],
            w.finest[1, k : k + n],
            w.finest[2, k : k + n],
            w.finest[3, k : k + n],
        )
        for j in range(n):
            gain[j] = removed[j] / max(diagonal[j] - four, one)
            dip[j] = gain[j] * (_sum_across(sums, j) - four * removed[j])


@_jit
def _set_up(w):
    """Set up the coarse grids, which depend on `keep` alone."""
    for grid in range(w.layout.shape[0] - 1):
        dip = w.finest[1] if grid == 0 else _planes(w.operator, 7, grid, w.layout)[_DIP]
        _galerkin(w, grid, dip)
        _complete_operator(w, grid + 1)
    _factor(w)


@_jit
def _guess(w, channels):
    """Guess the removed pixels from ever wider weighted means of the kept ones ("pull-push").

    On entry the removed pixels of the solution are zero. Saves about one cycle compared with a constant.
    """
    last = w.layout.shape[0] - 1
    one = w.weight.dtype.type(1)
    for grid in range(last):
        H, W, stride = w.layout[grid + 1, 0], w.layout[grid + 1, 1], w.layout[grid + 1, 2]
        fine_stride = w.layout[grid, 2]
        fine_weight, weight = _planes(w.weight, 1, grid, w.layout)[0], _planes(w.weight, 1, grid + 1, w.layout)[0]
        fine, coarse = _planes(w.solution, channels, grid, w.layout), _planes(w.solution, channels, grid + 1, w.layout)
        _restrict(fine_weight[1:], weight, 0, H, W, fine_stride, stride, w.rows[0])
        for c in range(channels):
            out = coarse[c]
            _restrict(fine[c][1:], out, 0, H, W, fine_stride, stride, w.rows[0])
            for j in range(out.size):
                out[j] /= max(weight[j], one)
        for j in range(weight.size):
            weight[j] = min(weight[j], one)
    weight, coarse = _planes(w.weight, 1, last, w.layout)[0], _planes(w.solution, channels, last, w.layout)
    for c in range(channels):
        mean = coarse[c].sum() / weight.sum()
        for i in range(w.layout[last, 0]):
            k = (i + 1) * w.layout[last, 2] + 1
            for j in range(k, k + w.layout[last, 1]):
                coarse[c, j] += (one - weight[j]) * mean
    for grid in range(last - 1, -1, -1):
        H, W, stride, coarse_stride = w.layout[grid, 0], w.layout[grid, 1], w.layout[grid, 2], w.layout[grid + 1, 2]
        fine, coarse = _planes(w.solution, channels, grid, w.layout), _planes(w.solution, channels, grid + 1, w.layout)
        missing = _planes(w.weight, 1, grid, w.layout)[0]
        for i in range(H):
            k = (i + 1) * stride + 1
            for j in range(k, k + W):
                missing[j] = one - missing[j]
        for c in range(channels):
            _correct(
                coarse[c], fine[c], missing, 0, H, W // 2 + 1, stride, coarse_stride, w.changes, one, w.corrections
            )


@_jit
def _relax_scattered(w, channels, tolerance):
    """Run Gauss-Seidel on the removed pixels alone, where they are few and each has a kept neighbour; -1 elsewhere.

    The sweeps contract the error by the largest dip, in the maximum norm, so that the bound returned is rigorous.
    """
    stride, dip, removed, gain = w.layout[0, 2], w.finest[1], w.finest[3], w.finest[0]
    number, worst = removed.sum(), _largest(dip)
    if number > _SCATTERED_SHARE * w.layout[0, 0] * w.layout[0, 1] or worst > _SCATTERED_DIP:
        return -1.0
    places = np.flatnonzero(removed)
    solution = _planes(w.solution, channels, 0, w.layout)
    factor, bound = worst / (1 - worst), 0.0
    for c in range(channels):
        x = solution[c]
        change = 0.0
        for _ in range(_MOST_SWEEPS):
            change = 0.0
            for k in places:
                direct = x[k - 1] + x[k + 1] + x[k - stride] + x[k + stride]
                diagonal = x[k - stride - 1] + x[k - stride + 1] + x[k + stride - 1] + x[k + stride + 1]
                new = gain[k] * (direct + direct + diagonal)
                change = max(change, abs(new - x[k]))
                x[k] = new
            if change * factor <= tolerance:
                break
        bound = max(bound, change * factor)
        if bound > tolerance:  # rounding keeps the sweeps from settling
            for k in places:
                solution[:, k] = 0
            return -1.0
    return bound


@_jit
def _load(w, image, keep, low, high):
    """Write the kept pixels into the solution, zero elsewhere, and find their range in every channel.

    The middle of the range is subtracted: rounding errors grow with the size of the numbers. Returns whether all
    of them are finite.
    """
    H, W, stride = w.layout[0, 0], w.layout[0, 1], w.layout[0, 2]
    one, half, zero, infinity = (
        image.dtype.type(1),
        image.dtype.type(0.5),
        image.dtype.type(0),
        image.dtype.type(np.inf),
    )
    solution, weight = _planes(w.solution, image.shape[0], 0, w.layout), _planes(w.weight, 1, 0, w.layout)[0]
    for i in range(H):
        k = (i + 1) * stride + 1
        known, removed, kept = weight[k : k + W], w.finest[3, k : k + W], keep[i]
        for j in range(W):
            known[j] = one if kept[j] else zero
            removed[j] = one - known[j]
    lows, highs, doubts = w.missed, w.sums, w.changes
    for c in range(image.shape[0]):
        x = solution[c]
        for i in range(H):
            k = (i + 1) * stride + 1
            out, here, known = x[k : k + W], image[c, i], weight[k : k + W]
            for j in range(W):
                out[j] = here[j] if known[j] > zero else zero
        # The range by columns: a running minimum over a row is not vectorised unless NaN is ruled out.
        n = _BLOCK * stride
        lows[:n], highs[:n], doubts[:n] = infinity, -infinity, zero
        for k in range(0, x.size, n):
            here, known = x[k : k + n], weight[k : k + n]
            for j in range(here.size):
                lows[j] = min(lows[j], here[j] if known[j] > zero else infinity)
                highs[j] = max(highs[j], here[j] if known[j] > zero else -infinity)
                doubts[j] += zero * here[j]  # NaN if not finite
        low[c], high[c] = -_largest(-lows[:n]), _largest(highs[:n])
        if doubts[:n].sum() != 0:
            return False
        middle = half * low[c] + half * high[c]
        for j in range(x.size):
            x[j] -= middle * weight[j]
    return True


@_jit
def _store(w, image, low, high, out):
    """Copy kept pixels from the image, and the others from the solution, clipped to the range of the kept ones.

    The exact solution lies in that range (maximum principle), so that this never adds to the error.
    """
    H, W, stride = w.layout[0, 0], w.layout[0, 1], w.layout[0, 2]
    half, zero = out.dtype.type(0.5), out.dtype.type(0)
    solution = _planes(w.solution, out.shape[0], 0, w.layout)
    for c in range(out.shape[0]):
        least, most = low[c], high[c]
        middle = half * least + half * most
        for i in range(H):
            k = (i + 1) * stride + 1
            target, here, filled, removed = out[c, i], image[c, i], solution[c, k : k + W], w.finest[3, k : k + W]
            for j in range(W):
                target[j] = min(max(filled[j] + middle, least), most) if removed[j] > zero else here[j]


@_jit
def _largest(values):
    largest = values[0]
    for value in values:
        largest = max(largest, value)
    return largest


@_jit
def _solve_image(w, image, keep, tolerance, most_cycles, out):  # noqa: PLR0911 (each way to end says how)
    """Solve one image; return the cycles used and the estimated error, or the code of a failure in its place."""
    channels = image.shape[0]
    low, high = np.empty(channels, image.dtype), np.empty(channels, image.dtype)
    if not keep.any():
        return 0, _NOTHING_KEPT
    if not _load(w, image, keep, low, high):
        return 0, _NOT_FINITE
    if keep.all() or (low == high).all():
        _store(w, image, low, high, out)  # which makes it constant
        return 0, 0.0
    longer, shorter = max(keep.shape[0], keep.shape[1]), min(keep.shape[0], keep.shape[1])
    rounding = np.finfo(image.dtype).eps * np.sqrt(longer**3 / shorter) * (high - low).max()
    if _ROUNDING_LIMIT * rounding > tolerance:
        return 0, _MISSED
    _prepare_finest(w)
    bound = _relax_scattered(w, channels, tolerance - rounding)
    if bound >= 0:
        _store(w, image, low, high, out)
        return 0, bound + rounding
    _guess(w, channels)
    _set_up(w)
    before, previous = np.inf, np.inf
    for cycle in range(1, most_cycles + 1):
        _descend_finest(w, channels)
        _coarse_cycle(w, channels)
        correction, step = _ascend_finest(w, channels)
        rate = max(correction / max(previous, 1e-300), np.sqrt(correction / max(before, 1e-300)))
        rate = min(max(rate, _LEAST_RATE if cycle > 2 else _FIRST_RATE), 0.95)
        estimate = _SAFETY * (correction * rate / (1 - rate) + _STEP_SHARE * step) + rounding
        before, previous = previous, correction
        if cycle > 1 and estimate <= tolerance:
            _store(w, image, low, high, out)
            return cycle, estimate
    return most_cycles, _MISSED


@_jit
def solve_images(w, images, keep, first, last, tolerance, most_cycles, out, cycles, estimate):
    """Solve images first to last of (N, C, H, W); write filled images, cycles and estimated errors to the outputs."""
    for n in range(first, last):
        cycles[n], estimate[n] = _solve_image(w, images[n], keep[n], tolerance, most_cycles, out[n])
