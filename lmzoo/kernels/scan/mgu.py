r"""The sweeps of the minimal gated unit; any of its paths may be cut.

    f = σ(x W_xf + b_f + h W_hf)    c = tanh(x W_xh + b_h + (h ⊙ f) W_hh)
    h' = κ (1 − f) ⊙ h + ω f ⊙ c                κ, ω: 0 where carry, write is cut

With δ = ∂L/∂h', and δf, δc the gradients before σ and tanh:

    δc = ω δ ⊙ f ⊙ (1 − c²)                     s = δc W_hhᵀ
    δf = (δ ⊙ (ω c − κ h) + s ⊙ h) ⊙ f ⊙ (1 − f)
    ∂L/∂h = κ (1 − f) ⊙ δ + f ⊙ s + δf W_hfᵀ

Derived here; the reference is `naive_scan` of `cells/mgu.py`.
"""

from dataclasses import dataclass
from itertools import repeat

import torch
from torch import Tensor

from lmzoo.kernels.cpu.recurrence import CompiledRecurrence, Saved, Weights
from lmzoo.kernels.scan.gradients import Gradients, StepInputs
from lmzoo.kernels.scan.operations import (
    StepBuffer,
    add_product,
    product,
    sigmoid_backward,
    tanh_backward,
    transpose,
)
from lmzoo.kernels.scan.recurrence import Recurrence


@dataclass(frozen=True)
class MGUScan(Recurrence):
    """Weights xf, hf, bf, xh, hh, bh; None where cut. Without `write`, none of the last three."""

    carry: bool = True
    write: bool = True

    def compiled(self) -> CompiledRecurrence:
        from lmzoo.kernels.cpu.mgu import CompiledMGU

        return CompiledMGU(self.carry)

    def saved_widths(self, width: int, weights: Weights) -> list[int]:
        # The last is h ⊙ f, needed for the gradient of hh.
        return [width] * (2 + self.write + (weights[4] is not None))

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, saved: Saved) -> None:
        xf, hf, bf, xh, hh, bh = weights
        states, f, *candidate = saved
        c = x.project(xh, bh, candidate[0]) if self.write else repeat(None)
        q = candidate[1].unbind(0) if hh is not None else repeat(None)
        h, f_at = start, x.project(xf, bf, f)
        for f_t, c_t, q_t, out in zip(f_at, c, q, states.unbind(0), strict=False):
            if hf is not None:
                add_product(f_t, h, hf)
            f_t.sigmoid_()
            if c_t is None:
                h = torch.addcmul(h, f_t, h, value=-1, out=out)
                continue
            if hh is not None:
                add_product(c_t, torch.mul(h, f_t, out=q_t), hh)
            c_t.tanh_()
            h = torch.lerp(h, c_t, f_t, out=out) if self.carry else torch.mul(f_t, c_t, out=out)

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Weights, saved: Saved, gradients: Gradients
    ) -> Tensor:
        xf, hf, bf, xh, hh, bh = weights
        _, f, *candidate = saved
        df, dc = (gradients.buffer(start.shape[-1]) for _ in range(2))
        gradients.request_input_weight(xf, df)
        gradients.request_state_weight(hf, df)
        gradients.request_bias(bf, df)
        gradients.request_input_weight(xh, dc)
        gradients.request_weight(hh, StepBuffer(candidate[-1]) if hh is not None else dc, dc)
        gradients.request_bias(bh, dc)
        delta, s, u = (start.new_zeros(start.shape) for _ in range(3))
        hf_t = None if hf is None else transpose(hf)
        hh_t = None if hh is None else transpose(hh)
        # unbind once: indexing at every step would cost as much as a small product.
        upstream_at, df_at, dc_at, f_at = upstream.unbind(0), df.steps, dc.steps, f.unbind(0)
        c_at = candidate[0].unbind(0) if self.write else None
        h_at = gradients.previous_states
        for t in reversed(range(len(f))):
            delta.add_(upstream_at[t])
            if c_at is not None:
                tanh_backward(torch.mul(delta, f_at[t], out=u), c_at[t], dc_at[t])
                torch.mul(delta, c_at[t], out=u)
            if self.carry and c_at is not None:
                u.addcmul_(delta, h_at[t], value=-1)
            elif self.carry:
                torch.mul(delta, -h_at[t], out=u)
            if hh_t is not None:
                product(dc_at[t], hh_t, s)  # otherwise s stays zero
            sigmoid_backward(u.addcmul_(s, h_at[t]), f_at[t], df_at[t])
            _ = delta.lerp_(s, f_at[t]) if self.carry else torch.mul(s, f_at[t], out=delta)
            if hf_t is not None:
                add_product(delta, df_at[t], hf_t)
        return delta
