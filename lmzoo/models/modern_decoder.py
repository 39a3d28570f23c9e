r"""A Transformer decoder with the parts of today's language models, seven cuts, and memory.

    u_t = Σ_j c_j ⊙ N(x_{t-j})                 j = 0..3: a short convolution of each channel
    q_t, k_t = R^t W_q u_t, R^t W_k u_t        v_t = W_v u_t
    h_t = x_t + W_o attention(q_t, k, v)       over the last `window` positions
    y_t = h_t + W_d ( swish(W_a N(h_t)) ⊙ W_b N(h_t) )

x_t, h_t and y_t are (E); N is RMSNorm with learned scales, R^t a rotation (`rotate`),
W_a and W_b have ⌈8E/3⌉ rows. There are `heads` queries and `groups` keys and values; heads / groups
queries share a key. No map has a bias. P(s_{t+1} | s_<=t) = softmax( Emb N(y_t) ) after the last
layer, with the default emission. Cuts:

    0  convolution   u = N(x)                          4  gate           W_d swish(W_a N(h))
    1  rotation      R = 1: the order is not known     5  norm           N = 1
    2  groups        a key and value for each query    6  feed_forward   y = h
    3  window        all earlier positions

`memory` adds parts to the attention of t to j, whose logit is l_tj = q_t · k_j / √d; their maps and
differences from the papers' codes are in `lmzoo/cells/attention.py`:

    0  forget          l_tj + Σ_{j<s≤t} log f_s          f_s = σ( w_f u_s + b_f )       (FoX)
    1  stick_breaking  weights σ(l_tj) Π_{j<s<t} (1 − σ(l_ts)), j < t, instead of a softmax
    2  sinks           e^s more in the softmax's denominator

Zhang & Sennrich 2019 (arXiv:1910.07467); Su et al. 2021 (arXiv:2104.09864); Shazeer 2020
(arXiv:2002.05202); Ainslie et al. 2023 (arXiv:2305.13245); Beltagy et al. 2020 (arXiv:2004.05150);
So et al. 2021 (arXiv:2109.08668), for the convolution.
"""

from enum import StrEnum
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import silu

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import Dropout, Layers, Linear, Width
from lmzoo.cells.attention import AttentionHeads, MemoryConfig, SoftmaxAttention
from lmzoo.cells.base import State
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.draws import WINDOW, by_columns
from lmzoo.contract import DecodingState, Task, model
from lmzoo.emissions.base import EmissionChoice
from lmzoo.functional.convolution import convolve
from lmzoo.types import Features

Cache = tuple[State, Tensor | None]
"""What later positions read of the attention, and the inputs (B, 3, E) of the convolution."""


Cut = StrEnum("Cut", "CONVOLUTION ROTATION GROUPS WINDOW GATE NORM FEED_FORWARD")


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Drop the gate of a feed-forward part that is cut."""
    # Without the part there is no gate to cut.
    if Cut.FEED_FORWARD in cuts:
        return cuts - {Cut.GATE}
    return cuts


@model(
    "modern_decoder",
    family="attention",
    source="Touvron et al. 2023 (arXiv:2302.13971); Jiang et al. 2023 (arXiv:2310.06825)",
)
class ModernDecoder(FeatureModel):
    """Decoder with RMSNorm, rotary positions, SwiGLU, grouped heads, a window, a convolution."""

    @config
    class Config(MemoryConfig):
        """Sizes, cuts and parts of the memory."""

        width: Width = 32
        """Embedding size E."""
        layers: Layers = 2
        """Number D of layers."""
        heads: AttentionHeads = 4
        groups: int = Field(2, ge=1)
        """Keys and values; divides `heads`."""
        window: int = Field(16, ge=1)
        """Positions that a position attends to, itself included."""
        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()
        emission: EmissionChoice = "vector"
        dropout: Dropout = 0.0
        """Dropout rate of token vectors and residuals, in training."""

        @model_validator(mode="after")
        def _groups_divide_heads(self) -> Any:
            if self.heads % self.groups:
                raise UserError(f"groups={self.groups} must divide heads={self.heads}")
            return self

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        self.dropout = nn.Dropout(config.dropout)
        blocks = [ModernLayer(config) for _ in range(config.layers)]
        self.blocks: Any = nn.ModuleList(blocks)
        self.norm = _norm(config)

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        x = self.dropout(embedded)
        for layer in self.blocks:
            # A whole sequence needs no cache: what the layer returns is dropped.
            x, _ = layer(x, None)
        return self.norm(x)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        return (None,) * self.config.layers

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        embedded = self.embedding(token)
        x = self.dropout(embedded[:, None])
        caches = list[Cache]()
        for layer, cache in zip(self.blocks, state, strict=True):
            x, new = layer(x, cache)
            caches.append(new)
        y = self.norm(x)[:, 0]
        scores = self.emission.dense(y, self.output_table)
        return scores, tuple(caches)

    @property
    def state_size(self) -> int | None:
        c = self.config
        # Without a window every position is kept: there is no fixed size.
        if Cut.WINDOW in c.cuts:
            return None
        past = 0
        if Cut.CONVOLUTION not in c.cuts:
            past = (WINDOW - 1) * c.width
        # The window of attention includes the token itself.
        kept = self.blocks[0].position_size * (c.window - 1)
        return c.layers * (kept + past)


class ModernLayer(SoftmaxAttention):
    """Attention, then a feed-forward part."""

    def __init__(self, config: ModernDecoder.Config):
        super().__init__()
        width = config.width
        cuts = config.cuts
        self.cuts = cuts
        self.norm = _norm(config)
        if Cut.CONVOLUTION in cuts:
            self.conv = None
        else:
            taps = by_columns((width, WINDOW))
            self.conv = nn.Parameter(taps)
        groups = config.groups
        if Cut.GROUPS in cuts:
            # A group of its own for each head: plain attention.
            groups = config.heads
        window = config.window
        if Cut.WINDOW in cuts:
            window = 0
        self.add_maps(
            width,
            config.heads,
            groups,
            window,
            config.memory,
            rotated=Cut.ROTATION not in cuts,
        )
        self.dropout = nn.Dropout(config.dropout)
        if Cut.FEED_FORWARD not in cuts:
            units = -(-8 * width // 3)  # ⌈8E/3⌉: as many weights as a part of 4E without a gate
            self.forward_norm = _norm(config)
            self.gate = Linear(width, units, bias=False)
            if Cut.GATE in cuts:
                self.up = None
            else:
                self.up = Linear(width, units, bias=False)
            self.down = Linear(units, width, bias=False)

    def reset_parameters(self):
        """Draw the taps of the convolution."""
        super().reset_parameters()
        if self.conv is not None:
            with torch.no_grad():
                taps = by_columns(tuple(self.conv.shape))
                self.conv.copy_(taps)

    def forward(self, x: Features, cache: Cache | None) -> tuple[Features, Cache]:
        """Process t positions after those of the cache; return the outputs and the new cache."""
        past: State = ()
        window = None
        if cache is not None:
            past, window = cache
        n = self.norm(x)
        u, window = self._convolve(n, window)
        y, past = self.attention(u, past)
        h = x + self.dropout(y)
        if Cut.FEED_FORWARD in self.cuts:
            return h, (past, window)
        n = self.forward_norm(h)
        y = silu(self.gate(n))
        # SwiGLU, unless its gate is cut.
        if self.up is not None:
            y = y * self.up(n)
        h = h + self.dropout(self.down(y))
        return h, (past, window)

    def _convolve(
        self,
        n: Tensor,
        past: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        if self.conv is None:
            return n, None
        if past is None:
            # Before the first token there are zeros.
            width = n.shape[-1]
            past = n.new_zeros(len(n), WINDOW - 1, width)
        return convolve(n, past, self.conv)


def _norm(config: ModernDecoder.Config) -> nn.Module:
    if Cut.NORM in config.cuts:
        return nn.Identity()
    return nn.RMSNorm(config.width, eps=1e-5)
