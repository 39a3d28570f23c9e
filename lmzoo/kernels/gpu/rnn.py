"""A step of the vanilla recurrent network, in the symbols of `kernels/cpu/rnn.py`."""

from dataclasses import dataclass

import triton
import triton.language as tl

from lmzoo.kernels.gpu.blocks import product, tanh, vector
from lmzoo.kernels.gpu.scan import GpuRecurrence


@triton.jit
def _activate(a, ACTIVATION: tl.constexpr):
    """Return the activation of a vanilla recurrent network."""
    if ACTIVATION == "tanh":
        a = tanh(a)
    elif ACTIVATION == "sigmoid":
        a = tl.sigmoid(a)
    elif ACTIVATION == "relu":
        a = tl.where(a < 0, 0.0, a)  # NaN stays NaN
    return a


@triton.jit
def _activation_gradient(delta, h, ACTIVATION: tl.constexpr):
    """Return the gradient of an activation's argument, given its result h and that of h."""
    if ACTIVATION == "tanh":
        delta *= 1 - h * h
    elif ACTIVATION == "sigmoid":
        delta *= h * (1 - h)
    elif ACTIVATION == "relu":
        delta = tl.where(h <= 0, 0.0, delta)
    return delta


@triton.jit
def _step(a, h, c, weights, b, FLAGS: tl.constexpr, PRECISION: tl.constexpr):
    NAME: tl.constexpr = FLAGS[0]  # Triton 3.6 accepts no other text as an argument
    return (
        _activate(vector(a, 0) + product(h, weights[0], PRECISION), NAME),
        c,
        (),
    )


@triton.jit
def _step_backward(
    delta,
    gamma,
    state,
    saved,
    weights,
    FLAGS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    NAME: tl.constexpr = FLAGS[0]
    # From the output alone: no input of the activation is stored.
    d = _activation_gradient(delta, state[1], NAME)
    return product(d, weights[0], PRECISION), gamma, (d,), ()


@dataclass(frozen=True)
class Scan(GpuRecurrence):
    """Weight W_h."""

    steps = _step, _step_backward
    blocks = 1
    # The gradient of each activation follows from h alone.
    saved = 0
    activation: str = "tanh"
