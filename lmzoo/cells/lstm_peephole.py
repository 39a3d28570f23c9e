r"""The LSTM with peepholes: its gates read the cell state c.

    i, f, o = σ( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh + c_{t-1} W_chᵀ )
    g       = tanh( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )
    c_t     = f ⊙ c_{t-1} + i ⊙ g
    h_t     = o ⊙ tanh(c_t)

`full` has the three full matrices of S3. `diagonal` is the published form: each gate reads its own
channel only, c ⊙ w_ch, and o reads c_t instead of c_{t-1}. With W_ch = 0 both are the `lstm` cell,
and all other weights start with the same values as there.

Gers & Schmidhuber 2000. Source: S3.
"""

from enum import StrEnum

import torch
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell, State, Weights, gate_shapes
from lmzoo.config import config


class Peephole(StrEnum):
    """How the gates read the cell state."""

    FULL = "full"  # through matrices; o reads c_{t-1}
    DIAGONAL = "diagonal"  # channel by channel; o reads c_t


@CELLS("lstm_peephole")
class PeepholeLSTM(Cell):
    """An LSTM layer with peepholes; its state is (h, c)."""

    recurrent_weights = ("weight_hh",)

    num_state_vectors = 2

    @config
    class Config:
        """The kind of peepholes."""

        peephole: Peephole = Peephole.FULL

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        full = config.peephole is Peephole.FULL
        peephole = (3 * width, width) if full else (3, width)
        self.w = Weights({**gate_shapes(width), "weight_ch": peephole}, cut=set(), fan_in=width)

    def project(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.w.weight_ih, self.w.bias_ih + self.w.bias_hh)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        return self._gates_and_cell(projected, state)[0]

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        gates, c = self._gates_and_cell(projected, state)
        h = gates["o"] * torch.tanh(c)
        return h, (h, c)

    def _gates_and_cell(self, projected: Tensor, state: State) -> tuple[dict[str, Tensor], Tensor]:
        """Return the gates and the next cell state c_t."""
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
