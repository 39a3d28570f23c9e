r"""The vanilla recurrent network.

    h_t = act( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )

act is tanh unless chosen; `identity` makes the network linear in its inputs and start.
`spectral` scales the initial W_hh to max |eigenvalue| = 1, so that a linear network's
gradients neither grow nor vanish geometrically.

Elman 1990; S3; weights laid out as in torch.nn.RNN; zoo.md 4.3.
"""

from enum import StrEnum

import torch
from jaxtyping import Float
from pydantic import StrictBool
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights, as_drawn, stacked
from lmzoo.config import config
from lmzoo.kernels.scan.autograd import scan_batch_first
from lmzoo.kernels.scan.rnn import RNNScan


class Activation(StrEnum):
    """What the sum goes through."""

    TANH = "tanh"
    SIGMOID = "sigmoid"
    RELU = "relu"
    IDENTITY = "identity"


FUNCTIONS = {
    Activation.TANH: torch.tanh,
    Activation.SIGMOID: torch.sigmoid,
    Activation.RELU: torch.relu,
    Activation.IDENTITY: torch.nn.Identity(),
}


@CELLS("rnn")
class RNN(Cell):
    """A single layer without gates."""

    @config
    class Config:
        """Its activation and its initial spectrum."""

        activation: Activation = Activation.TANH
        spectral: StrictBool = False
        """Whether W_hh starts with spectral radius 1."""

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        adjust = _spectral if config.spectral else as_drawn
        self.w = Weights(stacked(width, gates=1), cut=set(), fan_in=width, adjust=adjust)

    def project(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.w.weight_ih, self.w.bias_ih + self.w.bias_hh)

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        h = FUNCTIONS[self.config.activation](projected + state[0] @ self.w.weight_hh.T)
        return h, (h,)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor:
        w = self.w
        weights = (w.weight_ih.mT, w.bias_ih + w.bias_hh, w.weight_hh.mT)
        return scan_batch_first(RNNScan(self.config.activation.value), x, start, weights)


def spectral_radius(matrix: Float[Tensor, "H H"]) -> Float[Tensor, ""]:
    """The largest |eigenvalue|, in double precision."""
    return torch.linalg.eigvals(matrix.double()).abs().max()


def _spectral(name: str, drawn: Tensor) -> Tensor:
    if name != "weight_hh":
        return drawn
    return (drawn.double() / spectral_radius(drawn)).to(drawn.dtype)
