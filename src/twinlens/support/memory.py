"""Memory of a process: freed memory is kept for the next batch."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # their numbers in malloc.h


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
