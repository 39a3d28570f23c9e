r"""The sweeps of long short-term memory, with a forget gate, without one, or coupled.

    i, f, g, o = σ, σ, tanh, σ of x W_x + b + h W_h
    c' = f ⊙ c + i ⊙ g    q = tanh c'    h' = o ⊙ q     none: f ≡ 1    coupled: f = 1 − i

With δ = ∂L/∂h' and γ = ∂L/∂c', which first gains δ ⊙ o ⊙ (1 − q²), and δi, δf, δg, δo the
gradients before the activations, which are adjacent columns of δa:

    δo = δ ⊙ q ⊙ o ⊙ (1 − o)       δg = γ ⊙ i ⊙ (1 − g²)
    δi = γ ⊙ g ⊙ i ⊙ (1 − i)       δf = γ ⊙ c ⊙ f ⊙ (1 − f)       ∂L/∂c = γ ⊙ f
    coupled:  δi = γ ⊙ (g − c) ⊙ i ⊙ (1 − i)                      ∂L/∂c = γ ⊙ (1 − i)
    ∂L/∂h = δa W_hᵀ

Derived here; the reference is `naive_scan` of `cells/lstm.py`.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lmzoo.kernels.cpu.recurrence import CompiledRecurrence, Saved, Weights
from lmzoo.kernels.scan.gradients import Gradients, StepInputs
from lmzoo.kernels.scan.operations import (
    add_product,
    previous_states,
    product,
    sigmoid_backward,
    tanh_backward,
    transpose,
)
from lmzoo.kernels.scan.recurrence import Recurrence

Forget = Literal["gate", "none", "coupled"]


@dataclass(frozen=True)
class LSTMScan(Recurrence):
    """Weights W_x, b, W_h, columns in the order i, f, g, o; start is (h, c)."""

    forget: Forget = "gate"

    parts = 2

    def compiled(self) -> CompiledRecurrence:
        from lmzoo.kernels.cpu.lstm import CompiledLSTM

        return CompiledLSTM(self.forget == "coupled")

    def saved_widths(self, width: int, weights: Weights) -> list[int]:
        gates = 4 if self.forget == "gate" else 3
        return [width, gates * width, width, width]

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, saved: Saved) -> None:
        input_weight, bias, hidden = weights
        assert hidden is not None
        states, gates, memory, squashed = saved
        h, c = start.chunk(2, dim=-1)
        for t, a in enumerate(x.project(input_weight, bias, gates)):
            i, f, g, o = self._gates(add_product(a, h, hidden))
            for gate in (i, o):
                gate.sigmoid_()
            g.tanh_()
            if f is not None:
                c = torch.mul(f.sigmoid_(), c, out=memory[t]).addcmul_(i, g)
            elif self.forget == "none":
                c = torch.addcmul(c, i, g, out=memory[t])
            else:
                c = torch.lerp(c, g, i, out=memory[t])
            h = torch.mul(o, torch.tanh(c, out=squashed[t]), out=states[t])

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Weights, saved: Saved, gradients: Gradients
    ) -> Tensor:
        input_weight, bias, hidden = weights
        assert hidden is not None
        _, gates, memory, squashed = saved
        _, start_c = start.chunk(2, dim=-1)
        hidden_t = transpose(hidden)
        da = gradients.buffer(gates.shape[-1])
        gradients.request_input_weight(input_weight, da)
        gradients.request_bias(bias, da)
        gradients.request_state_weight(hidden, da)
        delta, gamma, u = (start.new_zeros(start_c.shape) for _ in range(3))
        # unbind once: indexing at every step would cost as much as a small product.
        upstream_at, da_at, gates_at = upstream.unbind(0), da.steps, gates.unbind(0)
        c_at, q_at = previous_states(start_c, memory), squashed.unbind(0)
        for t in reversed(range(len(gates))):
            c, q = c_at[t], q_at[t]
            i, f, g, o = self._gates(gates_at[t])
            di, df, dg, do = self._gates(da_at[t])
            delta.add_(upstream_at[t])
            sigmoid_backward(torch.mul(delta, q, out=u), o, do)
            gamma.add_(tanh_backward(torch.mul(delta, o, out=u), q, u))
            tanh_backward(torch.mul(gamma, i, out=u), g, dg)
            torch.mul(gamma, g, out=u)
            if self.forget == "coupled":
                u.addcmul_(gamma, c, value=-1)
            sigmoid_backward(u, i, di)
            if f is not None and df is not None:
                sigmoid_backward(torch.mul(gamma, c, out=u), f, df)
                gamma.mul_(f)
            elif self.forget == "coupled":
                gamma.addcmul_(gamma, i, value=-1)
            product(da_at[t], hidden_t, delta)
        return torch.cat([delta, gamma], dim=-1)

    def _gates(self, a: Tensor) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Return the columns of i, f, g, o; f is None unless it has weights."""
        if self.forget == "gate":
            i, f, g, o = a.chunk(4, dim=-1)
            return i, f, g, o
        i, g, o = a.chunk(3, dim=-1)
        return i, None, g, o
