r"""The recurrent block of Griffin: a linear map and a convolution before the RG-LRU, a gate after.

    u_t = conv(W_x x_t + b_x)                causal, depthwise, 4 tokens
    h_t = RGLRU(u_t, h_{t-1})                the cell `rg_lru`
    z_t = h_t ⊙ gelu(W_y x_t + b_y)
    y_t = W_o z_t + b_o

The RG-LRU multiplies its input by no matrix, so W_x is where channels meet before the memory. The
gate reads the token before the convolution. Cuts:

    0  input_map     W_x x_t + b_x → x_t        2  gate         gelu(W_y x_t + b_y) → 1
    1  convolution   conv(u) → u                3  output_map   W_o z_t + b_o → z_t

Without all four it is `rg_lru`. Matrices start at N(0, 1/E), taps at N(0, 0.01/4), biases at 0.

Differences from the code of recurrentgemma (`torch/modules.py`, 2efa84d): those of `rg_lru`.

De et al. 2024 (arXiv:2402.19427).
"""

from enum import StrEnum
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, Cell, Inputs, OwnDraw, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import WINDOW, convolve, normal
from lmzoo.cells.rg_lru import RGLRU
from lmzoo.functional.affine import affine
from lmzoo.functional.initialisers import unit_normal
from lmzoo.kernels.tokens import TokenInputs

Cut = StrEnum("Cut", "INPUT_MAP CONVOLUTION GATE OUTPUT_MAP")
PARTS = {Cut.INPUT_MAP: "x", Cut.GATE: "y", Cut.OUTPUT_MAP: "o"}


@CELLS("griffin")
class Griffin(Cell):
    """The RG-LRU between linear maps, with a short convolution and an output gate."""

    @config
    class Config:
        """The cuts of the block, by name or number."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.inner = RGLRU(RGLRU.Config(), width, length)
        self.zero_start = self.inner.zero_start
        h, shapes = width, dict[str, tuple[int, ...]]()
        for name in PARTS.values():
            shapes |= {f"w{name}": (h, h), f"b{name}": (h,)}
        shapes |= {"conv": (h, WINDOW), "bias_conv": (h,)}
        own: dict[str, OwnDraw]
        own = {f"w{name}": unit_normal for name in PARTS.values()}
        own |= {f"b{name}": torch.zeros for name in PARTS.values()}
        own |= {"conv": normal((0.01 / WINDOW) ** 0.5), "bias_conv": torch.zeros}
        cut = {
            f"{kind}{name}" for part, name in PARTS.items() if part in config.cuts for kind in "wb"
        }
        cut |= {"conv", "bias_conv"} if Cut.CONVOLUTION in config.cuts else set()
        self.w = Weights(shapes, cut, fan_in=h, biases={"bx", "by", "bo"}, own=own)

    @property
    def state_size(self) -> int:
        window = 0 if self.w.conv is None else (WINDOW - 1) * self.width
        return self.width + 1 + window  # the RG-LRU counts tokens

    def initial_state(self, start: Tensor) -> State:
        state = self.inner.initial_state(start)
        if self.w.conv is None:
            return state
        return (*state, start.new_zeros(len(start), WINDOW - 1, self.width))

    def project(self, x: Tensor) -> Float[Tensor, "B T G"]:
        """Return W_x x + b_x and the gate."""
        w = self.w
        inputs = x if w.wx is None else affine(x, w.wx, w.bx)
        gate = torch.ones_like(x)
        if w.wy is not None:
            gate = nn.functional.gelu(affine(x, w.wy, w.by), approximate="tanh")
        return torch.cat([inputs, gate], dim=-1)

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        inputs, gate = projected.chunk(2, dim=-1)
        u, inner, window = self._enter(inputs[:, None], state)
        h, inner = self.inner.advance(u[:, 0], inner)
        return self._leave(h, gate), (*inner, *window)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor:
        return self.fast_scan_from(x, self.initial_state(start))[0]

    def fast_scan_from(self, x: Inputs, state: State) -> tuple[Tensor, State]:
        projected = self.project(x.vectors() if isinstance(x, TokenInputs) else x)
        inputs, gate = projected.chunk(2, dim=-1)
        u, inner, window = self._enter(inputs, state)
        h, inner = self.inner.scan_from(u, inner)
        return self._leave(h, gate), (*inner, *window)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        """Return the gates of the RG-LRU."""
        u, inner, _ = self._enter(projected[:, None, : self.width], state)
        return self.inner.gates(self.inner.project(u)[:, 0], inner)

    def _enter(self, inputs: Tensor, state: State) -> tuple[Tensor, State, State]:
        """Return u of T steps, the state of the RG-LRU, and the next window."""
        if self.w.conv is None:
            return inputs, state, ()
        *inner, past = state
        u, window = convolve(inputs, past, self.w.conv, self.w.bias_conv)
        return u, tuple(inner), (window,)

    def _leave(self, h: Tensor, gate: Tensor) -> Tensor:
        y = h * gate
        return y if self.w.wo is None else affine(y, self.w.wo, self.w.bo)
