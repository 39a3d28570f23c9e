r"""The LSTM whose gates look at the cell.

    i, f, o = σ( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh + c_{t-1} W_chᵀ )
    g       = tanh( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )
    c_t     = f ⊙ c_{t-1} + i ⊙ g
    h_t     = o ⊙ tanh(c_t)

`full` has the three matrices of S3. `diagonal` is as published: each gate sees its own
cell only, c ⊙ w_ch, and o sees c_t, which by then is known. With W_ch = 0 both are `lstm`,
and every other weight starts as there.

Gers & Schmidhuber 2000; S3; zoo.md 4.3.
"""

from enum import StrEnum

import torch
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell, State, Weights, stacked
from lmzoo.config import config


class Peephole(StrEnum):
    """How the gates look at the cell."""

    FULL = "full"  # through matrices; o sees c_{t-1}
    DIAGONAL = "diagonal"  # channel by channel; o sees c_t


@CELLS("lstm_peephole")
class PeepholeLSTM(Cell):
    """One LSTM layer with peepholes; its state is (h, c)."""

    parts = 2

    @config
    class Config:
        """Which peepholes."""

        peephole: Peephole = Peephole.FULL

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        full = config.peephole is Peephole.FULL
        peephole = (3 * width, width) if full else (3, width)
        self.w = Weights({**stacked(width), "weight_ch": peephole}, cut=set(), fan_in=width)

    def project(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.w.weight_ih, self.w.bias_ih + self.w.bias_hh)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        return self._move(projected, state)[0]

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        gates, c = self._move(projected, state)
        h = gates["o"] * torch.tanh(c)
        return h, (h, c)

    def _move(self, projected: Tensor, state: State) -> tuple[dict[str, Tensor], Tensor]:
        """The gates and the next cell, at which one of them may look."""
        h, c = state
        i, f, g, o = (projected + h @ self.w.weight_hh.T).chunk(4, dim=-1)
        if self.config.peephole is Peephole.FULL:
            ci, cf, co = (c @ self.w.weight_ch.T).chunk(3, dim=-1)
            i, f, o = torch.sigmoid(i + ci), torch.sigmoid(f + cf), torch.sigmoid(o + co)
            return {"i": i, "f": f, "o": o}, f * c + i * torch.tanh(g)
        wi, wf, wo = self.w.weight_ch
        i, f = torch.sigmoid(i + c * wi), torch.sigmoid(f + c * wf)
        c = f * c + i * torch.tanh(g)
        return {"i": i, "f": f, "o": torch.sigmoid(o + c * wo)}, c
