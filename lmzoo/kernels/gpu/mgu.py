"""A step of the minimal gated unit and of the MGRU that carries its last state.

In the symbols of `kernels/cpu/mgu.py`; the columns are those of f and c, or of c if they are no
`pair`. The backward kernel writes what the gate read, and h_{t-1} ⊙ f_t, for the gradients of the
weights.
"""

from dataclasses import dataclass
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import product, tanh, vector
from lmzoo.kernels.gpu.scan import GpuRecurrence, weight_gradient
from lmzoo.kernels.scan import Weights

LIMIT = tl.constexpr(0.9999)
"""The MGRU clips 2 h − 1 to ±LIMIT before its atanh."""


@triton.jit
def _read_state(h, READ: tl.constexpr):
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


@triton.jit
@no_type_check
def _step(a, h, c, weights, b, FLAGS: tl.constexpr, PRECISION: tl.constexpr):
    PAIR: tl.constexpr = FLAGS[0]
    READ: tl.constexpr = FLAGS[4]
    q, _ = _read_state(h, READ)
    gate = product(q, weights[0], PRECISION)
    if PAIR:
        f = tl.sigmoid(vector(a, 0) + gate)
        n = tanh(vector(a, 1) + product(h * f, weights[1], PRECISION))
    else:
        f = tl.sigmoid(gate)
        n = vector(a, 0)
    if not FLAGS[2]:  # write
        n = tl.zeros(h.shape, tl.float32)
    new = f * n + (1 - f) * h if FLAGS[1] else f * n
    if FLAGS[3]:  # keep
        new += f * h
    return new, c, (f, n)


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
    f = vector(saved, 0)
    n = vector(saved, 1)
    d_f = delta * n
    carried = tl.zeros(h.shape, tl.float32)
    if FLAGS[1]:  # carry
        d_f -= delta * h
        carried += (1 - f) * delta
    if FLAGS[3]:  # keep
        d_f += delta * h
        carried += f * delta
    d_n = f * delta
    if not FLAGS[2]:  # write
        d_n = tl.zeros(h.shape, tl.float32)
    if FLAGS[0]:  # pair
        d_n *= 1 - n * n
        s = product(d_n, weights[1], PRECISION)
        d_f += s * h
        carried += f * s
    d_f = d_f * f * (1 - f)
    READ: tl.constexpr = FLAGS[4]
    q, slope = _read_state(h, READ)
    carried += product(d_f, weights[0], PRECISION) * slope
    if FLAGS[0]:
        return carried, gamma, (d_f, d_n), (q, h * f)
    else:
        return carried, gamma, (d_n,), (q, d_f)


@dataclass(frozen=True)
class Scan(GpuRecurrence):
    """Weights hf and hh, None where cut; a cut weight is 0."""

    steps = _step, _step_backward
    operands = 2
    saved = 2
    pair: bool = True
    carry: bool = True
    write: bool = True
    keep: bool = False
    read: str = "raw"

    @property
    def blocks(self) -> int:  # type: ignore[override]
        return 1 + self.pair

    def copies(self, start: Tensor, weights: Weights) -> list[Tensor]:
        shape = start.shape[-1:] * 2
        own = weights[: self.blocks]
        # A cut weight is a weight of zero: the kernel has no branch for it.
        both = []
        for weight in own:
            if weight is None:
                weight = start.new_zeros(shape)
            both.append(weight)
        return [
            start.clone(memory_format=torch.contiguous_format),
            torch.stack(both, -3),
        ]

    def weight_gradients(
        self,
        start: Tensor,
        states: Tensor,
        saved: Tensor,
        deltas: Tensor,
        operands: Tensor,
    ) -> list[Tensor]:
        """Return the gradient of both weights; without a pair, the operands are q and δf."""
        width = states.shape[-1]
        read = operands[..., :width]
        other = operands[..., width:]
        if not self.pair:
            return [weight_gradient(read, other)[:, None]]
        gate = weight_gradient(read, deltas[..., :width])
        candidate = weight_gradient(other, deltas[..., width:])
        return [torch.stack([gate, candidate], 1)]
