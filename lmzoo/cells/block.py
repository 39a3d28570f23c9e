"""Residual blocks around a cell, as modern recurrent models have them."""

from enum import StrEnum
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import linear, silu

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell, CellChoice, Inputs, OutputAndState, Parts, State, Weights
from lmzoo.cells.cuts import Cuts, removed
from lmzoo.cells.draws import WINDOW, by_columns, ones
from lmzoo.cells.matrix import MatrixCell, normed
from lmzoo.functional.convolution import convolve
from lmzoo.kernels.tokens import TokenInputs

BlockCut = StrEnum("BlockCut", "CONVOLUTION OUTPUT_GATE NORM FEED_FORWARD RESIDUAL")
Canon = StrEnum("Canon", "A B C D")
"""A place of a Canon layer."""


BLOCK_WEIGHTS = {
    BlockCut.CONVOLUTION: {"conv"},
    BlockCut.OUTPUT_GATE: {"gate"},
    BlockCut.NORM: {"norm", "forward_norm"},
    BlockCut.FEED_FORWARD: {"forward_norm", "up", "down"},
}
"""The weights that go with a cut."""


@CELLS("block")
class Block(Cell):
    """A cell between a short convolution and an output gate, then a feed-forward part.

        u_t = SiLU(conv(N(x_t)))                 depthwise, causal, 4 tokens
        h_t = cell(u_t, h_{t-1})                 any cell of the zoo
        r_t = x_t + W_y ( h_t ⊙ swish(W_g u_t) )
        y_t = r_t + W_d ( swish(W_a N(r_t)) ⊙ W_b N(r_t) )

    N is RMSNorm with learned scales; the SwiGLU feed-forward part has ⌈8H/3⌉ units. Cuts:

        0  convolution   SiLU(conv(N(x_t))) → N(x_t)
        1  output_gate   swish(W_g u_t) → 1
        2  norm          N(u) → u
        3  feed_forward  y_t = r_t
        4  residual      x_t + W_y → W_y; r_t + W_d → W_d

    Some cells have a convolution, an output gate and a norm of their own; cut one of the two.

    `canon` adds Canon layers, u_t + conv(u_t) without an activation (4 tokens, no bias), at up to
    four places: a, N(x_t) before the cell; b, the projections of a cell with a matrix as memory
    that are its q, k and v or become them; c, N(r_t) before the feed-forward part; d, W_a N(r_t)
    and W_b N(r_t) before its activation. Place b comes before a convolution that the cell has
    itself.

    Allen-Zhu 2025 (arXiv:2512.17351); Gu & Dao 2023 (arXiv:2312.00752); Feng et al. 2024
    (arXiv:2410.01201); Shazeer 2020 (arXiv:2002.05202).
    """

    inner: Cell
    w: Weights

    @config
    class Config:
        """The cell and the cuts of the block, by name or number."""

        inner: CellChoice = "min_gru"
        canon: Cuts[Canon] = Field(frozenset(), exclude_if=lambda places: not places)
        """Places of Canon layers."""
        cuts: Cuts[BlockCut] = frozenset()

        @model_validator(mode="after")
        def _places_exist(self) -> Any:
            places = self.canon & {Canon.C, Canon.D}
            if BlockCut.FEED_FORWARD in self.cuts and places:
                raise UserError(
                    f"canon={','.join(sorted(places))} is in the feed-forward part, which is cut; "
                    "drop one of the two"
                )
            return self

    def __init__(self, config: Any, width: int, length: int):
        super().__init__(config, width, length)
        self.inner = CELLS.build(config.inner, width, length)
        self.num_state_vectors = self.inner.num_state_vectors
        self.zero_start = self.inner.zero_start
        h = width
        # As many weights as a feed-forward part of 4H without a gate.
        # ⌈8H/3⌉.
        units = -(-8 * width // 3)
        shapes = {
            "norm": (h,),
            "conv": (h, WINDOW),
            "gate": (h, h),
            "out": (h, h),
            "forward_norm": (h,),
            "up": (2 * units, h),
            "down": (h, units),
        }
        cut = removed(BLOCK_WEIGHTS, config.cuts)
        own = {"norm": ones, "forward_norm": ones, "conv": by_columns}
        convolutions = ["conv"]
        # Sorted: the order of a set differs between processes.
        for place in sorted(config.canon):
            columns = h
            if place is Canon.B:
                columns = self._memory().memory_columns
            elif place is Canon.D:
                columns = 2 * units
            name = f"canon_{place}"
            shapes[name] = (columns, WINDOW)
            own[name] = by_columns
            convolutions.append(name)
        # The channels of the convolutions in the order of the windows.
        self._windows = {name: shapes[name][0] for name in convolutions if name not in cut}
        self.w = Weights(shapes, cut, fan_in=h, own=own)

    def initial_state(self, start: Tensor) -> State:
        state = self.inner.initial_state(start)
        for columns in self._windows.values():
            # Zeros before the first token.
            window = start.new_zeros(len(start), WINDOW - 1, columns)
            state += (window,)
        return state

    def constrain_start(self, vectors: Tensor) -> Tensor:
        return self.inner.constrain_start(vectors)

    @property
    def state_size(self) -> int | None:
        size = self.inner.state_size
        if size is None:
            return None
        # A window is what the next step reads: one input less than the convolution.
        columns = sum(self._windows.values())
        return size + (WINDOW - 1) * columns

    def project(self, x: Tensor) -> Tensor:
        return x  # the residual reads x itself

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        x = projected[:, None]
        inner, windows = self._split(state)
        u, gate = self._enter(x, windows)
        read = self._project(u, windows)
        h, inner = self.inner.step(read[:, 0], inner)
        y = self._leave(x, gate, h[:, None], windows)
        return y[:, 0], inner + tuple(windows.values())

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState:
        if isinstance(x, TokenInputs):
            x = x.vectors()
        inner, windows = self._split(state)
        u, gate = self._enter(x, windows)
        # Canon b mixes the projections: the inner cell must not make them itself.
        if "canon_b" in self._windows:
            projected = self._project(u, windows)
            h, inner = self._memory().scan_projected(projected, inner)
        else:
            h, inner = self.inner.scan_from(u, inner)
        y = self._leave(x, gate, h, windows)
        return y, inner + tuple(windows.values())

    def _split(self, state: State) -> tuple[State, Parts]:
        """Return the state of the inner cell, and the windows by name."""
        first = len(state) - len(self._windows)
        own = state[first:]
        windows = dict(zip(self._windows, own, strict=True))
        return state[:first], windows

    def _convolve(self, name: str, x: Tensor, windows: Parts) -> Tensor:
        """Convolve T steps, and replace the window."""
        weight = getattr(self.w, name)
        mixed, windows[name] = convolve(x, windows[name], weight)
        return mixed

    def _canon(self, place: Canon, x: Tensor, windows: Parts) -> Tensor:
        """Add a Canon layer if there is one at this place."""
        name = f"canon_{place}"
        if name in windows:
            # Residual, so that a convolution of zeros changes nothing.
            return x + self._convolve(name, x, windows)
        return x

    def _memory(self) -> MatrixCell:
        """Return the inner cell; a `UserError` if it has no place for Canon layer b."""
        if isinstance(self.inner, MatrixCell) and self.inner.memory_columns:
            return self.inner
        raise UserError(
            "canon=b needs a cell that projects to queries, keys and values, as gla and mamba2 do; "
            f"{self.inner.name} does not; drop b"
        )

    def _project(self, u: Tensor, windows: Parts) -> Tensor:
        projected = self.inner.project(u)
        columns = self._windows.get("canon_b", 0)
        if not columns:
            return projected
        memory = projected[..., :columns]
        mixed = self._canon(Canon.B, memory, windows)
        rest = projected[..., columns:]
        return torch.cat([mixed, rest], -1)

    def _enter(self, x: Tensor, windows: Parts) -> tuple[Tensor, Tensor]:
        """Return u of T steps, and what the gate reads."""
        read = normed(x, self.w.norm)
        inputs = self._canon(Canon.A, read, windows)
        if self.w.conv is None:
            return inputs, inputs
        mixed = self._convolve("conv", inputs, windows)
        u = silu(mixed)
        # The gate reads what the inner cell reads.
        return u, u

    def _leave(
        self,
        x: Tensor,
        gate: Tensor,
        h: Tensor,
        windows: Parts,
    ) -> Tensor:
        """Return y from the inputs x, what the gate reads, and the inner cell's outputs h."""
        w = self.w
        residual = BlockCut.RESIDUAL not in self.config.cuts
        if w.gate is not None:
            logits = linear(gate, w.gate)
            h = h * silu(logits)
        r = linear(h, w.out)
        if residual:
            r = x + r
        if w.up is None:
            return r
        normalised = normed(r, w.forward_norm)
        read = self._canon(Canon.C, normalised, windows)
        up = linear(read, w.up)
        both = self._canon(Canon.D, up, windows)
        # SwiGLU: one half gates the other.
        a, b = both.chunk(2, -1)
        gated = silu(a) * b
        y = linear(gated, w.down)
        if residual:
            return r + y
        return y
