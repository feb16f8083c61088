"""The compiled solver of ``multigrid``: a library of plain C (``multigrid.c``), called through ctypes.

The package's build compiles it where there is a compiler; wheels carry it. Calls release the interpreter lock.

Shapes: N images, C channels, S = spatial shape: H×W pixels, or D×H×W voxels of a volume.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, c_double, c_int, c_int64, c_void_p
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

_LOG = logging.getLogger("twinlens")
_NO_MEMORY = -4.0  # returned instead of an error estimate
_VALUES_PER_TASK = 2**17
_MOST_SPARE = 2**20  # values of an image; buffers of larger ones are freed after each call
_spare: dict[tuple[int, ...], list[_Workspace]] = {}  # workspaces of the last kind of images, for the next call


@cache
def load_library() -> CDLL | None:
    """Load the compiled solver; without it, log the reason and the remedy once, and return None.

    The environment variable ``TWINLENS_SOLVER=torch`` disables it.
    """
    if os.environ.get("TWINLENS_SOLVER") == "torch":
        return None
    spec = find_spec("twinlens.imputation._multigrid")
    try:
        if spec is None or spec.origin is None:
            raise OSError("this installation has none")
        library = CDLL(spec.origin)
        library.twinlens_workspace.argtypes = [c_int64] * 4
        library.twinlens_workspace.restype = c_void_p
        library.twinlens_free.argtypes = [c_void_p]
        library.twinlens_free.restype = None
        library.twinlens_solve.argtypes = [
            *(c_void_p, c_void_p, c_int64, c_int, c_void_p, c_int64, c_int64),  # workspace; images from first to last
            *(c_double, c_int64, c_void_p, c_void_p, c_void_p),  # tolerance, most cycles; outputs
        ]
        library.twinlens_solve.restype = None
        library.twinlens_noise.argtypes = [
            *(c_void_p, c_void_p, c_void_p, c_int64, c_int64),  # images, keep, seeds; images from first to last
            *(c_int64, c_int64, c_double, c_void_p),  # channels, pixels, standard deviation; output
        ]
        library.twinlens_noise.restype = None
    except (OSError, AttributeError) as error:
        _LOG.warning(
            "Linear imputation runs without its compiled solver, about ten times as slowly (%s). "
            "Install a C compiler, such as gcc, and then twinlens again.",
            error,
        )
        return None
    return library


class _Workspace:
    """The buffers of one thread."""

    def __init__(self, library: CDLL, shape: tuple[int, ...]) -> None:
        self.free: Callable[[int], None] = library.twinlens_free
        channels, *sides = shape
        self.address: int | None = library.twinlens_workspace(channels, *[1] * (3 - len(sides)), *sides)
        if self.address is None:
            raise _out_of_memory(shape)

    def __del__(self) -> None:
        if self.address is not None:
            self.free(self.address)


def _out_of_memory(shape: tuple[int, ...]) -> MemoryError:
    return MemoryError(f"`images` of shape (N, {', '.join(map(str, shape))}) need more memory than is available.")


def solve_images(
    library: CDLL, images: Tensor, keep: Tensor, tolerance: float, most_cycles: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve checked images (N, C, *S) in as many threads as torch uses, in float64 where float32 is not enough.

    Returns:
        Filled images, cycles (N,) and estimated errors (N,), or the code of a failure instead of the error.
    """
    n, *shape = images.shape
    source = images if n and images[0].is_contiguous() else images.contiguous()
    kept, out = keep.contiguous(), torch.empty(images.shape, dtype=images.dtype)
    cycles, estimate = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.float64)
    kind, values = tuple(shape), max(1, math.prod(shape))
    if kind not in _spare:
        _spare.clear()
    spare = _spare.setdefault(kind, []) if values <= _MOST_SPARE else []
    inputs = (source.data_ptr(), source.stride(0), source.dtype == torch.float64, kept.data_ptr())
    outputs = (out.data_ptr(), cycles.data_ptr(), estimate.data_ptr())

    def work(spans: Iterator[tuple[int, int]]) -> None:
        try:
            workspace = spare.pop()
        except IndexError:
            workspace = _Workspace(library, kind)
        for span in spans:
            library.twinlens_solve(workspace.address, *inputs, *span, tolerance, most_cycles, *outputs)
        spare.append(workspace)

    _in_threads(work, n, values)
    if (estimate == _NO_MEMORY).any():
        raise _out_of_memory(kind)
    return out, cycles, estimate


def _in_threads(work: Callable[[Iterator[tuple[int, int]]], None], n: int, values: int) -> None:
    """Call `work` in as many threads as torch uses, on an iterator over ranges of images that they share."""
    together = max(1, _VALUES_PER_TASK // values)
    spans = [(first, min(first + together, n)) for first in range(0, n, together)]
    threads, shared = min(torch.get_num_threads(), len(spans)), iter(spans)
    if threads <= 1:
        work(shared)
        return
    with ThreadPoolExecutor(threads) as pool:
        for task in [pool.submit(work, shared) for _ in range(threads)]:
            task.result()


def add_noise(
    library: CDLL, images: Tensor, keep: Tensor, seeds: Sequence[int], deviation: float, *, channels_last: bool
) -> Tensor:
    """Add Gaussian noise to the removed values of contiguous float32 images (N, C, *S), in place, and return them.

    The noise is `Tensor.normal_`'s on the CPU, up to rounding. With `channels_last`, a copy in that format is returned.
    """
    n, channels, pixels = *images.shape[:2], math.prod(images.shape[2:])
    kept, streams = keep.contiguous(), torch.tensor(seeds, dtype=torch.int64)
    out = torch.empty_like(images, memory_format=torch.channels_last) if channels_last else images
    inputs = (images.data_ptr(), kept.data_ptr(), streams.data_ptr())
    output = out.data_ptr() if channels_last else None

    def work(spans: Iterator[tuple[int, int]]) -> None:
        for span in spans:
            library.twinlens_noise(*inputs, *span, channels, pixels, deviation, output)

    _in_threads(work, n, max(1, channels * pixels))
    return out
