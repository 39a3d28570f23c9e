"""Freed memory that stays with the process instead of going back to the system.

A step of many members frees arrays of some megabytes and asks for them again at once. By
default glibc hands such memory back each time, and the system gives it anew page by
page, cleared: up to a fifth of the time of such a step. A process then holds on to the
most that it has used at a time, at most `HELD` of it unused.
"""

import ctypes

HELD = 1 << 30
"""Bytes at the end of the heap that may lie unused before they are handed back."""

LARGEST = 1 << 25
"""Blocks up to this size come from the heap; glibc takes no larger number."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_freed() -> bool:
    """Ask the C library for it; False where it is none that can be asked."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no glibc; on Windows no such handle at all
        return False
    return bool(mallopt(_TRIM_THRESHOLD, HELD)) and bool(mallopt(_MMAP_THRESHOLD, LARGEST))
