"""Functions that kernels call: places and numbers, weights on the chip, products, activations."""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
def numbers(axis: tl.constexpr, SIZE: tl.constexpr):
    """Return the numbers that belong to a program, SIZE of them, along an axis of the grid."""
    return tl.program_id(axis) * SIZE + tl.arange(0, SIZE)


@triton.jit
def program_int64(axis: tl.constexpr):
    """Return the index of a program: in 64 bits, because offsets of a large pack exceed 32."""
    return tl.program_id(axis).to(tl.int64)


@triton.jit
def load(pointers, ok):
    """Return what the pointers point at, and 0 where `ok` is false."""
    return tl.load(pointers, mask=ok, other=0.0)


@triton.jit
def tile(p, B, H, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    """Return the columns of a program, p B + b of its sequences, and which of both exist."""
    row = numbers(0, ROWS)[:, None]
    i = tl.arange(0, COLUMNS)[None, :]
    return i, p * B + row, (row < B) & (i < H)


# Called before the loop over time, so that the weights are read once.
@triton.jit
@no_type_check
def load_weights(
    weight,
    p,
    H,
    BLOCKS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the blocks of a weight (P, BLOCKS, H, H) of member p, zero outside.

    The transpose is loaded as such, so that both sides of a product are in the order it needs.
    """
    i = tl.arange(0, COLUMNS)[:, None]
    j = tl.arange(0, COLUMNS)[None, :]
    blocks = ()
    for k in tl.static_range(BLOCKS):
        at = (p * BLOCKS + k) * H * H
        at += j * H + i if TRANSPOSED else i * H + j
        # Zeros outside: padded columns add nothing to a product.
        block = load(weight + at, (i < H) & (j < H))
        if PRECISION == "bf16":
            block = block.to(tl.bfloat16)
        blocks = blocks + (block,)
    return blocks


@triton.jit
def vector(memory, K: tl.constexpr):
    """Load vector K of a step; steps load late, because a vector takes registers."""
    pointer, at, H, ok = memory
    return load(pointer + at + K * H, ok)


# Sums are float32 also where the operands are not.
@triton.jit
def product(a, weight, PRECISION: tl.constexpr):
    """Return a W in float32."""
    if PRECISION == "bf16":
        result = tl.dot(a.to(tl.bfloat16), weight.to(tl.bfloat16))
    else:
        result = tl.dot(a, weight, input_precision=PRECISION)
    return result


@triton.jit
def tanh(x):
    """Return tanh x from the logistic function, which Triton has."""
    return 2 * tl.sigmoid(2 * x) - 1
