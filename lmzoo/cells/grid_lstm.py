r"""The grid LSTM: blocks with one LSTM along time and one along depth.

    H        = [h_time, h_depth]
    u, f, o  = σ( W H + b ),  ĉ = tanh( W H + b )      own rows; own W, b per dimension
    m'       = f ⊙ m + u ⊙ ĉ
    h'       = tanh( o ⊙ m' )                          squash=inside, as published
             | o ⊙ tanh( m' )                          squash=outside, as an LSTM

A step passes the (h, m) of the token through D blocks; each block also has an (h, m) along time.
The output is h_depth of the last block. With `along=tanh` or `along=identity`, the depth dimension
is h' = act(V H), without memory. With `priority` the depth dimension reads the new h' of time
instead of the old h. `tied` blocks share their weights. Gates have the order u, f, ĉ, o.

Kalchbrenner et al. 2016 (arXiv:1507.01526). Source: S2.
"""

from enum import StrEnum
from typing import Annotated, cast

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.cells.base import CELLS, Cell, State, Weights


class Squash(StrEnum):
    """Position of the tanh in h'."""

    INSIDE = "inside"  # tanh(o ⊙ m')
    OUTSIDE = "outside"  # o ⊙ tanh(m')


Along = StrEnum("Along", "LSTM TANH IDENTITY")
"""The function along the depth dimension."""


@CELLS("grid_lstm")
class GridLSTM(Cell):
    """D blocks of a two-dimensional grid of time and depth."""

    @config
    class Config:
        """Depth of the grid and variant of its blocks."""

        depth: Annotated[int, IntRange(1, 6)] = Field(2, ge=1)
        """D, the number of blocks."""
        along: Along = Along.LSTM
        squash: Squash = Squash.INSIDE
        tied: StrictBool = False
        priority: StrictBool = False

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        h = width
        self.num_state_vectors = 2 * config.depth
        self._memory = config.along is Along.LSTM
        blocks = 1 if config.tied else config.depth
        self.enter = Weights({"weight": (2 * h if self._memory else h, h)}, cut=set(), fan_in=h)
        self.blocks = nn.ModuleList(_block(h, memory=self._memory) for _ in range(blocks))

    def project(self, x: Tensor) -> Tensor:
        return x @ self.enter.weight.T

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        """Return the gates by name: `u time 1` of block 1 along time, `u depth 1` along depth."""
        return self._run_blocks(projected, state)[2]

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        h, state, _ = self._run_blocks(projected, state)
        return h, state

    def _run_blocks(
        self, projected: Tensor, state: State
    ) -> tuple[Tensor, State, dict[str, Tensor]]:
        """Run all blocks, lowest first; return (output, next state, gates)."""
        depth, squash = self.config.depth, self.config.squash
        hidden, memory, named = list(state[:depth]), list(state[depth:]), {}
        h, *rest = projected.split(self.width, dim=-1)
        for k in range(depth):
            w = cast("Weights", self.blocks[0 if self.config.tied else k])
            both = torch.cat([hidden[k], h], dim=-1)
            gates, candidate = gates_and_candidate(both, w.time, w.time_bias)
            hidden[k], memory[k] = update_memory(gates, candidate, memory[k], squash)
            named |= {f"{name} time {k + 1}": gate for name, gate in gates.items()}
            if self.config.priority:
                both = torch.cat([hidden[k], h], dim=-1)
            if self._memory:
                gates, candidate = gates_and_candidate(both, w.depth, w.depth_bias)
                h, rest[0] = update_memory(gates, candidate, rest[0], squash)
                named |= {f"{name} depth {k + 1}": gate for name, gate in gates.items()}
            else:
                h = both @ w.depth.T
                h = torch.tanh(h) if self.config.along is Along.TANH else h
        return h, (*hidden, *memory), named


def gates_and_candidate(
    incoming: Float[Tensor, "B N"], weight: Float[Tensor, "G N"], bias: Float[Tensor, "G"]
) -> tuple[dict[str, Tensor], Float[Tensor, "B H"]]:
    """Return the gates u, f, o of one dimension, and its candidate ĉ."""
    u, f, c, o = nn.functional.linear(incoming, weight, bias).chunk(4, dim=-1)
    gates = {"u": torch.sigmoid(u), "f": torch.sigmoid(f), "o": torch.sigmoid(o)}
    return gates, torch.tanh(c)


def update_memory(
    gates: dict[str, Tensor], candidate: Tensor, m: Float[Tensor, "B H"], squash: Squash
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """Return (h', m')."""
    m, o = gates["f"] * m + gates["u"] * candidate, gates["o"]
    return (torch.tanh(o * m) if squash is Squash.INSIDE else o * torch.tanh(m)), m


def _block(width: int, *, memory: bool) -> Weights:
    """Return the weights of a block; `memory` says whether the depth dimension is an LSTM."""
    shapes = {
        "time": (4 * width, 2 * width),
        "time_bias": (4 * width,),
        "depth": (4 * width if memory else width, 2 * width),
        "depth_bias": (4 * width,),
    }
    cut, biases = set() if memory else {"depth_bias"}, {"time_bias", "depth_bias"}
    return Weights(shapes, cut, fan_in=2 * width, biases=biases)
