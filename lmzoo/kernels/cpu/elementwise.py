r"""Functions of numbers and rows for kernels, in a form that the compiler vectorises.

    e^x − 1 = 2^k (e^r − 1) + 2^k − 1      k = round(x / ln 2),  r = x − k ln 2,  |r| ≤ ½ ln 2
    σ(x) = 1 / (1 + e^−x)                  tanh(x) = (e^2x − 1) / (e^2x + 1)

    ln(1 + w) = k ln 2 + ln(1 + r)         1 + w = 2^k (1 + r),  ½ ≤ (1 + r)² < 2
    atanh(x) = ½ ln(1 + w), 0 ≤ x < 1      w = 2x / (1 − x);  atanh(−x) = −atanh(x)

In single precision e^r − 1 = r + r² q(r) and ln(1 + r) = r − ½ r² + r³ q(r), q the polynomials
of Cephes; the error is at most three units in the last place, also near zero. Double precision
calls the C library, one element at a time.

The maximum of a row is that of integers: a float's bits, all but the sign inverted where the sign
is set, are an integer of the same order. LLVM does not vectorise a maximum of floats because of
NaN. Here a NaN counts as larger or smaller than all numbers, depending on its sign.

Moshier 1989, Methods and Programs for Mathematical Functions (Cephes, `expf`, `logf`).
"""

import math
from typing import Any, no_type_check

import numpy as np
from llvmlite import ir
from numba import float32, int32, njit, types
from numba.extending import intrinsic, overload

MAX_EXPONENT = 87
"""Single precision holds e^x up to about here."""
TANH_IS_ONE = 15
"""In single precision tanh(x) is 1 for larger x."""
OPTIONS: Any = {"fastmath": {"contract"}, "error_model": "numpy"}
"""Sums must not be reordered: `_reduce` rounds by adding a large number and subtracting it."""


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^−x)."""
    return 1 / (1 + math.exp(-x))


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return math.tanh(x)


def atanh(x: Any) -> Any:
    """Inverse hyperbolic tangent, |x| < 1."""
    return math.atanh(x)


def exp(x: Any) -> Any:
    """e^x, x ≤ 0."""
    return math.exp(x)


# One name for both precisions: numba chooses by the type of the argument.
@overload(exp, jit_options=OPTIONS)
def _exp(x):
    if x != types.float32:
        return lambda x: math.exp(x)

    def single(x):
        power, rest = _reduce(max(x, float32(-MAX_EXPONENT)))
        y = power * (rest + float32(1))
        return float32(0) if x < float32(-MAX_EXPONENT) else y

    return single


@overload(sigmoid, jit_options=OPTIONS)
def _sigmoid(x):
    if x != types.float32:
        return lambda x: 1 / (1 + math.exp(-x))

    def single(x):
        e = _expm1(min(max(-x, float32(-MAX_EXPONENT)), float32(MAX_EXPONENT)))
        return float32(1) / (e + float32(2))

    return single


@overload(tanh, jit_options=OPTIONS)
def _tanh(x):
    if x != types.float32:
        return lambda x: math.tanh(x)

    def single(x):
        e = _expm1(min(max(x + x, float32(-2 * TANH_IS_ONE)), float32(2 * TANH_IS_ONE)))
        return e / (e + float32(2))

    return single


@overload(atanh, jit_options=OPTIONS)
def _atanh(x):
    if x != types.float32:
        return lambda x: math.atanh(x)

    def single(x):
        size = abs(x)
        y = float32(0.5) * _log1p((size + size) / (float32(1) - size))
        return -y if x < 0 else y

    return single


@njit(**OPTIONS)
def _expm1(x):
    power, rest = _reduce(x)
    return power * rest + (power - float32(1))


@njit(**OPTIONS)
@no_type_check
def _reduce(x) -> Any:
    """Return 2^k and e^r − 1."""
    # Single precision holds only whole numbers between 2^23 and 2^24: the sum is rounded to one.
    rounding = float32(1.5 * 2**23)
    k = (x * float32(1.44269504) + rounding) - rounding
    # ln 2 is a difference of two numbers; the first has 9 bits, so that k times it is exact.
    r = (x - k * float32(0.693359375)) + k * float32(2.12194440e-4)
    q = float32(1.9875691500e-4)
    q = q * r + float32(1.3981999507e-3)
    q = q * r + float32(8.3334519073e-3)
    q = q * r + float32(4.1665795894e-2)
    q = q * r + float32(1.6666665459e-1)
    q = q * r + float32(5.0000001201e-1)
    return _power(int32(k)), r + r * r * q


@njit(**OPTIONS)
@no_type_check
def _log1p(w):
    k = _exponent(float32(1) + w)
    scale = _power(-k)
    r = scale * w + (scale - float32(1))  # more exact than from the rounded 1 + w
    q = float32(7.0376836292e-2)
    q = q * r - float32(1.1514610310e-1)
    q = q * r + float32(1.1676998740e-1)
    q = q * r - float32(1.2420140846e-1)
    q = q * r + float32(1.4249322787e-1)
    q = q * r - float32(1.6668057665e-1)
    q = q * r + float32(2.0000714765e-1)
    q = q * r - float32(2.4999993993e-1)
    q = q * r + float32(3.3333331174e-1)
    tail = r * r * (r * q - float32(0.5)) - float32(k) * float32(2.12194440e-4)
    return float32(k) * float32(0.693359375) + (r + tail)


@intrinsic
def _power(typing, k):
    """Return 2^k in single precision, −127 < k < 128, by setting the exponent bits."""

    def codegen(context, builder, signature, args):
        number = ir.IntType(32)
        biased = builder.add(args[0], ir.Constant(number, 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(number, 23)), ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def _exponent(typing, x):
    """Return k of x = 2^k m in single precision, x ≥ 1 and ½ ≤ m² < 2, from the bits of x."""

    def codegen(context, builder, signature, args):
        number = ir.IntType(32)
        bits = builder.bitcast(args[0], number)
        offset = builder.sub(bits, ir.Constant(number, 0x3F3504F3))  # the bits of √½
        return builder.ashr(offset, ir.Constant(number, 23))

    return types.int32(types.float32), codegen


# In kernels `_row_max` takes its place, which the compiler vectorises.
def row_max(rows: Any, out: Any):
    """Write the maximum of each row of rows (N, K), K >= 1, to out (N)."""
    out[:] = rows.max(1)


@overload(row_max)
def _row_max(rows, out):
    kind = {types.float32: np.int32, types.float64: np.int64}[rows.dtype]
    sign = kind(np.iinfo(kind).bits - 1)
    rest = kind(np.iinfo(kind).max)
    least = kind(np.iinfo(kind).min)

    def by_bits(rows, out):
        bits = rows.view(kind)
        out_bits = out.view(kind)
        for n in range(len(bits)):
            row = bits[n]
            largest = least
            for k in range(len(row)):
                largest = max(largest, kind(row[k] ^ ((row[k] >> sign) & rest)))
            out_bits[n] = largest ^ ((largest >> sign) & rest)

    return by_bits
