"""A step of the gated recurrent unit, in the symbols of `kernels/cpu/gru.py`.

The columns are r, z and n. With reset=before the bias of the state's product is part of the
projected inputs; with reset=after, b_h is a weight.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import product, tanh, vector
from lmzoo.kernels.gpu.scan import GpuRecurrence, states_before, weight_gradient


@triton.jit
def _step(a, h, c, weights, b, FLAGS: tl.constexpr, PRECISION: tl.constexpr):
    r = tl.sigmoid(vector(a, 0) + product(h, weights[0], PRECISION))
    z = tl.sigmoid(vector(a, 1) + product(h, weights[1], PRECISION))
    if FLAGS[0]:  # reset=before
        m = r * h
        n = tanh(vector(a, 2) + product(m, weights[2], PRECISION))
    else:
        m = b + product(h, weights[2], PRECISION)
        n = tanh(vector(a, 2) + r * m)
    return z * h + (1 - z) * n, c, (r, z, n, m)


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
    h = state[0]
    m = vector(saved, 3)
    r = vector(saved, 0)
    z = vector(saved, 1)
    n = vector(saved, 2)
    d_n = delta * (1 - z) * (1 - n * n)
    d_z = delta * (h - n) * z * (1 - z)
    carried = delta * z
    if FLAGS[0]:
        s = product(d_n, weights[2], PRECISION)
        d_r = s * h * r * (1 - r)
        carried += s * r
    else:
        d_m = d_n * r
        d_r = d_m * m * (1 - r)
        carried += product(d_m, weights[2], PRECISION)
    # The weights of the backward kernel are transposed (`load_weights`).
    carried += product(d_r, weights[0], PRECISION)
    carried += product(d_z, weights[1], PRECISION)
    return carried, gamma, (d_r, d_z, d_n), ()


@dataclass(frozen=True)
class Scan(GpuRecurrence):
    """Weights W_h (columns r, z, n) and b_h (P, 1, H), which reset=before does not read."""

    steps = _step, _step_backward
    # For reset=after; the other form gets a bias that it does not read.
    biased = True
    blocks = 3
    saved = 4
    reset_before: bool = False

    def weight_gradients(
        self,
        start: Tensor,
        states: Tensor,
        saved: Tensor,
        deltas: Tensor,
        operands: Tensor,
    ) -> list[Tensor]:
        width = states.shape[-1]
        before = states_before(start, states)
        r = saved[..., :width]
        d_gates = deltas[..., : 2 * width]
        d_n = deltas[..., 2 * width :]
        # W_h multiplies h or r ⊙ h; b_h is part of the inputs or multiplied by r.
        if self.reset_before:
            inner = r * before
        else:
            inner = before
            d_n = d_n * r
        # r and z read h itself, whatever the reset multiplies.
        gates = weight_gradient(before, d_gates)
        d_weight = torch.cat([gates, weight_gradient(inner, d_n)], -1)
        d_bias = d_n.sum((1, 2))[:, None]
        if self.reset_before:
            # The kernel does not read b_h here: it is part of the projected inputs.
            d_bias = torch.zeros_like(d_bias)
        return [self.in_blocks(d_weight), d_bias]
