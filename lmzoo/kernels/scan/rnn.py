r"""The sweeps of the vanilla recurrent network.

    h' = act( x W_x + b + h W_h )
    with δ = ∂L/∂h':   δa = δ ⊙ act',   ∂L/∂h = δa W_hᵀ,   ∂L/∂W_h = Σ hᵀ δa

    act     tanh       σ             relu         identity
    act'    1 − h'²    h' (1 − h')   [h' > 0]     1

act' is a function of the output for every act here. Derived here; the reference is `naive_scan`
of `cells/rnn.py`.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lmzoo.kernels.cpu.recurrence import CompiledRecurrence, Saved, Weights
from lmzoo.kernels.scan.gradients import Gradients, StepInputs
from lmzoo.kernels.scan.operations import (
    add_product,
    product,
    sigmoid_backward,
    tanh_backward,
    transpose,
)
from lmzoo.kernels.scan.recurrence import Recurrence

Activation = Literal["tanh", "sigmoid", "relu", "identity"]


@dataclass(frozen=True)
class RNNScan(Recurrence):
    """Weights W_x, b, W_h."""

    activation: Activation = "tanh"

    def compiled(self) -> CompiledRecurrence:
        from lmzoo.kernels.cpu.rnn import CompiledRNN

        return CompiledRNN(self.activation)

    def saved_widths(self, width: int, weights: Weights) -> list[int]:
        return [width]

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, saved: Saved) -> None:
        input_weight, bias, hidden = weights
        assert hidden is not None
        h = start
        for a in x.project(input_weight, bias, saved[0]):
            h = self._activate_(add_product(a, h, hidden))

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Weights, saved: Saved, gradients: Gradients
    ) -> Tensor:
        input_weight, bias, hidden = weights
        assert hidden is not None
        (states,), hidden_t = saved, transpose(hidden)
        da, delta = gradients.buffer(start.shape[-1]), torch.zeros_like(start)
        gradients.request_input_weight(input_weight, da)
        gradients.request_bias(bias, da)
        gradients.request_state_weight(hidden, da)
        for t in reversed(range(len(states))):
            self._activation_backward(delta.add_(upstream[t]), states[t], da.steps[t])
            product(da.steps[t], hidden_t, delta)
        return delta

    def _activate_(self, a: Tensor) -> Tensor:
        if self.activation == "tanh":
            return a.tanh_()
        if self.activation == "sigmoid":
            return a.sigmoid_()
        return a.relu_() if self.activation == "relu" else a

    def _activation_backward(self, gradient: Tensor, y: Tensor, out: Tensor) -> Tensor:
        if self.activation == "tanh":
            return tanh_backward(gradient, y, out)
        if self.activation == "sigmoid":
            return sigmoid_backward(gradient, y, out)
        return (
            torch.mul(gradient, y > 0, out=out)
            if self.activation == "relu"
            else out.copy_(gradient)
        )
