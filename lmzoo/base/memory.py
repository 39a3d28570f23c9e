"""The memory of this machine, against which sizes are checked, and Python's garbage collection."""

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path

from lmzoo.base.errors import UserError

CGROUP = Path("/sys/fs/cgroup/memory.max")
"""The limit of a container; "max" or no file if there is none."""


def machine_bytes() -> int:
    """Return the memory of this machine, or of its container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        # In a container, the machine has more than the process may take.
        total = min(total, int(CGROUP.read_text()))
    return total


def require_memory(size: int, what: str):
    """Raise a `UserError` if `size` bytes, which `what` needs, are more than the machine has."""
    there = machine_bytes()
    if size > there:
        raise UserError(
            f"{what} needs at least {_text(size)}, but this machine has {_text(there)} of memory; "
            "choose smaller sizes"
        )


@contextlib.contextmanager
def allocating(what: str) -> Iterator[None]:
    """Turn the error of an allocator in this block into a `UserError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # torch raises a RuntimeError for many reasons.
        text = str(error)
        if not isinstance(error, MemoryError) and "allocate" not in text and "storage" not in text:
            raise
        raise UserError(f"{what} does not fit into memory; choose smaller sizes") from error


def _text(size: int) -> str:
    if size >= 2**30:
        return f"{size / 2**30:,.0f} GiB"
    return f"{size / 2**20:,.0f} MiB"


@contextlib.contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection, which takes a tenth of the time of imports: they free little."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
