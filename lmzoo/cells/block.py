r"""A residual block around any cell, as modern recurrent models have it.

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

Gu & Dao 2023 (arXiv:2312.00752); Feng et al. 2024 (arXiv:2410.01201); Shazeer 2020
(arXiv:2002.05202).
"""

from enum import StrEnum
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import WINDOW, convolve, ones, taps
from lmzoo.config import config
from lmzoo.kernels.tokens import TokenInputs


class Cut(StrEnum):
    """A part of the block that can be removed; its number is its position."""

    CONVOLUTION = "convolution"
    OUTPUT_GATE = "output_gate"
    NORM = "norm"
    FEED_FORWARD = "feed_forward"
    RESIDUAL = "residual"


@CELLS("block")
class Block(Cell):
    """A cell between a short convolution and an output gate, then a feed-forward part."""

    @config
    class Config:
        """The cell and the cuts of the block, by name or number."""

        inner: Annotated[Any, CELLS] = "min_gru"
        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.inner: Cell = CELLS.build(config.inner, width, length)
        self.num_state_vectors = self.inner.num_state_vectors
        h, units = width, -(-8 * width // 3)
        shapes = {
            "norm": (h,), "conv": (h, WINDOW), "gate": (h, h), "out": (h, h),
            "forward_norm": (h,), "up": (2 * units, h), "down": (h, units),
        }  # fmt: skip
        weights = {
            Cut.CONVOLUTION: {"conv"}, Cut.OUTPUT_GATE: {"gate"},
            Cut.NORM: {"norm", "forward_norm"}, Cut.FEED_FORWARD: {"forward_norm", "up", "down"},
        }  # fmt: skip
        cut = set[str]().union(*(weights.get(path, set()) for path in config.cuts))
        own = {"norm": ones, "forward_norm": ones, "conv": taps}
        self.w = Weights(shapes, cut, fan_in=width, own=own)

    @property
    def zero_start(self) -> float:
        return self.inner.zero_start

    def initial_state(self, start: Tensor) -> State:
        state = self.inner.initial_state(start)
        if self.w.conv is None:
            return state
        return (*state, start.new_zeros(len(start), WINDOW - 1, self.width))

    def constrain_start(self, vectors: Tensor) -> Tensor:
        return self.inner.constrain_start(vectors)

    @property
    def state_size(self) -> int | None:
        size = self.inner.state_size
        window = 0 if self.w.conv is None else (WINDOW - 1) * self.width
        return None if size is None else size + window

    def project(self, x: Tensor) -> Tensor:
        return x  # the residual reads x itself

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        u, inner, window = self._enter(projected[:, None], state)
        h, inner = self.inner.advance(u[:, 0], inner)
        return self._leave(projected, u[:, 0], h), (*inner, *window)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor:
        x = x.vectors() if isinstance(x, TokenInputs) else x
        u, _, _ = self._enter(x, self.initial_state(start))
        return self._leave(x, u, self.inner.scan(u, start))

    def fast_scan_from(self, x: Inputs, state: State) -> tuple[Tensor, State]:
        x = x.vectors() if isinstance(x, TokenInputs) else x
        u, inner, window = self._enter(x, state)
        h, inner = self.inner.scan_from(u, inner)
        return self._leave(x, u, h), (*inner, *window)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        """Return the gates of the cell inside."""
        u, inner, _ = self._enter(projected[:, None], state)
        return self.inner.gates(self.inner.project(u)[:, 0], inner)

    def _enter(self, x: Tensor, state: State) -> tuple[Tensor, State, State]:
        """Return u of T steps, the state of the inner cell, and the next window."""
        u = _normed(x, self.w.norm)
        if self.w.conv is None:
            return u, state, ()
        *inner, past = state
        u, window = convolve(u, past, self.w.conv)
        return nn.functional.silu(u), tuple(inner), (window,)

    def _leave(self, x: Tensor, u: Tensor, h: Tensor) -> Tensor:
        """Return y from the inputs x, the inner cell's inputs u and its outputs h."""
        w, linear, silu = self.w, nn.functional.linear, nn.functional.silu
        residual = Cut.RESIDUAL not in self.config.cuts
        r = linear(h if w.gate is None else h * silu(linear(u, w.gate)), w.out)
        r = x + r if residual else r
        if w.up is None:
            return r
        a, b = linear(_normed(r, w.forward_norm), w.up).chunk(2, dim=-1)
        y = linear(silu(a) * b, w.down)
        return r + y if residual else y


def _normed(x: Tensor, scales: Tensor | None) -> Tensor:
    """Return RMSNorm(x); x itself if the scales are cut."""
    if scales is None:
        return x
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * scales
