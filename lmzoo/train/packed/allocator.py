"""Keep freed memory in the process instead of returning it to the system.

A training step of a pack frees arrays of some megabytes and allocates them again in the next step.
By default glibc returns such memory, and the system then clears every page that it hands out again:
up to a fifth of the step. With the settings below a process keeps its peak memory, of which at most
`MAX_UNUSED` bytes may be unused.
"""

import ctypes

MAX_UNUSED = 1 << 30
"""Unused bytes at the end of the heap above which glibc returns memory."""

MAX_BLOCK = 1 << 25
"""Blocks up to this many bytes come from the heap; glibc accepts no larger value."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h


def retain_freed_memory() -> bool:
    """Configure glibc to retain freed memory; return False if there is no glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc; on Windows CDLL(None) fails
        return False
    return bool(mallopt(_TRIM_THRESHOLD, MAX_UNUSED)) and bool(mallopt(_MMAP_THRESHOLD, MAX_BLOCK))
