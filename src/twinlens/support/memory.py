"""Memory of a process of ours: what was freed is kept for the next batch."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them


def keep_freed_memory() -> bool:
    """Let the C library keep what torch frees, for as long as the process lives; return whether it does.

    By default glibc returns blocks of more than 32 MB to the kernel at once, which has to clear them at the next layer:
    four tenths of the CPU time of a gradient at 224 × 224. This is for commands and workers, and never for a program
    that imports us, whose memory is its own.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 2**30)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
