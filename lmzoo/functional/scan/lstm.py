r"""Long short-term memory's sweeps, with its forget gate, without, or coupled.

    i, f, g, o = σ, σ, tanh, σ of x W_x + b + h W_h
    c' = f ⊙ c + i ⊙ g        h' = o ⊙ tanh c'          f ≡ 1 | f = 1 − i without its weights

With δ = ∂L/∂h' and γ = ∂L/∂c', which first gains δ ⊙ o ⊙ (1 − tanh² c'):

    ∂o = δ ⊙ tanh c'    ∂g = γ ⊙ i    ∂i = γ ⊙ g    ∂f = γ ⊙ c    (coupled: ∂i = γ ⊙ (g − c))
    ∂L/∂c = γ ⊙ f       ∂L/∂h = δa W_hᵀ, δa the four before their activations

Derived here; the cell's naive loop is the reference (`cells/lstm.py`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lmzoo.functional.scan.gradients import Gradients
from lmzoo.functional.scan.inputs import StepInputs
from lmzoo.functional.scan.lstm_back import Buffers, Forget, gates_of, step
from lmzoo.functional.scan.products import accumulate, product, transposed
from lmzoo.functional.scan.sweep import Kept, Recurrence, Weights


@dataclass(frozen=True)
class LSTMScan(Recurrence):
    """Weights W_x, b, W_h, columns in the order i, f, g, o; start is (h, c)."""

    forget: Forget = "gate"

    parts = 2

    def columns(self, width: int, weights: Weights) -> list[int]:
        gates = 4 if self.forget == "gate" else 3
        return [width, gates * width, width, width]

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, kept: Kept) -> None:
        into, bias, hidden = weights
        assert hidden is not None
        states, gates, memory, squashed = kept
        h, c = start.chunk(2, dim=-1)
        for t, a in enumerate(x.projected(into, bias, gates)):
            i, f, g, o = gates_of(accumulate(a, h, hidden), self.forget)
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
        delta, gamma = (start.new_zeros(first.shape) for _ in range(2))
        buffers = Buffers(gates, first, memory, squashed, da, delta, gamma, self.forget)
        into_gates = step(buffers)
        # Taken apart once: an index costs as much as a product of a small step.
        upstream_at, da_at = upstream.unbind(0), da.at
        for t in reversed(range(len(gates))):
            delta.add_(upstream_at[t])
            into_gates(t)
            product(da_at[t], back, delta)
            gradients.spend(t)
        return torch.cat([delta, gamma], dim=-1)
