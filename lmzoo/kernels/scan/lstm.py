r"""Long short-term memory's sweeps, with its forget gate, without, or coupled.

    i, f, g, o = σ, σ, tanh, σ of x W_x + b + h W_h
    c' = f ⊙ c + i ⊙ g    q = tanh c'    h' = o ⊙ q     f ≡ 1 | f = 1 − i without its weights

With δ = ∂L/∂h' and γ = ∂L/∂c', which first gains δ ⊙ o ⊙ (1 − q²), and δi, δf, δg, δo the
gradients before the activations, δa side by side:

    δo = δ ⊙ q ⊙ o ⊙ (1 − o)       δg = γ ⊙ i ⊙ (1 − g²)
    δi = γ ⊙ g ⊙ i ⊙ (1 − i)       δf = γ ⊙ c ⊙ f ⊙ (1 − f)       ∂L/∂c = γ ⊙ f
    coupled:  δi = γ ⊙ (g − c) ⊙ i ⊙ (1 − i)                      ∂L/∂c = γ ⊙ (1 − i)
    ∂L/∂h = δa W_hᵀ

Derived here; the cell's naive loop is the reference (`cells/lstm.py`).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lmzoo.kernels.scan.activation_gradients import through_sigmoid, through_tanh
from lmzoo.kernels.scan.gradients import Gradients
from lmzoo.kernels.scan.inputs import StepInputs
from lmzoo.kernels.scan.lstm_loops import LSTMLoops
from lmzoo.kernels.scan.products import accumulate, before, product, transposed
from lmzoo.kernels.scan.recurrence import Kept, Recurrence, Weights

Forget = Literal["gate", "none", "coupled"]


@dataclass(frozen=True)
class LSTMScan(Recurrence):
    """Weights W_x, b, W_h, columns in the order i, f, g, o; start is (h, c)."""

    forget: Forget = "gate"

    parts = 2

    def loops(self) -> LSTMLoops:
        return LSTMLoops(self.forget == "coupled")

    def columns(self, width: int, weights: Weights) -> list[int]:
        gates = 4 if self.forget == "gate" else 3
        return [width, gates * width, width, width]

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, kept: Kept) -> None:
        into, bias, hidden = weights
        assert hidden is not None
        states, gates, memory, squashed = kept
        h, c = start.chunk(2, dim=-1)
        for t, a in enumerate(x.projected(into, bias, gates)):
            i, f, g, o = self._gates(accumulate(a, h, hidden))
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

    def reverse(
        self, upstream: Tensor, start: Tensor, weights: Weights, kept: Kept, gradients: Gradients
    ) -> Tensor:
        into, bias, hidden = weights
        assert hidden is not None
        _, gates, memory, squashed = kept
        _, first = start.chunk(2, dim=-1)
        back = transposed(hidden)
        da = gradients.steps(gates.shape[-1])
        gradients.of_inputs(into, da)
        gradients.of_bias(bias, da)
        gradients.of_states(hidden, da)
        delta, gamma, u = (start.new_zeros(first.shape) for _ in range(3))
        # Taken apart once: an index costs as much as a product of a small step.
        upstream_at, da_at, gates_at = upstream.unbind(0), da.at, gates.unbind(0)
        c_at, q_at = before(first, memory), squashed.unbind(0)
        for t in reversed(range(len(gates))):
            c, q = c_at[t], q_at[t]
            i, f, g, o = self._gates(gates_at[t])
            di, df, dg, do = self._gates(da_at[t])
            delta.add_(upstream_at[t])
            through_sigmoid(torch.mul(delta, q, out=u), o, do)
            gamma.add_(through_tanh(torch.mul(delta, o, out=u), q, u))
            through_tanh(torch.mul(gamma, i, out=u), g, dg)
            torch.mul(gamma, g, out=u)
            if self.forget == "coupled":
                u.addcmul_(gamma, c, value=-1)
            through_sigmoid(u, i, di)
            if f is not None and df is not None:
                through_sigmoid(torch.mul(gamma, c, out=u), f, df)
                gamma.mul_(f)
            elif self.forget == "coupled":
                gamma.addcmul_(gamma, i, value=-1)
            product(da_at[t], back, delta)
        return torch.cat([delta, gamma], dim=-1)

    def _gates(self, a: Tensor) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """The columns of i, f, g, o; no f without its weights."""
        if self.forget == "gate":
            i, f, g, o = a.chunk(4, dim=-1)
            return i, f, g, o
        i, g, o = a.chunk(3, dim=-1)
        return i, None, g, o
