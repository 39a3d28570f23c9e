r"""The tanh recurrent network.

    h_t = tanh( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )

Elman 1990; weights laid out as in torch.nn.RNN.
"""

import torch
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell, State, Weights
from lmzoo.config import config


@CELLS("rnn")
class RNN(Cell):
    """A single tanh layer."""

    @config
    class Config:
        """Nothing to choose."""

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        h = width
        shapes = {"weight_ih": (h, h), "weight_hh": (h, h), "bias_ih": (h,), "bias_hh": (h,)}
        self.w = Weights(shapes, cut=set(), fan_in=h)

    def project(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.w.weight_ih, self.w.bias_ih + self.w.bias_hh)

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        h = torch.tanh(projected + state[0] @ self.w.weight_hh.T)
        return h, (h,)
