r"""A Transformer decoder with the parts of today's language models, and seven cuts.

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

Zhang & Sennrich 2019 (arXiv:1910.07467); Su et al. 2021 (arXiv:2104.09864); Shazeer 2020
(arXiv:2002.05202); Ainslie et al. 2023 (arXiv:2305.13245); Beltagy et al. 2020 (arXiv:2004.05150);
So et al. 2021 (arXiv:2109.08668), for the convolution.
"""

from enum import StrEnum
from typing import Annotated, Any, cast

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.blocks.attention import weighted_values
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingTable, Linear
from lmzoo.blocks.relative_attention import sparse_causal_mask
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import WINDOW, convolve, taps
from lmzoo.contract import DecodingState, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm

Cache = tuple[Tensor, Tensor, Tensor | None]
"""Keys and values (B, groups, t, d) of a layer, and the inputs (B, 3, E) of its convolution."""


def rotate(z: Float[Tensor, "*N t d"], first: int = 0) -> Float[Tensor, "*N t d"]:
    """Return R^t z of the positions t = first..first+t-1.

    The numbers 2i and 2i+1 turn together, by t 10000^(−2i/d) (Su et al. 2021, arXiv:2104.09864).
    """
    steps, size = z.shape[-2:]
    position = torch.arange(first, first + steps, dtype=torch.float64, device=z.device)
    even = torch.arange(0, size, 2, dtype=torch.float64, device=z.device)
    angle = position[:, None] / 10000 ** (even / size)
    cos, sin = angle.cos().to(z.dtype), angle.sin().to(z.dtype)
    a, b = z[..., ::2], z[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


Cut = StrEnum("Cut", "CONVOLUTION ROTATION GROUPS WINDOW GATE NORM FEED_FORWARD")


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Drop the gate of a feed-forward part that is cut."""
    return cuts - {Cut.GATE} if Cut.FEED_FORWARD in cuts else cuts


@model(
    "modern_decoder", family="attention",
    source="Touvron et al. 2023 (arXiv:2302.13971); Jiang et al. 2023 (arXiv:2310.06825)",
)  # fmt: skip
class ModernDecoder(FeatureModel):
    """Decoder with RMSNorm, rotary positions, SwiGLU, grouped heads, a window, a convolution."""

    @config
    class Config:
        """Sizes and cuts."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        """Embedding size E."""
        layers: Annotated[int, IntRange(1, 6)] = Field(2, ge=1)
        """Number D of layers."""
        heads: Annotated[int, Choice((2, 4, 8))] = Field(4, ge=1)
        groups: int = Field(2, ge=1)
        """Keys and values; divides `heads`."""
        window: int = Field(16, ge=1)
        """Positions that a position attends to, itself included."""
        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()
        emission: Annotated[Any, EMISSIONS] = "vector"
        dropout: Annotated[float, FloatRange(0.0, 0.3)] = Field(0.0, ge=0, lt=1)
        """Dropout rate of token vectors and residuals, in training."""

        @model_validator(mode="after")
        def _groups_divide_heads(self) -> Any:
            if self.heads % self.groups:
                raise UserError(f"groups={self.groups} must divide heads={self.heads}")
            return self

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = EmbeddingTable(task.vocab, config.width, None)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(ModernLayer(config) for _ in range(config.layers))
        self.norm = _norm(config)
        self.emission = EMISSIONS.build(config.emission, config.width, Norm.RMS)
        self.latent = self.emission.latent

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        x = self.dropout(self.embedding(tokens))
        for layer in self.blocks:
            x, _ = layer(x, None)
        return self.norm(x)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        return (None,) * self.config.layers

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        x, caches = self.dropout(self.embedding(token)[:, None]), list[Any]()
        position = 0 if state[0] is None else state[0][1]
        for layer, cache in zip(self.blocks, state, strict=True):
            x, new = layer(x, None if cache is None else cache[0], position)
            caches.append((new, position + 1))
        return self.emission.dense(self.norm(x)[:, 0], self.output_table), tuple(caches)

    @property
    def state_size(self) -> int | None:
        c = self.config
        if Cut.WINDOW in c.cuts:
            return None
        layer = cast("ModernLayer", self.blocks[0])
        past = 0 if Cut.CONVOLUTION in c.cuts else (WINDOW - 1) * c.width
        return c.layers * (2 * layer.groups * layer.size * (c.window - 1) + past)


class ModernLayer(nn.Module):
    """Attention, then a feed-forward part."""

    def __init__(self, config: ModernDecoder.Config) -> None:
        super().__init__()
        width, cuts = config.width, config.cuts
        self.cuts, self.heads = cuts, config.heads
        self.groups = config.heads if Cut.GROUPS in cuts else config.groups
        self.window = 0 if Cut.WINDOW in cuts else config.window
        self.size = 2 * -(-width // (2 * config.heads))  # even, for the rotation
        self.norm = _norm(config)
        self.conv = None if Cut.CONVOLUTION in cuts else nn.Parameter(taps((width, WINDOW)))
        self.query = Linear(width, self.heads * self.size, bias=False)
        self.key = Linear(width, self.groups * self.size, bias=False)
        self.value = Linear(width, self.groups * self.size, bias=False)
        self.output = Linear(self.heads * self.size, width, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        if Cut.FEED_FORWARD not in cuts:
            units = -(-8 * width // 3)
            self.forward_norm = _norm(config)
            self.gate = Linear(width, units, bias=False)
            self.up = None if Cut.GATE in cuts else Linear(width, units, bias=False)
            self.down = Linear(units, width, bias=False)

    def reset_parameters(self) -> None:
        """Draw the taps of the convolution."""
        if self.conv is not None:
            with torch.no_grad():
                self.conv.copy_(taps(tuple(self.conv.shape)))

    def forward(
        self, x: Float[Tensor, "B t E"], cache: Cache | None, first: int = 0
    ) -> tuple[Float[Tensor, "B t E"], Cache]:
        """Process the positions first..first+t-1; return the outputs and the new cache."""
        u, past = self._convolve(self.norm(x), None if cache is None else cache[2])
        q, k, v = (self._heads(part(u)) for part in (self.query, self.key, self.value))
        if Cut.ROTATION not in self.cuts:
            q, k = rotate(q, first), rotate(k, first)
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=-2), torch.cat([cache[1], v], dim=-2)
        h = x + self.dropout(self.output(self._attend(q, k, v)))
        last = k.shape[-2] if not self.window else min(k.shape[-2], self.window - 1)
        k, v = (part[..., part.shape[-2] - last :, :] for part in (k, v))
        if Cut.FEED_FORWARD in self.cuts:
            return h, (k, v, past)
        n = self.forward_norm(h)
        y = nn.functional.silu(self.gate(n))
        y = y if self.up is None else y * self.up(n)
        return h + self.dropout(self.down(y)), (k, v, past)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B t I"]:
        """Return the values that the last positions, those of q, attend to."""
        mask = sparse_causal_mask(k.shape[-2], self.window, device=q.device, last=q.shape[-2])
        shared = self.heads // self.groups
        k, v = (part.repeat_interleave(shared, dim=-3) for part in (k, v))
        return weighted_values(q, k, v, mask).transpose(-3, -2).flatten(-2)

    def _convolve(self, n: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self.conv is None:
            return n, None
        past = n.new_zeros(len(n), WINDOW - 1, n.shape[-1]) if past is None else past
        return convolve(n, past, self.conv)

    def _heads(self, z: Tensor) -> Float[Tensor, "B n t d"]:
        return z.unflatten(-1, (-1, self.size)).transpose(-3, -2)


def _norm(config: ModernDecoder.Config) -> nn.Module:
    return nn.Identity() if Cut.NORM in config.cuts else nn.RMSNorm(config.width, eps=1e-5)
