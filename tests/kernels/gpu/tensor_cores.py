"""Products of Triton's interpreter with the operands that a GPU's tensor cores would see.

The interpreter ignores the precision of a product, and multiplies the bits of bfloat16 numbers as
integers. Here operands are rounded as the hardware rounds them, and products are summed in float32.
"""

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def install(monkeypatch):
    """Replace the interpreter's products, and its rounding to bfloat16."""
    cast = InterpreterBuilder.cast_impl

    def cast_impl(self, src, dst_type):
        if (src.dtype.scalar, dst_type.scalar) == (tl.float32, tl.bfloat16):
            bits = torch.from_numpy(src.data).bfloat16().view(torch.uint16).numpy()
            return TensorHandle(bits, tl.bfloat16)
        return cast(self, src, dst_type)

    def create_dot(self, a, b, d, precision, _):
        if a.dtype.scalar == tl.bfloat16:
            assert b.dtype.scalar == tl.bfloat16
            result = bf16(a.data) @ bf16(b.data)
        elif precision == ir.INPUT_PRECISION.TF32:
            result = tf32(a.data) @ tf32(b.data)
        else:
            assert precision == ir.INPUT_PRECISION.TF32x3
            result = three_products(a.data, b.data)
        return TensorHandle(result + d.data, d.dtype.scalar)

    monkeypatch.setattr(InterpreterBuilder, "cast_impl", cast_impl)
    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)


def bf16(bits: np.ndarray) -> np.ndarray:
    """Return bfloat16 numbers, given by their bits, in float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def tf32(x: np.ndarray) -> np.ndarray:
    """Return numbers with their fraction cut to 10 bits: the largest error of the hardware."""
    return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def three_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return high·high + high·low + low·high, x = high + low."""
    highs = (tf32(a), tf32(b))
    lows = (tf32(a - tf32(a)), tf32(b - tf32(b)))
    return highs[0] @ highs[1] + highs[0] @ lows[1] + lows[0] @ highs[1]
