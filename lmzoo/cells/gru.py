r"""The gated recurrent unit, library convention (reset after the product, z keeps).

    r, z = σ( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )
    n    = tanh( x_t W_inᵀ + b_in + r ⊙ (h_{t-1} W_hnᵀ + b_hn) )
    h_t  = (1 − z) ⊙ n + z ⊙ h_{t-1}

Cho et al. 2014 (arXiv:1406.1078); gates in the order r, z, n, as in torch.nn.GRU.
"""

import torch
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell, State, Weights
from lmzoo.config import config


@CELLS("gru")
class GRU(Cell):
    """One GRU layer."""

    @config
    class Config:
        """Nothing to choose."""

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        h = width
        shapes = {
            "weight_ih": (3 * h, h),
            "weight_hh": (3 * h, h),
            "bias_ih": (3 * h,),
            "bias_hh": (3 * h,),
        }
        self.w = Weights(shapes, cut=set(), fan_in=h)

    def project(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.w.weight_ih, self.w.bias_ih)

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        (h,) = state
        xr, xz, xn = projected.chunk(3, dim=-1)
        hr, hz, hn = nn.functional.linear(h, self.w.weight_hh, self.w.bias_hh).chunk(3, dim=-1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        n = torch.tanh(xn + r * hn)
        h = n + z * (h - n)
        return h, (h,)
