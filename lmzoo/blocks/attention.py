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
from lmzoo.space import Choice

technique(
    "multi_head_attention",
    seed="S3",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
    summary="Masked multi-head scaled dot-product attention.",
)


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
        v = self._heads(self.value(memory))
        dropout = self.dropout if self.training else 0.0
        if self.config.pick is Pick.MEAN:
            seen = None if see is None else see.unsqueeze(-3)
            q, k = self._compared(x, memory)
            taken = nn.functional.scaled_dot_product_attention(q, k, v, seen, dropout, scale=1.0)
        else:
            taken = nn.functional.dropout(self._picked(self.logits(x, memory, see)), dropout) @ v
        return self.output(taken.transpose(-3, -2).flatten(-2))

    def logits(
        self,
        x: Float[Tensor, "*N Q E"],
        memory: Float[Tensor, "*N M E"],
        see: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N heads Q M"]:
        """τ q · k of every head, -∞ where a query may not look; their softmax is α."""
        q, k = self._compared(x, memory)
        logits = q @ k.transpose(-2, -1)
        return logits if see is None else logits.masked_fill(~see.unsqueeze(-3), -torch.inf)

    def _compared(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """τ q and k by head, normalised as asked."""
        q, k = self._heads(self.query(x)), self._heads(self.key(memory))
        if self.config.normed is Normed.BOTH:
            q = nn.functional.normalize(q, dim=-1)
        if self.config.normed is not Normed.NONE:
            k = nn.functional.normalize(k, dim=-1)
        if self.log_temperature is None:
            return q * self._temperature, k
        return q * self.log_temperature.exp()[:, None, None], k

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


def causal_mask(t: int, device: torch.device | None = None) -> Bool[Tensor, "t t"]:
    """Position i sees j <= i."""
    return torch.ones(t, t, dtype=torch.bool, device=device).tril()
