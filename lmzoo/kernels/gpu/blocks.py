"""Functions that kernels of recurrences call: weights on the chip, products, and tanh."""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def load_weight(
    weight, p, H, G, first, COLUMNS: tl.constexpr, TRANSPOSED: tl.constexpr, PRECISION: tl.constexpr
):
    """Return columns first .. first + H of a weight (P, H, G) of member p, zero outside.

    The transpose is loaded as such, so that both sides of a product are in the order it needs.
    """
    i = tl.arange(0, COLUMNS)[:, None]
    j = tl.arange(0, COLUMNS)[None, :]
    at = p * H * G + first
    if TRANSPOSED:
        at += j * G + i
    else:
        at += i * G + j
    loaded = tl.load(weight + at, mask=(i < H) & (j < H), other=0.0)
    if PRECISION == "bf16":
        loaded = loaded.to(tl.bfloat16)
    return loaded


@triton.jit
@no_type_check
def product(a, weight, PRECISION: tl.constexpr):
    """Return a W in float32; W comes from `load_weight` with the same precision."""
    if PRECISION == "bf16":
        result = tl.dot(a.to(tl.bfloat16), weight)
    else:
        result = tl.dot(a, weight, input_precision=PRECISION)
    return result


@triton.jit
@no_type_check
def tanh(x):
    """Return tanh x from the logistic function, which Triton has."""
    return 2 * tl.sigmoid(2 * x) - 1
