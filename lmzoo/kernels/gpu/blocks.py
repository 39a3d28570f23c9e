"""Functions that kernels of recurrences call: weights on the chip, products, and activations."""

from typing import no_type_check

import triton
import triton.language as tl

LIMIT = tl.constexpr(0.9999)
"""The MGRU clips 2 h − 1 to ±LIMIT before its atanh."""


@triton.jit
@no_type_check
def tile(p, B, H, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    """Return the columns of a program, p B + b of its sequences, and which of both exist."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    i = tl.arange(0, COLUMNS)[None, :]
    return i, p * B + row, (row < B) & (i < H)


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
    """Return a W in float32."""
    if PRECISION == "bf16":
        result = tl.dot(a.to(tl.bfloat16), weight.to(tl.bfloat16))
    else:
        result = tl.dot(a, weight, input_precision=PRECISION)
    return result


@triton.jit
@no_type_check
def tanh(x):
    """Return tanh x from the logistic function, which Triton has."""
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
@no_type_check
def activate(a, ACTIVATION: tl.constexpr):
    """Return the activation of a vanilla recurrent network."""
    if ACTIVATION == "tanh":
        a = tanh(a)
    elif ACTIVATION == "sigmoid":
        a = tl.sigmoid(a)
    elif ACTIVATION == "relu":
        a = tl.where(a < 0, 0.0, a)  # NaN stays NaN
    return a


@triton.jit
@no_type_check
def activation_gradient(delta, h, ACTIVATION: tl.constexpr):
    """Return the gradient of an activation's argument, given its result h and that of h."""
    if ACTIVATION == "tanh":
        delta *= 1 - h * h
    elif ACTIVATION == "sigmoid":
        delta *= h * (1 - h)
    elif ACTIVATION == "relu":
        delta = tl.where(h <= 0, 0.0, delta)
    return delta


@triton.jit
@no_type_check
def read_state(h, READ: tl.constexpr):
    """Return what the gate of the MGRU reads of its state, q, and ∂q/∂h."""
    if READ == "logit":
        x = 2 * h - 1
        clipped = tl.where(x > LIMIT, LIMIT, tl.where(x < -LIMIT, -LIMIT, x))  # NaN stays NaN
        q = 0.5 * tl.log((1 + clipped) / (1 - clipped))
        slope = tl.where((x >= -LIMIT) & (x <= LIMIT), 2 / (1 - clipped * clipped), 0.0)
    else:
        q = h - 0.5 if READ == "centred" else h
        slope = tl.full(h.shape, 1.0, tl.float32)
    return q, slope
