"""Layers of a Transformer: attention, cross-attention and a feed-forward part."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, KeysAndValues
from lmzoo.blocks.layers import Linear
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.types import AttentionMask, Queries, StepFeatures, Vectors

Activation = StrEnum("Activation", "RELU GELU")
"""The nonlinearity between the two linear layers."""


class FeedForward(nn.Module):
    """Two linear layers with an activation between them.

        FF(x) = W_2 f(W_1 x + b_1) + b_2        f = ReLU, or the tanh approximation of GELU

    Vaswani et al. 2017 (arXiv:1706.03762), section 3.3.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation,
        *,
        std: float | None,
        output_std: float | None,
    ):
        super().__init__()
        self.expand = Linear(width, hidden, std)
        if activation is Activation.RELU:
            self.activate = nn.ReLU()
        else:
            self.activate = nn.GELU("tanh")
        # The last map of a branch may start smaller, so that deep stacks begin near the identity.
        if output_std is None:
            output_std = std
        self.contract = Linear(hidden, width, output_std)

    def forward(self, x: Vectors) -> Vectors:
        h = self.expand(x)
        h = self.activate(h)
        return self.contract(h)


NormPosition = StrEnum("NormPosition", "POST PRE")
"""Position of the LayerNorm: after the residual sum, or before each part."""


class AttentionBlock(nn.Module):
    """Attention, then a feed-forward part of hidden width 4 E.

        post    h = LN(x + A(x, m)),   y = LN(h + FF(h))             as published
        pre     h = x + A(LN x, m),    y = h + FF(LN h)              GPT-2; trains without warm-up

    m is the memory: x itself (LN x under `pre`) unless the caller passes another. With another
    memory, `post` is the MAB(x, m) of the Set Transformer.

    Vaswani et al. 2017 (arXiv:1706.03762); Xiong et al. 2020 (arXiv:2002.04745).
    """

    def __init__(
        self,
        width: int,
        attention: Attention.Config,
        *,
        norm_position: NormPosition = NormPosition.POST,
        activation: Activation = Activation.RELU,
        dropout: float = 0.0,
        std: float | None = None,
        output_std: float | None = None,
    ):
        super().__init__()
        self.norm_position = norm_position
        self.attention = Attention(
            attention,
            width,
            dropout=dropout,
            std=std,
            output_std=output_std,
        )
        self.feed_forward = FeedForward(
            width,
            # The width of the hidden layer as published.
            4 * width,
            activation,
            std=std,
            output_std=output_std,
        )
        self.attention_norm = nn.LayerNorm(width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Queries,
        memory: Float[Tensor, "*N M E"] | KeysAndValues | None = None,
        mask: AttentionMask | None = None,
    ) -> Queries:
        """Return y; a memory may be given by its keys and values."""

        def attend(x: Tensor) -> Tensor:
            if memory is None:
                # This `x`, not the caller's: keys of itself are normed as the queries are.
                return self.attention(x, x, mask)
            return self.attention(x, memory, mask)

        h = self._residual(x, attend, self.attention_norm)
        return self._residual(h, self.feed_forward, self.feed_forward_norm)

    def advance(
        self, x: Float[Tensor, "*N 1 E"], cache: KeysAndValues | None
    ) -> tuple[Float[Tensor, "*N 1 E"], KeysAndValues]:
        """Process the next position; return keys and values of all positions so far, too."""
        pre = self.norm_position is NormPosition.PRE
        memory = x
        if pre:
            memory = self.attention_norm(x)
        # The keys are kept as they were computed: a norm sees one position only.
        cache = self.attention.keys_and_values(memory, cache)
        h = self.attention(memory, cache)
        h = x + self.dropout(h)
        if not pre:
            h = self.attention_norm(h)
        y = self._residual(h, self.feed_forward, self.feed_forward_norm)
        return y, cache

    def weights(
        self,
        x: Float[Tensor, "*N T E"],
        mask: Bool[Tensor, "*S T T"] | None = None,
    ) -> Float[Tensor, "*N heads T T"]:
        """Return the self-attention weights α of every head."""
        if self.norm_position is NormPosition.PRE:
            x = self.attention_norm(x)
        # The logits again: the fast functions of torch return no weights.
        logits = self.attention.logits(x, x, mask)
        return self.attention.attention_weights(logits)

    def _residual(
        self,
        x: Tensor,
        part: Callable[[Tensor], Tensor],
        norm: nn.LayerNorm,
    ) -> Tensor:
        if self.norm_position is NormPosition.PRE:
            y = part(norm(x))
            return x + self.dropout(y)
        y = part(x)
        # As published in 2017: the norm is after the sum.
        return norm(x + self.dropout(y))


LayerCaches = tuple[KeysAndValues, ...]
"""Keys and values of positions 0..t of every layer, each (B, heads, t+1, d)."""


class CrossBlock(AttentionBlock):
    """Causal self-attention, followed by an attention block over a memory.

        post    g = LN(x + A(x, x)),   h = LN(g + A'(g, m)),   y = LN(h + FF(h))       as published
        pre     g = x + A(LN x, LN x), h = g + A'(LN g, m),    y = h + FF(LN h)

    Position i of x attends to positions j <= i of x, and to the vectors of m that the mask allows.

    Vaswani et al. 2017 (arXiv:1706.03762), section 3.1.
    """

    def __init__(
        self,
        width: int,
        attention: Attention.Config,
        *,
        dropout: float = 0.0,
        **options: Any,
    ):
        super().__init__(width, attention, dropout=dropout, **options)
        self.self_attention = Attention(attention, width, dropout=dropout)
        self.self_attention_norm = nn.LayerNorm(width)

    def forward(
        self,
        x: Float[Tensor, "B Q E"],
        memory: Float[Tensor, "B M E"] | KeysAndValues | None = None,
        mask: AttentionMask | None = None,
    ) -> Float[Tensor, "B Q E"]:
        assert memory is not None, "a decoder layer needs a memory"
        # A target reads only itself and what is before it.
        queries = x.shape[1]
        causal = causal_mask(queries, x.device)

        def attend_to_self(x: Tensor) -> Tensor:
            return self.self_attention(x, x, causal)

        g = self._residual(x, attend_to_self, self.self_attention_norm)
        return super().forward(g, memory, mask)

    def advance_over(
        self,
        memory: KeysAndValues,
        x: StepFeatures,
        cache: KeysAndValues | None,
        mask: Bool[Tensor, "B 1 M"],
    ) -> tuple[StepFeatures, KeysAndValues]:
        """Process the next position over a memory; return its own keys and values so far, too."""
        pre = self.norm_position is NormPosition.PRE
        new = x
        # What is added to the cache is normed as in training.
        if pre:
            new = self.self_attention_norm(x)
        new_cache = self.self_attention.keys_and_values(new, cache)

        def attend_to_self(x: Tensor) -> Tensor:
            return self.self_attention(x, new_cache)

        g = self._residual(x, attend_to_self, self.self_attention_norm)
        y = super().forward(g, memory, mask)
        return y, new_cache
