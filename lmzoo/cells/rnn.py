r"""The vanilla recurrent network (RNN).

    a_t = x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh
    h_t = tanh(a_t)            activation=tanh
        | σ(a_t)               activation=sigmoid
        | max(0, a_t)          activation=relu
        | a_t                  activation=identity

`activation=identity` makes the network linear in its inputs and its initial state. `spectral`
scales the initial W_hh to max |eigenvalue| = 1, so that the gradients of a linear network neither
grow nor vanish geometrically. Weights have the layout of torch.nn.RNN.

Elman 1990. Source: S0, S3.
"""

from enum import StrEnum

import torch
from jaxtyping import Float
from pydantic import StrictBool
from torch import Tensor
from torch.nn.functional import linear

from lmzoo.base.config import config
from lmzoo.cells.base import (
    CELLS,
    Cell,
    Inputs,
    OutputAndState,
    State,
    Weights,
    gate_shapes,
    keep_drawn,
)
from lmzoo.kernels.scan import find_recurrence, scan

Activation = StrEnum("Activation", "TANH SIGMOID RELU IDENTITY")
"""The activation function."""
FUNCTIONS = {
    Activation.TANH: torch.tanh,
    Activation.SIGMOID: torch.sigmoid,
    Activation.RELU: torch.relu,
    Activation.IDENTITY: torch.nn.Identity(),
}


@CELLS("rnn")
class RNN(Cell):
    """A recurrent layer without gates."""

    outputs_state = True

    @config
    class Config:
        """Activation and initial spectrum."""

        activation: Activation = Activation.TANH
        spectral: StrictBool = False
        """Scale the initial W_hh to spectral radius 1."""

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        adjust = keep_drawn
        if config.spectral:
            adjust = _scale_to_unit_radius
        shapes = gate_shapes(width, gates=1)
        self.w = Weights(shapes, fan_in=width, adjust=adjust)

    def project(self, x: Tensor) -> Tensor:
        # Both biases are added to the same sum; there are two because torch.nn.RNN has two.
        return linear(x, self.w.weight_ih, self.w.bias_ih + self.w.bias_hh)

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        activate = FUNCTIONS[self.config.activation]
        h = activate(projected + state[0] @ self.w.weight_hh.T)
        return h, (h,)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        recurrence = find_recurrence("rnn", start, activation=self.config.activation.value)
        if recurrence is None:
            return None
        projected = recurrence.project(self.project, x)
        # The kernel multiplies from the right; torch's layout is the transpose.
        return scan(recurrence, projected, start, [self.w.weight_hh.mT])[0]


def spectral_radius(matrix: Float[Tensor, "H H"]) -> Float[Tensor, ""]:
    """Return the largest |eigenvalue|, in double precision."""
    return torch.linalg.eigvals(matrix.double()).abs().max()


def _scale_to_unit_radius(name: str, drawn: Tensor) -> Tensor:
    if name != "weight_hh":
        return drawn
    scaled = drawn.double() / spectral_radius(drawn)
    return scaled.to(drawn.dtype)
