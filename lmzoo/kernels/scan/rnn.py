r"""The vanilla recurrent network's sweeps.

    h' = act( x W_x + b + h W_h )
    with δ = ∂L/∂h':   δa = δ ⊙ act',   ∂L/∂h = δa W_hᵀ,   ∂L/∂W_h = Σ hᵀ δa

    act     tanh       σ             relu         identity
    act'    1 − h'²    h' (1 − h')   [h' > 0]     1

Every act here has a slope that its output tells. Derived here; the cell's naive loop is
the reference (`cells/rnn.py`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lmzoo.kernels.scan.activation_gradients import through_sigmoid, through_tanh
from lmzoo.kernels.scan.gradients import Gradients
from lmzoo.kernels.scan.inputs import StepInputs
from lmzoo.kernels.scan.products import accumulate, product, transposed
from lmzoo.kernels.scan.recurrence import Kept, Recurrence, Weights
from lmzoo.kernels.scan.rnn_loops import Activation, RNNLoops


@dataclass(frozen=True)
class RNNScan(Recurrence):
    """Weights W_x, b, W_h."""

    activation: Activation = "tanh"

    def loops(self) -> RNNLoops:
        return RNNLoops(self.activation)

    def columns(self, width: int, weights: Weights) -> list[int]:
        return [width]

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, kept: Kept) -> None:
        into, bias, back = weights
        assert back is not None
        h = start
        for a in x.projected(into, bias, kept[0]):
            h = self._act_(accumulate(a, h, back))

    def reverse(
        self, upstream: Tensor, start: Tensor, weights: Weights, kept: Kept, gradients: Gradients
    ) -> Tensor:
        into, bias, hidden = weights
        assert hidden is not None
        (states,), back = kept, transposed(hidden)
        da, delta = gradients.steps(start.shape[-1]), torch.zeros_like(start)
        gradients.of_inputs(into, da)
        gradients.of_bias(bias, da)
        gradients.of_states(hidden, da)
        for t in reversed(range(len(states))):
            self._through(delta.add_(upstream[t]), states[t], da.at[t])
            product(da.at[t], back, delta)
        return delta

    def _act_(self, a: Tensor) -> Tensor:
        if self.activation == "tanh":
            return a.tanh_()
        if self.activation == "sigmoid":
            return a.sigmoid_()
        return a.relu_() if self.activation == "relu" else a

    def _through(self, gradient: Tensor, y: Tensor, out: Tensor) -> Tensor:
        if self.activation == "tanh":
            return through_tanh(gradient, y, out)
        if self.activation == "sigmoid":
            return through_sigmoid(gradient, y, out)
        return (
            torch.mul(gradient, y > 0, out=out)
            if self.activation == "relu"
            else out.copy_(gradient)
        )
