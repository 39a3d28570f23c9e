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

import torch
from torch import Tensor

from lmzoo.functional.scan.products import (
    accumulate,
    before,
    bias_gradient,
    input_gradient,
    product,
    project,
    state_gradient,
    transposed,
    weight_gradient,
)
from lmzoo.functional.scan.slopes import through_sigmoid, through_tanh
from lmzoo.functional.scan.sweep import Kept, Recurrence, Weights


@dataclass(frozen=True)
class MGUScan(Recurrence):
    """Weights xf, hf, bf, xh, hh, bh; None where cut. Without `write`, none of the last three."""

    carry: bool = True
    write: bool = True

    def columns(self, width: int, weights: Weights) -> list[int]:
        # The last is h ⊙ f, where it is read.
        return [width] * (2 + self.write + (weights[4] is not None))

    def forward(self, x: Tensor, start: Tensor, weights: Weights, kept: Kept) -> None:
        xf, hf, bf, xh, hh, bh = weights
        states, f, *candidate = kept
        project(x, xf, bf, f)
        if hf is None:
            f.sigmoid_()
        if self.write:
            c = project(x, xh, bh, candidate[0])
            if hh is None:
                c.tanh_()
        h, states, *candidate = start, states.unbind(0), *(part.unbind(0) for part in candidate)
        for t, f_t in enumerate(f.unbind(0)):
            if hf is not None:
                accumulate(f_t, h, hf).sigmoid_()
            if not self.write:
                h = torch.addcmul(h, f_t, h, value=-1, out=states[t])
                continue
            c_t = candidate[0][t]
            if hh is not None:
                accumulate(c_t, torch.mul(h, f_t, out=candidate[1][t]), hh).tanh_()
            if self.carry:
                h = torch.lerp(h, c_t, f_t, out=states[t])
            else:
                h = torch.mul(f_t, c_t, out=states[t])

    def reverse(
        self,
        upstream: Tensor,
        x: Tensor,
        start: Tensor,
        weights: Weights,
        kept: Kept,
        dx: Tensor,
    ) -> tuple[Tensor, Weights]:
        xf, hf, bf, xh, hh, bh = weights
        states, f, *candidate = kept
        df, dc = torch.empty_like(f), torch.empty_like(f) if self.write else None
        delta, s, u = (torch.zeros_like(start) for _ in range(3))
        back_f = None if hf is None else transposed(hf)
        back_h = None if hh is None else transposed(hh)
        # Taken apart once: an index costs as much as a product of a small step.
        f_at, df_at, upstream_at = f.unbind(0), df.unbind(0), upstream.unbind(0)
        c_at, dc_at = ((), ()) if dc is None else (candidate[0].unbind(0), dc.unbind(0))
        starts = before(start, states)
        for t in reversed(range(len(f))):
            f_t, h = f_at[t], starts[t]
            delta.add_(upstream_at[t])
            if dc is not None:
                c_t = c_at[t]
                through_tanh(torch.mul(delta, f_t, out=u), c_t, dc_at[t])
                torch.mul(delta, c_t, out=u)
            if self.carry:
                u.addcmul_(delta, h, value=-1) if dc is not None else torch.mul(delta, -h, out=u)
            if back_h is not None and dc is not None:
                u.addcmul_(product(dc_at[t], back_h, s), h)
            through_sigmoid(u, f_t, df_at[t])
            if self.carry:
                delta.lerp_(s, f_t)  # s stays zero where h ⊙ f is not read
            else:
                torch.mul(s, f_t, out=delta)
            if back_f is not None:
                accumulate(delta, df_at[t], back_f)
        input_gradient([(df, xf)] + ([] if dc is None else [(dc, xh)]), dx)
        gradients = [
            None if xf is None else weight_gradient(x, df),
            None if hf is None else state_gradient(start, states, df),
            None if bf is None else bias_gradient(df),
            None if xh is None or dc is None else weight_gradient(x, dc),
            None if hh is None or dc is None else weight_gradient(candidate[1], dc),
            None if bh is None or dc is None else bias_gradient(dc),
        ]
        return delta, gradients
