r"""Multi-head scaled dot-product attention.

    q_i = W_q x_i + b_q    k_j = W_k m_j    v_j = W_v m_j + b_v     split into heads of size d,
                                                                    d = ⌈E / heads⌉
    α_ij = softmax_j( τ q_i · k_j )     over the positions j that the mask allows for i
    o_i  = W_o [ Σ_j α_ij v_j ] + b_o   heads concatenated

    normed=none   τ = 1/√d      unit-variance q and k give logits of variance 1
    normed=key    τ = 1         k/‖k‖
    normed=both   τ = √d        q/‖q‖, k/‖k‖: vector norms have no effect, |logit| ≤ τ

`temperature` replaces this default τ; `learned` trains one τ per head, starting there. τ → 0 is
the plain average and τ → ∞ is hard attention. `pick=argmax` is hard attention with the gradient of
α (straight-through). There is no key bias: it adds the same number to all logits of a query, which
the softmax ignores.

Vaswani et al. 2017 (arXiv:1706.03762); Henry et al. 2020 (arXiv:2010.04245). Source: S1, S3.
"""

import math
from enum import StrEnum

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from lmzoo.base.config import OptionalName, config
from lmzoo.blocks.layers import Linear
from lmzoo.cells.base import Heads
from lmzoo.functional.softmax_attention import weighted_values
from lmzoo.types import AttentionMask, Queries

KeysAndValues = tuple[Tensor, Tensor]
"""Keys and values of a memory, each (*N, heads, M, d)."""


Normed = OptionalName("Normed", "NONE KEY BOTH")
"""Which vectors are scaled to unit length before the dot product."""


Pick = StrEnum("Pick", "MEAN ARGMAX")
"""What a query returns: the mean of the values under α, or a single value."""


class Attention(nn.Module):
    """Multi-head attention from queries to a memory.

    A mask is True where a query may attend.
    """

    @config
    class Config:
        """Number of heads, normalisation and temperature."""

        heads: Heads = 4
        normed: Normed = Normed.NONE
        temperature: float | None = Field(None, gt=0)
        """τ, the factor of q · k; None selects the default of `normed`."""
        learned: bool = False
        """Train τ, one value per head."""
        pick: Pick = Pick.MEAN

    log_temperature: nn.Parameter | None

    def __init__(
        self,
        config: Config,
        width: int,
        *,
        dropout: float = 0.0,
        std: float | None = None,
        output_std: float | None = None,
    ):
        super().__init__()
        self.config = config
        # Rounded up: any width works with any number of heads, so both can be searched.
        size = -(-width // config.heads)
        inner = config.heads * size
        self.query = Linear(width, inner, std)
        # No bias: it would add the same to all scores of a query, which the softmax ignores.
        self.key = Linear(width, inner, std, bias=False)
        self.value = Linear(width, inner, std)
        # Without a deviation of its own it has that of the other maps.
        if output_std is None:
            output_std = std
        self.output = Linear(inner, width, output_std)
        self.dropout = dropout
        self.estimated_gradient = ""
        if config.pick is Pick.ARGMAX:
            self.estimated_gradient = "straight-through, of hard attention"
        temperature = config.temperature
        if temperature is None:
            # Unit vectors have products of up to 1, which need a larger factor.
            match config.normed:
                case Normed.NONE:
                    temperature = size**-0.5
                case Normed.KEY:
                    temperature = 1.0
                case _:
                    temperature = size**0.5
        self._temperature = temperature
        log_temperature = None
        if config.learned:
            empty = torch.empty(config.heads)
            log_temperature = nn.Parameter(empty)
        self.register_parameter("log_temperature", log_temperature)
        self.reset_parameters()

    def reset_parameters(self):
        """Set a learned τ to the value that a fixed τ has."""
        if self.log_temperature is not None:
            start = math.log(self._temperature)
            nn.init.constant_(self.log_temperature, start)

    def forward(
        self,
        x: Queries,
        memory: Float[Tensor, "*N M E"] | KeysAndValues,
        mask: AttentionMask | None = None,
    ) -> Queries:
        """Return the attention output for a memory, or for its keys and values."""
        # In decoding, a cache has the keys and values already.
        if not isinstance(memory, tuple):
            memory = self.keys_and_values(memory)
        k, v = memory
        q = self.scaled_queries(x)
        dropout = 0.0
        # torch's function drops weights also in evaluation: it does not know the mode.
        if self.training:
            dropout = self.dropout
        if self.config.pick is Pick.MEAN:
            head_mask = None
            if mask is not None:
                head_mask = mask.unsqueeze(-3)
            # The queries have their factor τ already.
            o = weighted_values(q, k, v, head_mask, dropout, scale=1.0)
        else:
            logits = masked_logits(q, k, mask)
            weights = self.attention_weights(logits)
            # Hard attention is a matrix of weights: torch's function has none.
            o = nn.functional.dropout(weights, dropout) @ v
        # Heads side by side again.
        joined = o.transpose(-3, -2).flatten(-2)
        return self.output(joined)

    def keys_and_values(
        self,
        memory: Float[Tensor, "*N M E"],
        cache: KeysAndValues | None = None,
    ) -> KeysAndValues:
        """Return the keys and values of a memory, appended to those in `cache`."""
        k = self._keys(memory)
        v = self._heads(self.value(memory))
        if cache is None:
            return k, v
        earlier_k, earlier_v = cache
        k = torch.cat([earlier_k, k], -2)
        v = torch.cat([earlier_v, v], -2)
        return k, v

    def logits(
        self,
        x: Queries,
        memory: Float[Tensor, "*N M E"],
        mask: AttentionMask | None = None,
    ) -> Float[Tensor, "*N heads Q M"]:
        """Return τ q · k of every head, -∞ where the mask is False."""
        q = self.scaled_queries(x)
        k = self._keys(memory)
        return masked_logits(q, k, mask)

    def attention_weights(self, logits: Float[Tensor, "*N Q M"]) -> Float[Tensor, "*N Q M"]:
        """Return α: the softmax of the logits, or one-hot weights with its gradient (`argmax`)."""
        soft = logits.softmax(-1)
        if self.config.pick is Pick.MEAN:
            return soft
        count = logits.shape[-1]
        hard = one_hot(logits.argmax(-1), count)
        return hard + (soft - soft.detach())

    def scaled_queries(self, x: Queries) -> Float[Tensor, "*N heads Q d"]:
        """Return τ q by head, q normalised if configured."""
        q = self._heads(self.query(x))
        if self.config.normed is Normed.BOTH:
            q = normalize(q, dim=-1)
        if self.log_temperature is None:
            return q * self._temperature
        temperature = self.log_temperature.exp()
        return q * temperature[:, None, None]

    def _keys(self, memory: Float[Tensor, "*N M E"]) -> Float[Tensor, "*N heads M d"]:
        """Return k by head, normalised if configured."""
        k = self._heads(self.key(memory))
        if self.config.normed is Normed.NONE:
            return k
        return normalize(k, dim=-1)

    def _heads(self, x: Queries) -> Float[Tensor, "*N heads Q d"]:
        heads = self.config.heads
        by_head = x.unflatten(-1, (heads, -1))
        return by_head.transpose(-3, -2)


def masked_logits(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
) -> Float[Tensor, "*N heads Q M"]:
    """Return q · k of every head, -∞ where the mask is False."""
    logits = q @ k.transpose(-2, -1)
    if mask is None:
        return logits
    hidden = ~mask.unsqueeze(-3)
    return logits.masked_fill(hidden, -torch.inf)
