r"""A Transformer layer: attention and a feed-forward part, each with a residual and a LayerNorm.

    post    h = LN(x + A(x, m)),   y = LN(h + FF(h))             as published
    pre     h = x + A(LN x, m),    y = h + FF(LN h)              GPT-2; trains without warm-up

m is the memory: x itself (LN x under `pre`) unless the caller passes another. With another memory,
`post` is the MAB(x, m) of the Set Transformer.

Vaswani et al. 2017 (arXiv:1706.03762); Xiong et al. 2020 (arXiv:2002.04745).
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, KeysAndValues
from lmzoo.blocks.feed_forward import Activation, FeedForward

NormPosition = StrEnum("NormPosition", "POST PRE")
"""Position of the LayerNorm: after the residual sum, or before each part."""


class AttentionBlock(nn.Module):
    """Attention, then a feed-forward part of hidden width 4 E."""

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
        attention_part: Callable[..., Attention] = Attention,
    ) -> None:
        super().__init__()
        self.norm_position = norm_position
        self.attention = attention_part(
            attention, width, dropout=dropout, std=std, output_std=output_std
        )
        self.feed_forward = FeedForward(
            width, 4 * width, activation, std=std, output_std=output_std
        )
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "*N Q E"],
        memory: Float[Tensor, "*N M E"] | None = None,
        mask: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N Q E"]:
        def attend(x: Tensor) -> Tensor:
            return self.attention(x, x if memory is None else memory, mask)

        h = self._residual(x, attend, self.attention_norm)
        return self._residual(h, self.feed_forward, self.feed_forward_norm)

    def advance(
        self,
        x: Float[Tensor, "*N 1 E"],
        cache: KeysAndValues | None,
        mask: Bool[Tensor, "1 M"] | None = None,
    ) -> tuple[Float[Tensor, "*N 1 E"], KeysAndValues]:
        """Process the next position of causal self-attention.

        The mask is True for the positions in the cache, and the next one, that are attended to.

        Returns:
            The output, and the keys and values of all positions so far.
        """
        pre = self.norm_position is NormPosition.PRE
        memory = self.attention_norm(x) if pre else x
        cache = self.attention.keys_and_values(memory, cache)
        h = x + self.dropout(self.attention.attend(memory, cache, mask))
        h = h if pre else self.attention_norm(h)
        return self._residual(h, self.feed_forward, self.feed_forward_norm), cache

    def forward_cached(
        self, x: Float[Tensor, "*N Q E"], cache: KeysAndValues
    ) -> Float[Tensor, "*N Q E"]:
        """Return the output for a memory given by its keys and values."""
        h = self._residual(x, lambda x: self.attention.attend(x, cache), self.attention_norm)
        return self._residual(h, self.feed_forward, self.feed_forward_norm)

    def weights(
        self, x: Float[Tensor, "*N T E"], mask: Bool[Tensor, "*S T T"] | None = None
    ) -> Float[Tensor, "*N heads T T"]:
        """Return the self-attention weights α of every head."""
        x = self.attention_norm(x) if self.norm_position is NormPosition.PRE else x
        return self.attention.attention_weights(self.attention.logits(x, x, mask))

    def _residual(self, x: Tensor, part: Callable[[Tensor], Tensor], norm: nn.LayerNorm) -> Tensor:
        if self.norm_position is NormPosition.PRE:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))


LayerCaches = tuple[KeysAndValues, ...]
"""Keys and values of positions 0..t of every layer, each (B, heads, t+1, d)."""


@runtime_checkable
class Layer(Protocol):
    """A layer that processes one position after another."""

    def advance(self, x: Tensor, cache: KeysAndValues | None) -> tuple[Tensor, KeysAndValues]: ...


def advance_layers(
    layers: Iterable[Layer], x: Float[Tensor, "B 1 E"], caches: LayerCaches | None
) -> tuple[Float[Tensor, "B 1 E"], LayerCaches]:
    """Process the next position in all layers; return its output and the layers' new caches."""
    new_caches: list[KeysAndValues] = []
    for number, layer in enumerate(layers):
        x, cache = layer.advance(x, None if caches is None else caches[number])
        new_caches.append(cache)
    return x, tuple(new_caches)
