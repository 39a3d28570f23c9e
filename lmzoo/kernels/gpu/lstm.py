"""A step of long short-term memory, in the symbols of `kernels/cpu/lstm.py`.

The columns are i, f, g and o, those of f only with a forget gate. The gates are saved, then c.
"""

from dataclasses import dataclass
from typing import no_type_check

import triton
import triton.language as tl

from lmzoo.kernels.gpu.blocks import product, tanh
from lmzoo.kernels.gpu.scan import GpuRecurrence


@triton.jit
@no_type_check
def _step(a, h, c, weights, b, FLAGS: tl.constexpr, PRECISION: tl.constexpr):
    FORGET: tl.constexpr = FLAGS[0]
    i = tl.sigmoid(a[0] + product(h, weights[0], PRECISION))
    if FORGET == "gate":
        f = tl.sigmoid(a[1] + product(h, weights[1], PRECISION))
        g = tanh(a[2] + product(h, weights[2], PRECISION))
        o = tl.sigmoid(a[3] + product(h, weights[3], PRECISION))
        c = f * c + i * g
        saved = (i, f, g, o, c)
    else:
        g = tanh(a[1] + product(h, weights[1], PRECISION))
        o = tl.sigmoid(a[2] + product(h, weights[2], PRECISION))
        if FORGET == "coupled":
            c = (1 - i) * c
        c += i * g
        saved = (i, g, o, c)
    return o * tanh(c), c, saved


@triton.jit
@no_type_check
def _step_backward(
    delta, gamma, state, saved, weights, FLAGS: tl.constexpr, PRECISION: tl.constexpr
):
    FORGET: tl.constexpr = FLAGS[0]
    c = state[2]
    if FORGET == "gate":
        i, f, g, o, new = saved
    else:
        i, g, o, new = saved
    q = tanh(new)
    gamma += delta * o * (1 - q * q)
    d_o = delta * q * o * (1 - o)
    d_g = gamma * i * (1 - g * g)
    if FORGET == "coupled":
        d_i = gamma * (g - c) * i * (1 - i)
    else:
        d_i = gamma * g * i * (1 - i)
    carried = product(d_i, weights[0], PRECISION)
    if FORGET == "gate":
        d_f = gamma * c * f * (1 - f)
        carried += product(d_f, weights[1], PRECISION)
        carried += product(d_g, weights[2], PRECISION)
        carried += product(d_o, weights[3], PRECISION)
        gamma = gamma * f
        deltas = (d_i, d_f, d_g, d_o)
    else:
        carried += product(d_g, weights[1], PRECISION)
        carried += product(d_o, weights[2], PRECISION)
        if FORGET == "coupled":
            gamma = gamma * (1 - i)
        deltas = (d_i, d_g, d_o)
    return carried, gamma, deltas, ()


@dataclass(frozen=True)
class Scan(GpuRecurrence):
    """Weight W_h; start is (h, c)."""

    steps = _step, _step_backward
    vectors = 2
    forget: str = "gate"
    """gate; none: f ≡ 1; coupled: f = 1 − i."""

    @property
    def blocks(self) -> int:
        return 4 if self.forget == "gate" else 3

    @property
    def saved(self) -> int:
        return self.blocks + 1

    @property
    def flags(self) -> tuple[str]:
        return (self.forget,)
