"""Memory of a process: whether it ran out, the size of its cache, and freed memory that is kept for the next batch."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # their numbers in malloc.h
_LARGEST_BLOCK = 31 * 2**20  # bytes; glibc never learns to keep blocks of 32 MiB and more
_kept: list[bool] = []
_TEXTS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "could not create a primitive",
)
_NO_THREAD = ("can't start new thread", "resource temporarily unavailable", "thread creation failed")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, on any device, as also when a file cannot be mapped."""
    short = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    return short or any(text in str(error).lower() for text in _TEXTS)


def describe_shortage(error: BaseException) -> str | None:
    """Say which resource of the machine ran out, and what to do; None for other errors."""
    if is_out_of_memory(error):
        own = str(error) if isinstance(error, MemoryError) else ""  # that of torch has many lines
        reason = own.splitlines()[0].rstrip(".") if own.strip() else "memory ran out"
        return f"{reason}. Use a smaller batch size or inputs, or a machine with more memory."
    if any(text in str(error).lower() for text in _NO_THREAD):
        return "the system starts no further thread or process. Raise its limit (ulimit -u), or use fewer workers."
    return None


def keep_freed_memory() -> bool:
    """Let the C library keep the memory that torch frees; return whether it does.

    By default glibc returns blocks of more than 32 MB to the kernel, which has to clear them at the next layer: 40% of
    the CPU time of a gradient at 224 × 224. For our own commands and workers only, never for a program that imports us.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    _kept[:] = [bool(mallopt(_MMAP_THRESHOLD, 2**30)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))]
    return _kept[0]


def keeps_freed_memory() -> bool:
    """Return whether `keep_freed_memory` has taken effect in this process."""
    return any(_kept)


@cache
def teach_allocator() -> None:
    """Free one large block, from which glibc learns to reuse those of the following batches.

    It keeps blocks up to the size of the largest one freed so far, at most 32 MiB. Without this, a first batch of 20 MB
    per layer sets a limit that the next layers exceed, and takes half as long again.
    """
    bytearray(_LARGEST_BLOCK)


@cache
def second_level_cache() -> int:
    """Return the bytes of a core's second-level cache as the system reports them, within 256 KiB to 4 MiB.

    Where it does not report them, 1 MiB.
    """
    try:
        size = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (AttributeError, ValueError, OSError):
        size = 0
    return min(max(size, 2**18), 2**22) if size > 0 else 2**20
