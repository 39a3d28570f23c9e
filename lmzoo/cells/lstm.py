r"""Long short-term memory.

    i, f, o = σ( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )
    g       = tanh( same )
    c_t     = f ⊙ c_{t-1} + i ⊙ g
    h_t     = o ⊙ tanh(c_t)

Hochreiter & Schmidhuber 1997, Gers et al. 2000; gates in the order i, f, g, o and two
biases, as in torch.nn.LSTM.
"""

import torch
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell, State, Weights
from lmzoo.config import config


@CELLS("lstm")
class LSTM(Cell):
    """One LSTM layer; its state is (h, c)."""

    parts = 2

    @config
    class Config:
        """Nothing to choose."""

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        h = width
        shapes = {
            "weight_ih": (4 * h, h),
            "weight_hh": (4 * h, h),
            "bias_ih": (4 * h,),
            "bias_hh": (4 * h,),
        }
        self.w = Weights(shapes, cut=set(), fan_in=h)

    def project(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.w.weight_ih, self.w.bias_ih + self.w.bias_hh)

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        i, f, g, o = (projected + h @ self.w.weight_hh.T).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)
