r"""A cell of your own: the minimal gated unit whose gate reads the token only.

z_t = σ(x_t G)        c_t = tanh(x_t C + h_{t-1} U)        h_t = (1 − z_t) ⊙ h_{t-1} + z_t ⊙ c_t

0  gate    x_t G → 0: a gate of ½
1  state   h_{t-1} U → 0
"""

from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, Cell, State, Weights, affine
from lmzoo.cells.cuts import Cuts

MyCut = StrEnum("MyCut", "GATE STATE")


@CELLS("my_study_cell")
class MyCell(Cell):
    """One layer of the equation above."""

    @config
    class Config:
        """The cuts, by name or number."""

        cuts: Cuts[MyCut] = frozenset()

    def __init__(self, config: Any, width: int, length: int) -> None:
        super().__init__(config, width, length)
        shapes = dict.fromkeys(("gate", "candidate", "state"), (width, width))
        self.w = Weights(shapes, cut=set(config.cuts), fan_in=width)  # a cut has a weight's name

    def project(self, x: Tensor) -> Tensor:
        """Return what does not depend on the state, for all positions at once."""
        gate = affine(x, self.w.gate)
        candidate = affine(x, self.w.candidate)
        return torch.cat([gate, candidate], dim=-1)

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the output and the next state of one position; a missing weight is 0."""
        (h,) = state
        gate, candidate = projected.chunk(2, dim=-1)
        z = torch.sigmoid(gate)
        new = torch.tanh(candidate + affine(h, self.w.state))
        h = (1 - z) * h + z * new
        return h, (h,)
