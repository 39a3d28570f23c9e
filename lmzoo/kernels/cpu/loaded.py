"""Loads what every kernel of a CPU needs; processes that are forked then share 0.5 s of CPU."""

import numba

from lmzoo.kernels.cpu import blas, elementwise, mgu, tied_softmax

__all__ = ["blas", "elementwise", "mgu", "tied_softmax"]

numba.njit(lambda value: value + 1)(1.0)  # the tables of the compiler
