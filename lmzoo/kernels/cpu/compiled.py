"""How a loop is compiled: when first called, and kept on disk for every later process."""

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

HOW = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}


def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """A loop as machine code, with C's division; sums may be reordered, NaN and ∞ stay.

    Where neither the source's folder nor the user's can be written, each process compiles anew.
    """
    found: Any = njit(loop, **HOW)
    with contextlib.suppress(RuntimeError):  # numba's, of a function that it finds no place for
        found._cache = Kept(loop)
    return found


class Kept(FunctionCache):
    """What numba keeps of a loop, for as long as no source of any loop changes.

    By itself it looks at the loop's own file only, and would keep what it called from another.
    """

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), sources())


def sources() -> str:
    """A hash of the sources of all loops."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
