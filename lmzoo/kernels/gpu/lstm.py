"""A step of long short-term memory, in the symbols of `kernels/cpu/lstm.py`.

The columns are i, f, g and o, those of f only with a forget gate. The gates are saved, then c.
"""

from dataclasses import dataclass
from typing import no_type_check

import triton
import triton.language as tl

from lmzoo.kernels.gpu.blocks import product, tanh, vector
from lmzoo.kernels.gpu.scan import GpuRecurrence


@triton.jit
@no_type_check
def _step(a, h, c, weights, b, FLAGS: tl.constexpr, PRECISION: tl.constexpr):
    FORGET: tl.constexpr = FLAGS[0]
    AT_G: tl.constexpr = 2 if FORGET == "gate" else 1
    i = tl.sigmoid(vector(a, 0) + product(h, weights[0], PRECISION))
    g = tanh(vector(a, AT_G) + product(h, weights[AT_G], PRECISION))
    o = tl.sigmoid(vector(a, AT_G + 1) + product(h, weights[AT_G + 1], PRECISION))
    if FORGET == "gate":
        f = tl.sigmoid(vector(a, 1) + product(h, weights[1], PRECISION))
        c = f * c + i * g
        saved = (i, f, g, o, c)
    else:
        c = i * g + ((1 - i) * c if FORGET == "coupled" else c)
        saved = (i, g, o, c)
    return o * tanh(c), c, saved


@triton.jit
@no_type_check
def _step_backward(
    delta,
    gamma,
    state,
    saved,
    weights,
    FLAGS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    FORGET: tl.constexpr = FLAGS[0]
    AT_G: tl.constexpr = 2 if FORGET == "gate" else 1
    q = tanh(vector(saved, AT_G + 2))
    c = state[2]
    i = vector(saved, 0)
    g = vector(saved, AT_G)
    o = vector(saved, AT_G + 1)
    # By h' = o q: the gradient of c' has a part of the output and one of the step after.
    gamma += delta * o * (1 - q * q)
    d_o = delta * q * o * (1 - o)
    d_g = gamma * i * (1 - g * g)
    if FORGET == "coupled":
        d_i = gamma * (g - c) * i * (1 - i)
    else:
        d_i = gamma * g * i * (1 - i)
    carried = product(d_i, weights[0], PRECISION)
    carried += product(d_g, weights[AT_G], PRECISION)
    carried += product(d_o, weights[AT_G + 1], PRECISION)
    deltas = (d_i, d_g, d_o)
    if FORGET == "gate":
        f = vector(saved, 1)
        d_f = gamma * c * f * (1 - f)
        carried += product(d_f, weights[1], PRECISION)
        gamma = gamma * f
        deltas = (d_i, d_f, d_g, d_o)
    elif FORGET == "coupled":
        gamma = gamma * (1 - i)
    return carried, gamma, deltas, ()


@dataclass(frozen=True)
class Scan(GpuRecurrence):
    """Weight W_h; start is (h, c)."""

    steps = _step, _step_backward
    vectors = 2
    forget: str = "gate"
    """gate; none: f ≡ 1; coupled: f = 1 − i."""

    @property
    def blocks(self) -> int:  # type: ignore[override]
        # Else the weight has no columns of f.
        if self.forget == "gate":
            return 4
        return 3

    @property
    def saved(self) -> int:  # type: ignore[override]
        # The gates, and c; h is an output.
        return self.blocks + 1
