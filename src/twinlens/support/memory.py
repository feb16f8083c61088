"""Memory of a process: whether it ran out, and how freed memory is kept for the next batch."""

from __future__ import annotations

import ctypes
import errno
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # their numbers in malloc.h
_TEXTS = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, on any device, as also when a file cannot be mapped."""
    short = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    return short or any(text in str(error).lower() for text in _TEXTS)


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
    return bool(mallopt(_MMAP_THRESHOLD, 2**30)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
