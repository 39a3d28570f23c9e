r"""A cell of your own: the minimal gated unit whose gate reads the token only.

z_t = σ(x_t W_z)        c_t = tanh(x_t W_c + h_{t-1} U)        h_t = (1 − z_t) ⊙ h_{t-1} + z_t ⊙ c_t
"""

from typing import Any

import torch
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, Cell, State, Weights


@CELLS("my_study_cell")
class MyCell(Cell):
    """One layer of the equation above."""

    @config
    class Config:
        """No options."""

    def __init__(self, config: Any, width: int, length: int) -> None:
        super().__init__(config, width, length)
        shapes = {"weight_z": (width, width), "weight_c": (width, width), "state": (width, width)}
        self.w = Weights(shapes, cut=set(), fan_in=width)

    def project(self, x: Tensor) -> Tensor:
        """Return what does not depend on the state, for all positions at once."""
        return torch.cat([x @ self.w.weight_z, x @ self.w.weight_c], dim=-1)

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the output and the next state of one position."""
        gate, candidate = projected.chunk(2, dim=-1)
        z = torch.sigmoid(gate)
        h = (1 - z) * state[0] + z * torch.tanh(candidate + state[0] @ self.w.state)
        return h, (h,)
