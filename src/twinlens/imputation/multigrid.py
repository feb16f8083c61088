"""Linear imputation by geometric multigrid: the fast solver of the system in ``linear_system``.

One cycle is a Jacobi sweep, a correction from the coarser grids, and a second Jacobi sweep. Interpolation is linear,
scaled at every fine point by its *dip*: the share of its diagonal that couples it to other unknowns. Corrections fade
towards kept pixels. This module checks, dispatches and falls back; ``multigrid_compiled`` and ``multigrid_torch``
compute.

Shapes: N images or volumes, C channels, S = spatial shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from twinlens.imputation.linear_system import interpolate, solve_direct
from twinlens.imputation.multigrid_compiled import load_library, solve_images
from twinlens.imputation.multigrid_torch import MISSED, NOT_FINITE, NOTHING_KEPT, solve_batch
from twinlens.support.arrays import check_dense

_MOST_CYCLES = 30
_TINY = 256  # "auto" factorises systems of at most this many pixels or voxels
_METHODS = ("auto", "multigrid", "torch", "direct")


@dataclass(frozen=True, kw_only=True)
class Solution:
    """The filled images of ``solve``, and how each was solved."""

    values: Tensor
    """(N, C, *S): kept values unchanged, removed ones filled; type and device of the input."""
    cycles: Tensor
    """(N,): multigrid cycles; 0 where nothing had to be solved, or another solver was used."""
    estimate: Tensor
    """(N,): estimated largest absolute error; 0 where the solution is exact up to rounding."""
    fallback: Tensor
    """(N,): True where multigrid missed the tolerance and the direct solver was used."""


def solve(
    images: Tensor, keep: Tensor, *, tolerance: float = 1e-3, method: str = "auto", empty: float | None = None
) -> Solution:
    """Fill in each removed value with the weighted mean of its neighbours.

    Each image is solved on its own, regardless of the batch and the number of threads (``torch.set_num_threads``). An
    image that misses the tolerance in float32 is solved in float64, and if that fails too, by the direct solver.

    Args:
        images: (N, C, *S), floating point; values at removed positions are ignored.
        keep: (N, *S) bool, True where the value is kept; at least one value per image.
        tolerance: the largest absolute error against the exact solution, in the units of the image.
        method: "auto": multigrid for images and volumes, lines for signals, the direct solver for tiny images and
            volumes; "multigrid": compiled on the CPU, torch elsewhere and where nothing was compiled; "torch": the
            torch path on any device; "direct": sparse factorisation, the equivalent of SciPy's ``spsolve``.
        empty: fills images of which no value is kept; they are refused by default.

    Returns:
        The filled images, with cycles, error estimate and fallback of each.

    Example:
        >>> images = torch.tensor([[[[0.0, 9.0, 9.0, 3.0]]]])
        >>> solve(images, torch.tensor([[[True, False, False, True]]])).values
        tensor([[[[0., 1., 2., 3.]]]])
    """
    _check(images, keep, tolerance, method)
    if method == "auto":
        sides = keep.shape[1:]
        along_one = sum(side > 1 for side in sides) <= 1
        method = "lines" if along_one else "direct" if sides.numel() <= _TINY else "multigrid"
    work = images.detach()
    if work.dtype not in (torch.float32, torch.float64):
        work = work.float()
    if method == "lines":
        values, cycles, estimate, missed = _solve_lines(work, keep)
    elif method == "direct":
        values, cycles, estimate, missed = _nothing_solved(work, keep)
    else:
        values, cycles, estimate, missed = _solve_multigrid(work, keep, tolerance, compiled=method == "multigrid")
    for i in (estimate == NOTHING_KEPT).nonzero().flatten().tolist():
        if empty is None:
            raise ValueError(
                f"`keep` must keep at least one value of every image; image {i} keeps nothing. Leave it out, or fill "
                "it with a constant."
            )
        values[i], estimate[i], missed[i] = empty, 0, False
    for i in (estimate == NOT_FINITE).nonzero().flatten().tolist():
        raise ValueError(f"`images` must be finite where kept; image {i} holds NaN or infinity. Clean it first.")
    for i in missed.nonzero().flatten().tolist():
        filled = torch.from_numpy(solve_direct(work[i].cpu().numpy(), keep[i].cpu().numpy()))
        values[i] = torch.where(keep[i], work[i], filled.to(work))
    fallback = missed if method != "direct" else torch.zeros_like(missed)
    return Solution(values=values.to(images.dtype), cycles=cycles, estimate=estimate, fallback=fallback)


def _check(images: Tensor, keep: Tensor, tolerance: float, method: str) -> None:
    if method not in _METHODS:
        raise ValueError(f"`method` must be one of {', '.join(_METHODS)}; got {method!r}.")
    if not tolerance > 0:
        raise ValueError(f"`tolerance` must be positive; got {tolerance}. Use method='direct' for exactness.")
    if not isinstance(images, Tensor) or not images.is_floating_point():
        got = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"`images` must be a floating-point tensor; got {got}. Convert it with .float().")
    if not isinstance(keep, Tensor) or keep.dtype != torch.bool:
        got = keep.dtype if isinstance(keep, Tensor) else type(keep).__name__
        raise TypeError(f"`keep` must be a bool tensor, True where a value is kept; got {got}.")
    if keep.device != images.device:
        raise ValueError(f"`keep` must be on the device of `images`, {images.device}; got {keep.device}.")
    check_dense(images, "images")
    check_dense(keep, "keep")
    if not 3 <= images.ndim <= 5:
        raise ValueError(
            f"`images` must be (N, C, *S) with one to three spatial axes; got shape {tuple(images.shape)}."
        )
    expected = (images.shape[0], *images.shape[2:])
    if tuple(keep.shape) != expected:
        raise ValueError(
            f"`keep` must be {expected}, one value per feature and none per channel; got {tuple(keep.shape)}."
        )
    if method in ("multigrid", "torch") and images.ndim == 3:
        raise ValueError(
            f"method={method!r} solves images (N, C, H, W) and volumes (N, C, D, H, W); got shape "
            f"{tuple(images.shape)}. Use 'auto' for signals."
        )


def _nothing_solved(work: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    kept = keep.flatten(1)
    finite = (work.flatten(2).isfinite() | ~kept[:, None]).all(2).all(1)
    estimate = torch.where(finite, 0.0, NOT_FINITE).masked_fill(~kept.any(1), NOTHING_KEPT).cpu()
    values = work.clone(memory_format=torch.contiguous_format)
    return values, torch.zeros(len(work), dtype=torch.int64), estimate, ~kept.all(1).cpu()


def _solve_lines(work: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Solve grids of which all sides but one are 1; nothing misses the tolerance."""
    _, cycles, estimate, removed = _nothing_solved(work, keep)
    kept = keep.flatten(1)
    filled = interpolate(work.flatten(2), kept | ~kept.any(1, keepdim=True)).reshape(work.shape)
    return torch.where(keep[:, None], work, filled.to(work)), cycles, estimate, torch.zeros_like(removed)


def _solve_multigrid(
    work: Tensor, keep: Tensor, tolerance: float, *, compiled: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Solve by cycles; also return which images missed the tolerance."""
    if work.dim() == 5 and 1 in work.shape[2:]:  # a volume of one slice is an image: its weights are all doubled
        sides = [side for side in work.shape[2:] if side > 1]
        sides = [1] * (2 - len(sides)) + sides
        solved = _solve_multigrid(
            work.reshape(*work.shape[:2], *sides), keep.reshape(-1, *sides), tolerance, compiled=compiled
        )
        return solved[0].reshape(work.shape), *solved[1:]
    library = load_library() if compiled and work.device.type == "cpu" else None
    if library is not None:
        values, cycles, estimate = solve_images(library, work, keep, tolerance, _MOST_CYCLES)
    else:
        values, cycles, estimate = solve_batch(work, keep, tolerance, _MOST_CYCLES)
        missed = estimate == MISSED
        if missed.any() and work.dtype == torch.float32 and work.device.type != "mps":  # it has no float64
            rows, mask = missed.nonzero().flatten(), missed.to(work.device)
            again = solve_batch(work[mask].double(), keep[mask], tolerance, _MOST_CYCLES)
            values[mask], cycles[rows], estimate[rows] = again[0].to(work.dtype), again[1], again[2]
    missed = estimate == MISSED
    return values, cycles.masked_fill(missed, 0), estimate.masked_fill(missed, 0), missed
