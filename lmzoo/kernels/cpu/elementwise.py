r"""Smooth functions in compiled loops, where the compiler makes them of many numbers at once.

    e^x − 1 = 2^k (e^r − 1) + 2^k − 1      k = round(x / ln 2),  r = x − k ln 2,  |r| ≤ ½ ln 2
    σ(x) = 1 / (1 + e^−x)                  tanh(x) = (e^2x − 1) / (e^2x + 1)

    ln(1 + w) = k ln 2 + ln(1 + r)         1 + w = 2^k (1 + r),  ½ ≤ (1 + r)² < 2
    atanh(x) = ½ ln(1 + w), 0 ≤ x < 1      w = 2x / (1 − x);  atanh(−x) = −atanh(x)

In single precision e^r − 1 = r + r² q(r) and ln(1 + r) = r − ½ r² + r³ q(r), q the polynomials
of Cephes; within three units of the last place, near zero too. Double precision calls the C
library, a number at a time.

Moshier 1989, Methods and Programs for Mathematical Functions (Cephes, `expf`, `logf`).
"""

import math
from typing import Any, no_type_check

from llvmlite import ir
from numba import float32, int32, njit, types
from numba.extending import intrinsic, overload

MOST = 87
"""A larger power of e leaves single precision."""
ONE = 15
"""In single precision tanh is one from here on."""
EXACT: Any = {"fastmath": {"contract"}, "error_model": "numpy"}
"""No sum is reordered: rounding by adding depends on it."""


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


@overload(exp, jit_options=EXACT)
@no_type_check
def _exp(x):
    if x != types.float32:
        return lambda x: math.exp(x)

    def single(x):
        power, less = _reduced(max(x, float32(-MOST)))
        there = power * (less + float32(1))
        return float32(0) if x < float32(-MOST) else there

    return single


@overload(sigmoid, jit_options=EXACT)
@no_type_check
def _sigmoid(x):
    if x != types.float32:
        return lambda x: 1 / (1 + math.exp(-x))
    return lambda x: float32(1) / (_expm1(min(max(-x, float32(-MOST)), float32(MOST))) + float32(2))


@overload(tanh, jit_options=EXACT)
@no_type_check
def _tanh(x):
    if x != types.float32:
        return lambda x: math.tanh(x)

    def single(x):
        e = _expm1(min(max(x + x, float32(-2 * ONE)), float32(2 * ONE)))
        return e / (e + float32(2))

    return single


@overload(atanh, jit_options=EXACT)
@no_type_check
def _atanh(x):
    if x != types.float32:
        return lambda x: math.atanh(x)

    def single(x):
        size = abs(x)
        y = float32(0.5) * _log1p((size + size) / (float32(1) - size))
        return -y if x < 0 else y

    return single


@njit(**EXACT)
@no_type_check
def _expm1(x):
    power, less = _reduced(x)
    return power * less + (power - float32(1))


@njit(**EXACT)
@no_type_check
def _reduced(x) -> Any:
    """2^k and e^r − 1."""
    rounding = float32(1.5 * 2**23)
    k = (x * float32(1.44269504) + rounding) - rounding
    r = (x - k * float32(0.693359375)) + k * float32(2.12194440e-4)
    q = float32(1.9875691500e-4)
    q = q * r + float32(1.3981999507e-3)
    q = q * r + float32(8.3334519073e-3)
    q = q * r + float32(4.1665795894e-2)
    q = q * r + float32(1.6666665459e-1)
    q = q * r + float32(5.0000001201e-1)
    return _power(int32(k)), r + r * r * q


@njit(**EXACT)
@no_type_check
def _log1p(w):
    k = _exponent(float32(1) + w)
    less = _power(-k)
    r = less * w + (less - float32(1))  # 1 + w is rounded
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
@no_type_check
def _power(typing, k):
    """2^k in single precision, −127 < k < 128: its bits."""

    def codegen(context, builder, signature, args):
        number = ir.IntType(32)
        biased = builder.add(args[0], ir.Constant(number, 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(number, 23)), ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
@no_type_check
def _exponent(typing, x):
    """k of x = 2^k m in single precision, x ≥ 1 and ½ ≤ m² < 2: what its bits have over √½'s."""

    def codegen(context, builder, signature, args):
        number = ir.IntType(32)
        over = builder.sub(builder.bitcast(args[0], number), ir.Constant(number, 0x3F3504F3))
        return builder.ashr(over, ir.Constant(number, 23))

    return types.int32(types.float32), codegen
