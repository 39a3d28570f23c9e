r"""A Transformer layer: attention and a feed-forward, each with its residual and LayerNorm.

    post    h = LN(x + A(x, m)),   y = LN(h + FF(h))             as published
    pre     h = x + A(LN x, m),    y = h + FF(LN h)              GPT-2; trains without warm-up

m is the memory that is looked at: x itself (LN x under `pre`), unless another is given. With
another, `post` is the Set Transformer's MAB(x, m).

Vaswani et al. 2017 (arXiv:1706.03762); Xiong et al. 2020 (arXiv:2002.04745).
"""

from collections.abc import Callable
from enum import StrEnum

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, Remembered
from lmzoo.blocks.feed_forward import Activation, FeedForward


class NormPlace(StrEnum):
    """Where LayerNorm stands: after the residual sum, or before each part."""

    POST = "post"
    PRE = "pre"


class AttentionBlock(nn.Module):
    """Attention, then a feed-forward of four times the width."""

    def __init__(
        self,
        width: int,
        attention: Attention.Config,
        *,
        place: NormPlace = NormPlace.POST,
        activation: Activation = Activation.RELU,
        dropout: float = 0.0,
        spread: float | None = None,
        output_spread: float | None = None,
    ) -> None:
        super().__init__()
        self.place = place
        self.attention = Attention(
            attention, width, dropout=dropout, spread=spread, output_spread=output_spread
        )
        self.feed_forward = FeedForward(
            width, 4 * width, activation, spread=spread, output_spread=output_spread
        )
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "*N Q E"],
        memory: Float[Tensor, "*N M E"] | None = None,
        see: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N Q E"]:
        def attend(x: Tensor) -> Tensor:
            return self.attention(x, x if memory is None else memory, see)

        h = self._residual(x, attend, self.attention_norm)
        return self._residual(h, self.feed_forward, self.feed_forward_norm)

    def advance(
        self, x: Float[Tensor, "*N 1 E"], before: Remembered | None
    ) -> tuple[Float[Tensor, "*N 1 E"], Remembered]:
        """One more position of causal self-attention: (its output, keys and values so far)."""
        pre = self.place is NormPlace.PRE
        looked = self.attention_norm(x) if pre else x
        remembered = self.attention.remember(looked, before)
        h = x + self.dropout(self.attention.look(looked, remembered))
        h = h if pre else self.attention_norm(h)
        return self._residual(h, self.feed_forward, self.feed_forward_norm), remembered

    def recall(self, x: Float[Tensor, "*N Q E"], remembered: Remembered) -> Float[Tensor, "*N Q E"]:
        """The layer over a memory whose keys and values are known."""
        h = self._residual(x, lambda x: self.attention.look(x, remembered), self.attention_norm)
        return self._residual(h, self.feed_forward, self.feed_forward_norm)

    def weights(
        self, x: Float[Tensor, "*N T E"], see: Bool[Tensor, "*S T T"] | None = None
    ) -> Float[Tensor, "*N heads T T"]:
        """α as it is used: how much each position of x looks at each other, by head."""
        looked = self.attention_norm(x) if self.place is NormPlace.PRE else x
        return self.attention.weigh(self.attention.logits(looked, looked, see))

    def _residual(self, x: Tensor, part: Callable[[Tensor], Tensor], norm: nn.LayerNorm) -> Tensor:
        if self.place is NormPlace.PRE:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))
