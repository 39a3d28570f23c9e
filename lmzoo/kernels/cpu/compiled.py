"""Compile kernels on their first call and cache them on disk for later processes."""

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
"""Division follows C, sums may be reordered, NaN and ∞ are respected."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel with numba when it is first called.

    If numba finds no writable cache folder (next to the source or the user's), every process
    compiles the kernel again.
    """
    kernel: Any = njit(function, **OPTIONS)
    with contextlib.suppress(RuntimeError):  # numba raises it if no folder is writable
        kernel._cache = KernelCache(function)
    return kernel


class KernelCache(FunctionCache):
    """numba's disk cache, invalidated by a change in any kernel file.

    numba checks only the file of the kernel itself, but kernels call kernels of other files.
    """

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), hash_sources())


def hash_sources() -> str:
    """Return a hash of all source files in this folder."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
