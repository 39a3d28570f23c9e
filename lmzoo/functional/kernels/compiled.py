"""How a loop is compiled: when first called, and kept on disk for every later process."""

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """A loop as machine code, with C's division; sums may be reordered, NaN and ∞ stay.

    Where neither the source's folder nor the user's can be written, each process compiles anew.
    """
    how = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
    try:
        return njit(loop, cache=True, **how)
    except RuntimeError:  # numba's, of a function that it finds no place for
        return njit(loop, **how)
