"""Softmax attention as a layer of a stack, and its projections, which decoders share."""

from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, Cell, Inputs, OutputAndState, State
from lmzoo.cells.cuts import Cuts, cuts_of
from lmzoo.functional.softmax_attention import attend, causal_mask, rotate
from lmzoo.kernels.tokens import TokenInputs
from lmzoo.types import Features

Memory = StrEnum("Memory", "FORGET STICK_BREAKING SINKS")
"""What weighs earlier positions besides q · k (`functional/softmax_attention.py`)."""


def check_memory(memory: frozenset[Memory]) -> frozenset[Memory]:
    """Refuse parts that act on a softmax together with weights that are none."""
    softmax = memory & {Memory.FORGET, Memory.SINKS}
    if Memory.STICK_BREAKING in memory and softmax:
        raise UserError(
            f"memory=stick_breaking has no softmax for {', '.join(sorted(softmax))}; drop one"
        )
    return memory


@config
class MemoryConfig:
    """The parts of an attention with memory."""

    memory: Annotated[frozenset[Memory], cuts_of(Memory, check_memory)] = Field(
        frozenset(), exclude_if=lambda parts: not parts
    )
    """Parts by name or number: forget, stick_breaking, sinks."""


class SoftmaxAttention(nn.Module):
    """Maps of q, k, v and of the parts of an attention with memory; `attention` applies them.

    u_t are the inputs (E). A head has d = 2 ⌈E / 2 heads⌉ numbers, heads / groups queries share k
    and v, and R^t is a rotation:

        q_t, k_t, v_t = R^t W_q u_t, R^t W_k u_t, W_v u_t
        f_t = σ( W_f u_t + b_f )               forget: a number per head
        y_t = W_o o_t

    Differences from the papers' codes:

        there                              here                 why
        FoX: no R, norms of q and k        R, no norms          `rotation` cuts R; the other cells'
        stick-breaking: no R               R                    `rotation` cuts R
        sinks: drawn                       0                    plain attention plus one

    Lin et al. 2025 (arXiv:2503.02130); Tan et al. 2024 (arXiv:2410.17980).
    """

    def add_maps(
        self,
        width: int,
        heads: int,
        groups: int,
        window: int,
        memory: frozenset[Memory],
        *,
        rotated: bool,
    ):
        """Make the maps; `window` 0 is all positions."""
        self.heads = heads
        self.groups = groups
        self.window = window
        self.memory = memory
        self.rotated = rotated
        # Rounded up to an even number: a rotation turns pairs.
        pairs = -(-width // (2 * heads))
        self.size = 2 * pairs
        inner = heads * self.size
        shared = groups * self.size
        self.query = nn.Linear(width, inner, bias=False)
        self.key = nn.Linear(width, shared, bias=False)
        self.value = nn.Linear(width, shared, bias=False)
        self.output = nn.Linear(inner, width, bias=False)
        if Memory.FORGET in memory:
            self.forget = nn.Linear(width, heads)
        if Memory.SINKS in memory:
            # A logit for nothing: a query may read no token.
            zeros = torch.zeros(heads)
            self.sink = nn.Parameter(zeros)

    def reset_parameters(self):
        """Set the sinks to 0; the maps draw themselves."""
        if Memory.SINKS in self.memory:
            nn.init.zeros_(self.sink)

    @property
    def position_size(self) -> int:
        """Numbers that are kept of a position."""
        size = 2 * self.groups * self.size
        if Memory.FORGET in self.memory:
            size += self.heads
        return size

    def attention(
        self,
        u: Features,
        past: State = (),
    ) -> tuple[Features, State]:
        """Return y of t positions after those in `past`, and what later positions read."""
        # Keys are kept before their rotation: positions then count from the oldest key, and only
        # their differences enter q · k.
        kept = self.keep(u)
        if past:
            joined = [
                torch.cat([earlier, new], -2) for earlier, new in zip(past, kept, strict=True)
            ]
            kept = tuple(joined)
        k, v = kept[:2]
        q = self._split(self.query(u))
        count = k.shape[-2]
        rows = u.shape[-2]
        if self.rotated:
            q = rotate(q, count - rows)
            k = rotate(k)
        options: dict[str, Any] = {"stick": Memory.STICK_BREAKING in self.memory}
        if Memory.FORGET in self.memory:
            options["log_forget"] = kept[2].squeeze(-1)
        if Memory.SINKS in self.memory:
            options["sink"] = self.sink
        mask = causal_mask(count, q.device, self.window, last=rows)
        k = self._shared(k)
        v = self._shared(v)
        o = attend(q, k, v, mask, **options)
        o = o.transpose(-3, -2).flatten(-2)
        # The next token reads window − 1 of them, and itself.
        first = 0
        if self.window:
            first = max(0, count - self.window + 1)
        state = tuple(part[..., first:, :] for part in kept)
        return self.output(o), state

    def keep(self, u: Tensor) -> State:
        """Return k and v, and log f, of the positions: (B, n, t, ..) each."""
        k = self._split(self.key(u))
        v = self._split(self.value(u))
        kept = [k, v]
        if Memory.FORGET in self.memory:
            log_f = logsigmoid(self.forget(u))
            kept.append(log_f.mT[..., None])
        return tuple(kept)

    def _shared(self, part: Float[Tensor, "B n t c"]) -> Float[Tensor, "B h t c"]:
        # Groups share keys and values: each is read by several heads.
        readers = self.heads // self.groups
        return part.repeat_interleave(readers, -3)

    def _split(self, z: Float[Tensor, "B t I"]) -> Float[Tensor, "B n t d"]:
        by_head = z.unflatten(-1, (-1, self.size))
        return by_head.transpose(-3, -2)


AttentionCut = StrEnum("AttentionCut", "ROTATION")
AttentionHeads = Annotated[int, Choice((2, 4, 8)), Field(ge=1)]


@CELLS("attention")
class AttentionCell(Cell):
    """Causal softmax attention as a cell: its state has the keys and values of all tokens.

        q_t, k_t = R^t W_q x_t, R^t W_k x_t
        v_t = W_v x_t
        y_t = W_o Σ_j softmax_j( q_t · k_j / √d ) v_j          t − `window` < j ≤ t

    `memory` adds parts (`SoftmaxAttention`). R^t is a rotation by the position (RoPE). The state
    grows with the tokens, up to `window` − 1 of them, and has no initial vector: learned initial
    states need another layer. Cuts:

        0  rotation   R^t → 1

    Vaswani et al. 2017 (arXiv:1706.03762); Su et al. 2021 (arXiv:2104.09864). The table of
    differences is that of `SoftmaxAttention`.
    """

    num_state_vectors = 0
    pack_limit = 2**17
    """Packs of four take 0.27 of the time alone at 16,000 numbers, 0.50 at 64,000 and 1.36 at
    256,000."""
    zero_start = 1.0

    @config
    class Config(MemoryConfig):
        """Heads, window, parts of the memory and cuts."""

        heads: AttentionHeads = 4
        window: int = Field(0, ge=0)
        """Tokens that a token attends to, itself included; 0: all."""
        cuts: Cuts[AttentionCut] = frozenset()

    def __init__(self, config: Any, width: int, length: int):
        super().__init__(config, width, length)
        self.w = SoftmaxAttention()
        rotated = AttentionCut.ROTATION not in config.cuts
        self.w.add_maps(
            width,
            config.heads,
            config.heads,
            config.window,
            config.memory,
            rotated=rotated,
        )

    @property
    def state_size(self) -> int | None:
        # The state grows with the tokens.
        return None

    def initial_state(self, start: Tensor) -> State:
        # Of the sizes that `keep` gives, with no position.
        token = start.new_zeros(len(start), 1, self.width)
        one = self.w.keep(token)
        return tuple(part[..., :0, :] for part in one)

    def constrain_start(self, vectors: Tensor) -> Tensor:
        raise UserError(
            "the cell attention has no initial state to learn or to read; use a recurrent cell, or "
            "drop model.starts"
        )

    def project(self, x: Tensor) -> Tensor:
        return x

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        y, state = self.w.attention(projected[:, None], state)
        return y[:, 0], state

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState:
        # No kernel reads tokens here, so that each position needs its vector.
        if isinstance(x, TokenInputs):
            x = x.vectors()
        return self.w.attention(x, state)
