"""Compile kernels on their first call and cache them on disk for other processes.

A kernel takes seconds to compile. If several processes need it, one compiles it and the others wait
and load it: numba alone would compile it in each of them.
"""

import contextlib
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock
from numba import njit
from numba.core.caching import FunctionCache

OPTIONS = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz"},
}
"""Division follows C, sums may be reordered, NaN and ∞ are respected."""

WAIT = 120.0
"""Seconds after which a process compiles a kernel that another one seems to compile.

A process whose compilation fails keeps the lock until it ends, so no wait may be without a limit.
"""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel with numba when it is first called.

    If numba finds no writable cache folder (next to the source or the user's), every process
    compiles the kernel again.
    """
    kernel: Any = njit(function, **OPTIONS)
    with contextlib.suppress(RuntimeError):  # numba raises it if no folder is writable
        # numba has no public way to give a function another cache.
        kernel._cache = KernelCache(function)
    return kernel


class KernelCache(FunctionCache):
    """numba's disk cache, invalidated by a change in any kernel file.

    numba checks only the file of the kernel itself, but kernels call kernels of other files.
    """

    @functools.cached_property
    def _lock(self) -> Any:
        """Made late: a process that is forked cannot use the lock of its parent."""
        return FileLock(Path(self.cache_path) / f"{self._impl.filename_base}.lock")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel; None if this process has to compile it, while others wait."""
        found = super().load_overload(sig, target_context)
        if found is not None:
            return found
        with contextlib.suppress(OSError, NotImplementedError):  # late, or a disk without locks
            self._impl.locator.ensure_cache_path()
            self._lock.acquire(timeout=WAIT)
        found = super().load_overload(sig, target_context)
        if found is not None:
            # The kernel is there: those that wait can load it, too.
            self._lock.release(force=True)
        return found

    def save_overload(self, sig: Any, data: Any):
        """Write what this process has compiled, and let others load it."""
        try:
            super().save_overload(sig, data)
        # Also where nothing can be written: others would wait in vain.
        finally:
            self._lock.release(force=True)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return super()._index_key(sig, codegen) + (hash_sources(),)


def hash_sources() -> str:
    """Return a hash of all source files in this folder."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
