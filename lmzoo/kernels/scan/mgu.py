r"""The minimal gated unit's sweeps, any of its paths cut.

    f = σ(x W_xf + b_f + h W_hf)    c = tanh(x W_xh + b_h + (h ⊙ f) W_hh)
    h' = κ (1 − f) ⊙ h + ω f ⊙ c                κ, ω: 0 where carry, write is cut

With δ = ∂L/∂h', and δf, δc the gradients before σ and tanh:

    δc = ω δ ⊙ f ⊙ (1 − c²)                     s = δc W_hhᵀ
    δf = (δ ⊙ (ω c − κ h) + s ⊙ h) ⊙ f ⊙ (1 − f)
    ∂L/∂h = κ (1 − f) ⊙ δ + f ⊙ s + δf W_hfᵀ

Derived here; the cell's naive loop is the reference (`cells/mgu.py`).
"""

from dataclasses import dataclass
from itertools import repeat

import torch
from torch import Tensor

from lmzoo.kernels.scan.activation_gradients import through_sigmoid, through_tanh
from lmzoo.kernels.scan.gradients import Gradients
from lmzoo.kernels.scan.inputs import StepInputs
from lmzoo.kernels.scan.mgu_loops import MGULoops
from lmzoo.kernels.scan.products import accumulate, product, transposed
from lmzoo.kernels.scan.recurrence import Kept, Recurrence, Weights
from lmzoo.kernels.scan.step_buffers import Steps


@dataclass(frozen=True)
class MGUScan(Recurrence):
    """Weights xf, hf, bf, xh, hh, bh; None where cut. Without `write`, none of the last three."""

    carry: bool = True
    write: bool = True

    def loops(self) -> MGULoops:
        return MGULoops(self.carry)

    def columns(self, width: int, weights: Weights) -> list[int]:
        # The last is h ⊙ f, where it is read.
        return [width] * (2 + self.write + (weights[4] is not None))

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, kept: Kept) -> None:
        xf, hf, bf, xh, hh, bh = weights
        states, f, *candidate = kept
        c = x.projected(xh, bh, candidate[0]) if self.write else repeat(None)
        q = candidate[1].unbind(0) if hh is not None else repeat(None)
        h, f_at = start, x.projected(xf, bf, f)
        for f_t, c_t, q_t, out in zip(f_at, c, q, states.unbind(0), strict=False):
            if hf is not None:
                accumulate(f_t, h, hf)
            f_t.sigmoid_()
            if c_t is None:
                h = torch.addcmul(h, f_t, h, value=-1, out=out)
                continue
            if hh is not None:
                accumulate(c_t, torch.mul(h, f_t, out=q_t), hh)
            c_t.tanh_()
            h = torch.lerp(h, c_t, f_t, out=out) if self.carry else torch.mul(f_t, c_t, out=out)

    def reverse(
        self, upstream: Tensor, start: Tensor, weights: Weights, kept: Kept, gradients: Gradients
    ) -> Tensor:
        xf, hf, bf, xh, hh, bh = weights
        _, f, *candidate = kept
        df, dc = (gradients.steps(start.shape[-1]) for _ in range(2))
        gradients.of_inputs(xf, df)
        gradients.of_states(hf, df)
        gradients.of_bias(bf, df)
        gradients.of_inputs(xh, dc)
        gradients.of(hh, Steps(candidate[-1]) if hh is not None else dc, dc)
        gradients.of_bias(bh, dc)
        delta, s, u = (start.new_zeros(start.shape) for _ in range(3))
        back_f = None if hf is None else transposed(hf)
        back_h = None if hh is None else transposed(hh)
        # Taken apart once: an index costs as much as a product of a small step.
        upstream_at, df_at, dc_at, f_at = upstream.unbind(0), df.at, dc.at, f.unbind(0)
        c_at = candidate[0].unbind(0) if self.write else None
        h_at = gradients.before
        for t in reversed(range(len(f))):
            delta.add_(upstream_at[t])
            if c_at is not None:
                through_tanh(torch.mul(delta, f_at[t], out=u), c_at[t], dc_at[t])
                torch.mul(delta, c_at[t], out=u)
            if self.carry and c_at is not None:
                u.addcmul_(delta, h_at[t], value=-1)
            elif self.carry:
                torch.mul(delta, -h_at[t], out=u)
            if back_h is not None:
                product(dc_at[t], back_h, s)  # without h ⊙ f it stays zero
            through_sigmoid(u.addcmul_(s, h_at[t]), f_at[t], df_at[t])
            _ = delta.lerp_(s, f_at[t]) if self.carry else torch.mul(s, f_at[t], out=delta)
            if back_f is not None:
                accumulate(delta, df_at[t], back_f)
        return delta
