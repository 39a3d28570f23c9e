r"""The sweeps of the gated recurrent unit, with the reset after or before the state's product.

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

Where z writes, exchange z and 1 − z, and change the sign of δz. Derived here; the reference is
`naive_scan` of `cells/gru.py`.
"""

from dataclasses import dataclass

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
class GRUScan(Recurrence):
    """Weights W_x (columns r, z, n), its bias, W_g (columns r, z), W_h, b_h (None if before)."""

    reset_before: bool = False
    z_keeps: bool = True

    def compiled(self) -> CompiledRecurrence:
        from lmzoo.kernels.cpu.gru import CompiledGRU

        return CompiledGRU(self.reset_before, self.z_keeps)

    def saved_widths(self, width: int, weights: Weights) -> list[int]:
        return [width, 3 * width, width]

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, saved: Saved) -> None:
        input_weight, bias, gate, hidden, hidden_bias = weights
        assert gate is not None
        assert hidden is not None
        (states, gates, inner), width, h = saved, start.shape[-1], start
        a_at = x.project(input_weight, bias, gates)
        # m if the reset is after the product, r ⊙ h if it is before
        m_at = x.project(None, hidden_bias, inner)
        gate = gate.contiguous()
        for a, m, next_h in zip(a_at, m_at, states.unbind(0), strict=True):
            rz, n = a.split((2 * width, width), dim=-1)
            r, z = add_product(rz, h, gate).sigmoid_().chunk(2, dim=-1)
            if self.reset_before:
                add_product(n, torch.mul(r, h, out=m), hidden).tanh_()
            else:
                n.addcmul_(r, add_product(m, h, hidden)).tanh_()
            h = torch.lerp(n, h, z, out=next_h) if self.z_keeps else torch.lerp(h, n, z, out=next_h)

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Weights, saved: Saved, gradients: Gradients
    ) -> Tensor:
        input_weight, bias, gate, hidden, hidden_bias = weights
        assert gate is not None
        assert hidden is not None
        (_, gates, inner), width = saved, start.shape[-1]
        da, dm = gradients.buffer(3 * width), gradients.buffer(width)
        drz, dn = da.columns(0, 2 * width), da.columns(2 * width, 3 * width)
        gradients.request_input_weight(input_weight, da)
        gradients.request_bias(bias, da)
        gradients.request_state_weight(gate, drz)
        if self.reset_before:
            gradients.request_weight(hidden, StepBuffer(inner), dn)
        else:
            gradients.request_state_weight(hidden, dm)
        gradients.request_bias(hidden_bias, dm)
        gate_t, hidden_t = transpose(gate), transpose(hidden)
        delta, s, u = (start.new_zeros(start.shape) for _ in range(3))
        # unbind once: indexing at every step would cost as much as a small product.
        upstream_at, drz_at, dm_at = upstream.unbind(0), drz.steps, dm.steps
        gates_at, da_at, m_at = gates.unbind(0), da.steps, inner.unbind(0)
        h_at = gradients.previous_states
        for t in reversed(range(len(gates))):
            r, z, n = gates_at[t].chunk(3, dim=-1)
            dr, dz, dn_t = da_at[t].chunk(3, dim=-1)
            delta.add_(upstream_at[t])
            torch.sub(h_at[t], n, out=u).mul_(delta)
            sigmoid_backward(u if self.z_keeps else u.neg_(), z, dz)
            torch.mul(delta, z, out=u)
            delta.sub_(u)
            tanh_backward(delta if self.z_keeps else u, n, dn_t)
            if self.z_keeps:
                delta.copy_(u)
            if self.reset_before:
                product(dn_t, hidden_t, s)
                delta.addcmul_(s, r)
                sigmoid_backward(torch.mul(s, h_at[t], out=u), r, dr)
            else:
                sigmoid_backward(torch.mul(dn_t, m_at[t], out=u), r, dr)
                add_product(delta, torch.mul(dn_t, r, out=dm_at[t]), hidden_t)
            add_product(delta, drz_at[t], gate_t)
        return delta
