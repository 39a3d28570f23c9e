r"""Multi-head scaled dot-product attention over what a query may see.

    q_i = W_q x_i + b_q    k_j = W_k m_j    v_j = W_v m_j + b_v     cut into heads of size d,
                                                                    d = ⌈E / heads⌉
    α_ij = softmax_j( τ q_i · k_j )     over the j that i may see
    o_i  = W_o [ Σ_j α_ij v_j ] + b_o   heads concatenated

    normed=none   τ = 1/√d      logits of unit-variance q, k have variance 1
    normed=key    τ = 1         k/‖k‖
    normed=both   τ = √d        q/‖q‖, k/‖k‖: no norm changes the attention, |logit| ≤ τ

τ is that start, or `temperature`; `learned` gives each head its own. τ → 0 is the plain
average, τ → ∞ hard attention: `pick=argmax` is that limit, `pick=sample` draws one j from
α while training and takes the largest in evaluation; both pass the gradient of α on. A key
bias would add one number to all logits of a query, which the softmax ignores: there is none.

Vaswani et al. 2017 (arXiv:1706.03762); Henry et al. 2020 (arXiv:2010.04245); S1, S3.
"""

import math
from enum import StrEnum
from typing import Annotated

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.linear import Linear
from lmzoo.catalogue import technique
from lmzoo.config import config
from lmzoo.search_space import Choice

technique(
    "multi_head_attention",
    family="attention",
    document="S3",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
    summary="Masked multi-head scaled dot-product attention.",
)


Remembered = tuple[Tensor, Tensor]
"""Keys and values of a memory, (*N, heads, M, d)."""


class Normed(StrEnum):
    """Which vectors are put on the unit sphere before they are compared."""

    NONE = "none"
    KEY = "key"
    BOTH = "both"


class Pick(StrEnum):
    """What a query takes: the expectation under α, or one value."""

    MEAN = "mean"
    ARGMAX = "argmax"
    SAMPLE = "sample"


class Attention(nn.Module):
    """Queries look at a memory; `see` is True where they may."""

    @config
    class Config:
        """How many heads, and how sharply they look."""

        heads: Annotated[int, Choice((1, 2, 4, 8))] = Field(4, ge=1)
        normed: Normed = Normed.NONE
        temperature: float | None = Field(None, gt=0)
        """τ, which multiplies q · k; None is the start that belongs to `normed`."""
        learned: bool = False
        """Whether τ is learned, one per head."""
        pick: Pick = Pick.MEAN

    log_temperature: nn.Parameter | None

    def __init__(
        self,
        config: Config,
        width: int,
        *,
        dropout: float = 0.0,
        spread: float | None = None,
        output_spread: float | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        # Rounded up, so that a width is free to be searched; torch wants it divisible.
        size = -(-width // config.heads)
        inner = config.heads * size
        self.query = Linear(width, inner, spread)
        self.key = Linear(width, inner, spread, bias=False)
        self.value = Linear(width, inner, spread)
        self.output = Linear(inner, width, output_spread or spread)
        self.dropout = dropout
        normed = {Normed.NONE: 0, Normed.KEY: 1, Normed.BOTH: 2}[config.normed]
        self._temperature = config.temperature or size ** ((normed - 1) / 2)
        log_temperature = nn.Parameter(torch.empty(config.heads)) if config.learned else None
        self.register_parameter("log_temperature", log_temperature)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A learned τ starts where a fixed one stays."""
        if self.log_temperature is not None:
            nn.init.constant_(self.log_temperature, math.log(self._temperature))

    def forward(
        self,
        x: Float[Tensor, "*N Q E"],
        memory: Float[Tensor, "*N M E"],
        see: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N Q E"]:
        return self.look(x, self.remember(memory), see)

    def remember(
        self, memory: Float[Tensor, "*N M E"], before: Remembered | None = None
    ) -> Remembered:
        """Keys and values of a memory, behind those that are known already."""
        k, v = self._keys(memory), self._heads(self.value(memory))
        if before is None:
            return k, v
        return torch.cat([before[0], k], dim=-2), torch.cat([before[1], v], dim=-2)

    def look(
        self,
        x: Float[Tensor, "*N Q E"],
        remembered: Remembered,
        see: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N Q E"]:
        """What each query takes from a memory whose keys and values are known."""
        q, (k, v) = self._queries(x), remembered
        dropout = self.dropout if self.training else 0.0
        if self.config.pick is Pick.MEAN:
            seen = None if see is None else see.unsqueeze(-3)
            taken = nn.functional.scaled_dot_product_attention(q, k, v, seen, dropout, scale=1.0)
        else:
            taken = nn.functional.dropout(self.weigh(_compare(q, k, see)), dropout) @ v
        return self.output(taken.transpose(-3, -2).flatten(-2))

    def logits(
        self,
        x: Float[Tensor, "*N Q E"],
        memory: Float[Tensor, "*N M E"],
        see: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N heads Q M"]:
        """τ q · k of every head, -∞ where a query may not look."""
        return self.compare(x, self._keys(memory), see)

    def compare(
        self,
        x: Float[Tensor, "*N Q E"],
        keys: Float[Tensor, "*N heads M d"],
        see: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N heads Q M"]:
        """The logits over a memory whose keys are known."""
        return _compare(self._queries(x), keys, see)

    def weigh(self, logits: Float[Tensor, "*N Q M"]) -> Float[Tensor, "*N Q M"]:
        """α as it is used: the softmax, or the one-hot of what is picked."""
        return (
            torch.softmax(logits, dim=-1) if self.config.pick is Pick.MEAN else self._picked(logits)
        )

    def directions(self, x: Float[Tensor, "*N Q E"]) -> Float[Tensor, "*N heads Q d"]:
        """q by head, normalised as asked: what is compared, but for τ."""
        q = self._heads(self.query(x))
        return nn.functional.normalize(q, dim=-1) if self.config.normed is Normed.BOTH else q

    def _queries(self, x: Float[Tensor, "*N Q E"]) -> Float[Tensor, "*N heads Q d"]:
        """τ q by head."""
        q = self.directions(x)
        if self.log_temperature is None:
            return q * self._temperature
        return q * self.log_temperature.exp()[:, None, None]

    def _keys(self, memory: Float[Tensor, "*N M E"]) -> Float[Tensor, "*N heads M d"]:
        """k by head, normalised as asked."""
        k = self._heads(self.key(memory))
        return k if self.config.normed is Normed.NONE else nn.functional.normalize(k, dim=-1)

    def _heads(self, x: Float[Tensor, "*N Q E"]) -> Float[Tensor, "*N heads Q d"]:
        return x.unflatten(-1, (self.config.heads, -1)).transpose(-3, -2)

    def _picked(self, logits: Float[Tensor, "*N Q M"]) -> Float[Tensor, "*N Q M"]:
        """One-hot weights whose gradient is that of the softmax."""
        soft = torch.softmax(logits, dim=-1)
        if self.config.pick is Pick.SAMPLE and self.training:
            # The largest of logits plus Gumbel noise is a draw from their softmax.
            logits = logits - torch.empty_like(logits).exponential_().log()
        hard = nn.functional.one_hot(logits.argmax(-1), logits.shape[-1])
        return hard + (soft - soft.detach())


def _compare(q: Tensor, k: Tensor, see: Tensor | None) -> Float[Tensor, "*N heads Q M"]:
    logits = q @ k.transpose(-2, -1)
    return logits if see is None else logits.masked_fill(~see.unsqueeze(-3), -torch.inf)


def causal_mask(t: int, device: torch.device | None = None) -> Bool[Tensor, "t t"]:
    """Position i sees j <= i."""
    return torch.ones(t, t, dtype=torch.bool, device=device).tril()
