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
        types = (src.dtype.scalar, dst_type.scalar)
        if types == (tl.float32, tl.bfloat16):
            # NumPy has no bfloat16.
            rounded = torch.from_numpy(src.data).bfloat16()
            bits = rounded.view(torch.uint16).numpy()
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
        total = result + d.data
        return TensorHandle(total, d.dtype.scalar)

    monkeypatch.setattr(InterpreterBuilder, "cast_impl", cast_impl)
    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)


def bf16(bits):
    """Return bfloat16 numbers, given by their bits, in float32."""
    # A bfloat16 number is the first half of one of float32.
    wide = bits.astype(np.uint32) << 16
    return wide.view(np.float32)


def tf32(x):
    """Return numbers with their fraction cut to 10 bits: the largest error of the hardware."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    cut = bits & np.uint32(0xFFFFE000)
    return cut.view(np.float32)


def three_products(a, b):
    """Return high·high + high·low + low·high, x = high + low."""
    high_a = tf32(a)
    high_b = tf32(b)
    # What the first operand lost by rounding.
    low_a = tf32(a - high_a)
    low_b = tf32(b - high_b)
    return high_a @ high_b + high_a @ low_b + low_a @ high_b
