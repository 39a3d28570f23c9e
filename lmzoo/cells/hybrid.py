"""A stack of different layers in one cell."""

import re
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, Field, StrictBool
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell, CellChoice, Inputs, OutputAndState, State
from lmzoo.functional.normalise import rms_norm

PATTERN = re.compile(r"(?:(\w+) )?(\d+):(\d+)(?: (\w+))?(?: x(\d+))?")
"""`3:1`, or `mamba 3:1 attention x2`."""


def parse_layers(value: Any) -> Any:
    """Return the layers, at least one, from a text: names with commas, or a pattern."""
    if isinstance(value, str):
        text = value.strip().strip("[]")
        found = PATTERN.fullmatch(text)
        if found:
            # `gla 3:1 attention x2`: so many of one, so many of another, so many times.
            one, count, others, other, times = found.groups()
            stack = [one or "gla"] * int(count)
            stack += [other or "attention"] * int(others)
            value = stack * int(times or 1)
        else:
            parts = [part.strip() for part in text.split(",")]
            value = [part for part in parts if part]
    if not isinstance(value, list | tuple) or not value:
        raise UserError(
            f"layers are a list of cells, or a pattern such as `gla 3:1 attention`, got {value!r}"
        )
    return tuple(value)


@CELLS("hybrid")
class Hybrid(Cell):
    """Different cells on top of each other: recurrent ones and attention.

        h⁰_t = x_t
        h^l_t = cell^l( h^{l-1}_t, S^l_{t-1} )                                  residual=False
              | h^{l-1}_t + cell^l( N(h^{l-1}_t), S^l_{t-1} )                   residual=True
        y_t = h^L_t

    N is RMSNorm without scales. A layer is any cell, a block with a cell inside too, which has a
    residual and a feed-forward part of its own. `layers` is a list, or a pattern: `3:1` is three
    times gla and then attention, `mamba 3:1 attention x2` eight layers. A setting or a cut of one
    layer has its number, from 1: `cell.layers.3.cuts`. `num_layers` of a `recurrent_lm`
    repeats one cell; here layers may differ.

    Differences from the papers' models:

        there                                       here                      why
        Kimi Linear: attention without a rotation   with one                  `rotation` cuts it
        Griffin, Samba: a window of 1,024, 2,048    all tokens                `window` of a layer
        all: a feed-forward part after each layer   in a layer that is a      a layer is any cell
                                                    `block`

    De et al. 2024 (arXiv:2402.19427); Ren et al. 2024 (arXiv:2406.07522); Kimi Team 2025
    (arXiv:2510.26692), for three to one.
    """

    pack_limit = 2**16
    """Packs of four take 0.35 of the time alone at 16,000 numbers, 1.03 at 64,000 and 1.19 at
    256,000."""

    @config
    class Config:
        """The layers, lowest first."""

        layers: Annotated[
            tuple[CellChoice, ...],
            BeforeValidator(parse_layers),
        ] = Field(("gla", "gla", "attention", "gla"))
        residual: StrictBool = False

    def __init__(self, config: Any, width: int, length: int):
        super().__init__(config, width, length)
        layers = [CELLS.build(layer, width, length) for layer in config.layers]
        self.layers = nn.ModuleList(layers)
        self.num_state_vectors = sum(cell.num_state_vectors for cell in layers)
        zeros = {cell.zero_start for cell in layers if cell.num_state_vectors}
        # Layers with different zeros have no constant start that is zero for all.
        if len(zeros) == 1:
            self.zero_start = zeros.pop()
        else:
            self.zero_start = float("nan")
        # Sizes are found on a state of no rows.
        empty = torch.zeros(0, self.start_size)
        self._sizes = [len(state) for state in self._begin(empty)]

    @property
    def cells(self) -> list[Any]:
        return list(self.layers)

    @property
    def state_size(self) -> int | None:
        sizes = [cell.state_size for cell in self.cells]
        # One layer with a growing state makes the whole state grow.
        if None in sizes:
            return None
        return sum(sizes)

    @property
    def input_blind(self) -> bool:
        if self.config.residual:
            return False
        return any(cell.input_blind for cell in self.cells)

    def initial_state(self, start: Tensor) -> State:
        state: State = ()
        for own in self._begin(start):
            state += own
        return state

    def constrain_start(self, vectors: Tensor) -> Tensor:
        if vectors.shape[-1] != self.start_size:
            return self.cells[0].constrain_start(vectors)  # one vector, which all layers start from
        parts = []
        for cell, part in self._by_layer(vectors):
            # A layer without a state, such as attention, has nothing to constrain.
            if part.shape[-1]:
                part = cell.constrain_start(part)
            parts.append(part)
        return torch.cat(parts, -1)

    def project(self, x: Tensor) -> Tensor:
        return x

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        h = projected
        after = []
        parts = self._split(state)
        for cell, own in zip(self.cells, parts, strict=True):
            y, own = cell.advance(self._enter(h), own)
            if self.config.residual:
                h = h + y
            else:
                h = y
            after += own
        return h, tuple(after)

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState:
        after = []
        parts = self._split(state)
        for cell, own in zip(self.cells, parts, strict=True):
            # Each layer runs over all tokens before the next: fast scans stay whole.
            y, own = cell.scan_from(self._enter(x), own)
            if self.config.residual:
                x = self._vectors(x) + y
            else:
                x = y
            after += own
        return self._vectors(x), tuple(after)

    def _begin(self, start: Tensor) -> list[State]:
        return [cell.initial_state(part) for cell, part in self._by_layer(start)]

    def _by_layer(self, start: Tensor) -> list[tuple[Any, Tensor]]:
        sizes = [cell.start_size for cell in self.cells]
        parts = start.split(sizes, -1)
        return list(zip(self.cells, parts, strict=True))

    def _split(self, state: State) -> list[State]:
        parts = []
        for size in self._sizes:
            parts.append(state[:size])
            state = state[size:]
        return parts

    def _enter(self, x: Any) -> Any:
        """Return what a layer reads."""
        if not self.config.residual:
            return x
        x = self._vectors(x)
        # A norm before each layer, because a residual stream grows.
        return rms_norm(x)

    def _vectors(self, x: Inputs) -> Tensor:
        if isinstance(x, Tensor):
            return x
        return x.vectors()
