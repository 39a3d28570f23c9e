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

from lmzoo.functional.scan.gradients import Gradients
from lmzoo.functional.scan.inputs import StepInputs
from lmzoo.functional.scan.mgu_back import Buffers, steps
from lmzoo.functional.scan.products import accumulate, product, transposed
from lmzoo.functional.scan.sums import Steps
from lmzoo.functional.scan.sweep import Kept, Recurrence, Weights


@dataclass(frozen=True)
class MGUScan(Recurrence):
    """Weights xf, hf, bf, xh, hh, bh; None where cut. Without `write`, none of the last three."""

    carry: bool = True
    write: bool = True

    def columns(self, width: int, weights: Weights, *, in_step: bool) -> list[int]:
        # The last is h ⊙ f, where it is read and not as cheaply made again.
        return [width] * (2 + self.write + (weights[4] is not None and not in_step))

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, kept: Kept) -> None:
        xf, hf, bf, xh, hh, bh = weights
        states, f, *candidate = kept
        c = x.projected(xh, bh, candidate[0]) if self.write else repeat(None)
        q = candidate[1].unbind(0) if len(candidate) > 1 else repeat(torch.empty_like(start))
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
        states, f, *candidate = kept
        df, dc = (gradients.steps(start.shape[-1]) for _ in range(2))
        gradients.of_inputs(xf, df)
        gradients.of_states(hf, df)
        gradients.of_bias(bf, df)
        gradients.of_inputs(xh, dc)
        if len(candidate) > 1:
            gradients.of(hh, Steps(candidate[1], len(f)), dc)
        else:
            gradients.of_gated(hh, f, dc)
        gradients.of_bias(bh, dc)
        delta, s = (start.new_zeros(start.shape) for _ in range(2))
        back_f = None if hf is None else transposed(hf)
        back_h = None if hh is None else transposed(hh)
        c = candidate[0] if self.write else None
        buffers = Buffers(self.carry, f, c, start, states, df, dc, delta, s)
        into_candidate, into_gate = steps(buffers)
        # Taken apart once: an index costs as much as a product of a small step.
        upstream_at, df_at, dc_at = upstream.unbind(0), df.at, dc.at
        for t in reversed(range(len(f))):
            delta.add_(upstream_at[t])
            into_candidate(t)
            if back_h is not None:
                product(dc_at[t], back_h, s)  # without h ⊙ f it stays zero
            into_gate(t)
            if back_f is not None:
                accumulate(delta, df_at[t], back_f)
            gradients.spend(t)
        return delta
