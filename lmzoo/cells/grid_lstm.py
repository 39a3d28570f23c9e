r"""The grid LSTM: an LSTM along time and an LSTM along depth, crossing in every block.

    H        = [h_time, h_depth]
    u, f, o  = σ( W H + b ),  ĉ = tanh( same )         for each dimension its own W
    m'       = f ⊙ m + u ⊙ ĉ
    h'       = tanh( o ⊙ m' )                          squash=inside, as published
             | o ⊙ tanh( m' )                          squash=outside, as an LSTM

A step sends (h, m) of the token up through D blocks, each of which also has an (h, m) of
time; the output is h_depth above the last. `along` may be `tanh` or `identity`: then the
depth dimension is h' = act(V H), without memory. With `priority` the depth side
reads the time side's new h', not the old h. `tied` blocks share their weights.

Kalchbrenner et al. 2016 (arXiv:1507.01526); S2; gates in the order u, f, ĉ, o; zoo.md 4.2.
"""

from enum import StrEnum
from typing import Annotated, cast

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell, State, Weights
from lmzoo.config import config
from lmzoo.space import IntRange


class Squash(StrEnum):
    """Where the tanh of h' stands."""

    INSIDE = "inside"  # tanh(o ⊙ m')
    OUTSIDE = "outside"  # o ⊙ tanh(m')


class Along(StrEnum):
    """What the depth dimension is."""

    LSTM = "lstm"
    TANH = "tanh"
    IDENTITY = "identity"


@CELLS("grid_lstm")
class GridLSTM(Cell):
    """A 2-D grid of time and depth."""

    @config
    class Config:
        """How deep the grid is, and what runs along it."""

        depth: Annotated[int, IntRange(1, 6)] = Field(2, ge=1)
        """D."""
        along: Along = Along.LSTM
        squash: Squash = Squash.INSIDE
        tied: StrictBool = False
        priority: StrictBool = False

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        h = width
        self.parts = 2 * config.depth
        self._memory = config.along is Along.LSTM
        blocks = 1 if config.tied else config.depth
        self.enter = Weights({"weight": (2 * h if self._memory else h, h)}, cut=set(), fan_in=h)
        self.blocks = nn.ModuleList(_block(h, memory=self._memory) for _ in range(blocks))

    def project(self, x: Tensor) -> Tensor:
        return x @ self.enter.weight.T

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        depth, squash = self.config.depth, self.config.squash
        hidden, memory = list(state[:depth]), list(state[depth:])
        h, *rest = projected.split(self.width, dim=-1)
        for k in range(depth):
            w = cast("Weights", self.blocks[0 if self.config.tied else k])
            both = torch.cat([hidden[k], h], dim=-1)
            hidden[k], memory[k] = transform(both, memory[k], w.time, w.time_bias, squash)
            if self.config.priority:
                both = torch.cat([hidden[k], h], dim=-1)
            if self._memory:
                h, rest[0] = transform(both, rest[0], w.depth, w.depth_bias, squash)
            else:
                h = both @ w.depth.T
                h = torch.tanh(h) if self.config.along is Along.TANH else h
        return h, (*hidden, *memory)


def transform(
    incoming: Float[Tensor, "B N"],
    m: Float[Tensor, "B H"],
    weight: Float[Tensor, "G N"],
    bias: Float[Tensor, "G"],
    squash: Squash,
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """One dimension of a block: (h', m') from all incoming h and its own m."""
    u, f, c, o = nn.functional.linear(incoming, weight, bias).chunk(4, dim=-1)
    m = torch.sigmoid(f) * m + torch.sigmoid(u) * torch.tanh(c)
    o = torch.sigmoid(o)
    return (torch.tanh(o * m) if squash is Squash.INSIDE else o * torch.tanh(m)), m


def _block(width: int, *, memory: bool) -> Weights:
    """The weights of a block's two dimensions."""
    shapes = {
        "time": (4 * width, 2 * width),
        "time_bias": (4 * width,),
        "depth": (4 * width if memory else width, 2 * width),
        "depth_bias": (4 * width,),
    }
    return Weights(shapes, cut=set() if memory else {"depth_bias"}, fan_in=2 * width)
