r"""The gated recurrent unit's sweeps, its reset after or before the state's product.

    r, z = σ( x W_x + b + h W_g )
    n = tanh( x W_n + b_n + r ⊙ m ),  m = h W_h + b_h     reset=after
      | tanh( x W_n + b_n + (r ⊙ h) W_h )                 reset=before
    h' = n + z ⊙ (h − n)  |  h + z ⊙ (n − h)              z keeps | z writes

With δ = ∂L/∂h' and δr, δz, δn the gradients before the activations, z keeping:

    δn = δ ⊙ (1 − z) ⊙ (1 − n²)      δz = δ ⊙ (h − n) ⊙ z ⊙ (1 − z)
    after    δm = δn ⊙ r,      δr = δm ⊙ m ⊙ (1 − r)
             ∂L/∂h = δ ⊙ z + [δr, δz] W_gᵀ + δm W_hᵀ
    before   s = δn W_hᵀ,      δr = s ⊙ h ⊙ r ⊙ (1 − r)
             ∂L/∂h = δ ⊙ z + [δr, δz] W_gᵀ + s ⊙ r

where z writes, z and 1 − z change places, and δz its sign. Derived here; the cell's naive loop
is the reference (`cells/gru.py`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lmzoo.kernels.scan.activation_gradients import through_sigmoid, through_tanh
from lmzoo.kernels.scan.gradients import Gradients
from lmzoo.kernels.scan.gru_loops import GRULoops
from lmzoo.kernels.scan.inputs import StepInputs
from lmzoo.kernels.scan.products import accumulate, product, transposed
from lmzoo.kernels.scan.recurrence import Kept, Recurrence, Weights
from lmzoo.kernels.scan.step_buffers import Steps


@dataclass(frozen=True)
class GRUScan(Recurrence):
    """Weights W_x (columns r, z, n), its bias, W_g (columns r, z), W_h, b_h (None if before)."""

    reset_before: bool = False
    z_keeps: bool = True

    def loops(self) -> GRULoops:
        return GRULoops(self.reset_before, self.z_keeps)

    def columns(self, width: int, weights: Weights) -> list[int]:
        return [width, 3 * width, width]

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, kept: Kept) -> None:
        into, bias, gate, hidden, hidden_bias = weights
        assert gate is not None
        assert hidden is not None
        (states, gates, inner), width, h = kept, start.shape[-1], start
        a_at = x.projected(into, bias, gates)
        # m where the reset is after its product, r ⊙ h where it is before
        m_at = x.projected(None, hidden_bias, inner)
        gate = gate.contiguous()
        for a, m, next_h in zip(a_at, m_at, states.unbind(0), strict=True):
            rz, n = a.split((2 * width, width), dim=-1)
            r, z = accumulate(rz, h, gate).sigmoid_().chunk(2, dim=-1)
            if self.reset_before:
                accumulate(n, torch.mul(r, h, out=m), hidden).tanh_()
            else:
                n.addcmul_(r, accumulate(m, h, hidden)).tanh_()
            h = torch.lerp(n, h, z, out=next_h) if self.z_keeps else torch.lerp(h, n, z, out=next_h)

    def reverse(
        self, upstream: Tensor, start: Tensor, weights: Weights, kept: Kept, gradients: Gradients
    ) -> Tensor:
        into, bias, gate, hidden, hidden_bias = weights
        assert gate is not None
        assert hidden is not None
        (_, gates, inner), width = kept, start.shape[-1]
        da, dm = gradients.steps(3 * width), gradients.steps(width)
        drz, dn = da.columns(0, 2 * width), da.columns(2 * width, 3 * width)
        gradients.of_inputs(into, da)
        gradients.of_bias(bias, da)
        gradients.of_states(gate, drz)
        if self.reset_before:
            gradients.of(hidden, Steps(inner), dn)
        else:
            gradients.of_states(hidden, dm)
        gradients.of_bias(hidden_bias, dm)
        back_gate, back_hidden = transposed(gate), transposed(hidden)
        delta, s, u = (start.new_zeros(start.shape) for _ in range(3))
        # Taken apart once: an index costs as much as a product of a small step.
        upstream_at, drz_at, dm_at = upstream.unbind(0), drz.at, dm.at
        gates_at, da_at, m_at, h_at = gates.unbind(0), da.at, inner.unbind(0), gradients.before
        for t in reversed(range(len(gates))):
            r, z, n = gates_at[t].chunk(3, dim=-1)
            dr, dz, dn_t = da_at[t].chunk(3, dim=-1)
            delta.add_(upstream_at[t])
            torch.sub(h_at[t], n, out=u).mul_(delta)
            through_sigmoid(u if self.z_keeps else u.neg_(), z, dz)
            torch.mul(delta, z, out=u)
            delta.sub_(u)
            through_tanh(delta if self.z_keeps else u, n, dn_t)
            if self.z_keeps:
                delta.copy_(u)
            if self.reset_before:
                product(dn_t, back_hidden, s)
                delta.addcmul_(s, r)
                through_sigmoid(torch.mul(s, h_at[t], out=u), r, dr)
            else:
                through_sigmoid(torch.mul(dn_t, m_at[t], out=u), r, dr)
                accumulate(delta, torch.mul(dn_t, r, out=dm_at[t]), back_hidden)
            accumulate(delta, drz_at[t], back_gate)
        return delta
