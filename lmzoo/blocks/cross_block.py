r"""A Transformer decoder layer: causal self-attention, attention to a memory, feed-forward.

    post    g = LN(x + A(x, x)),   h = LN(g + A'(g, m)),   y = LN(h + FF(h))       as published
    pre     g = x + A(LN x, LN x), h = g + A'(LN g, m),    y = h + FF(LN h)

Position i of x attends to positions j <= i of x, and to the vectors of m that the mask allows.

Vaswani et al. 2017 (arXiv:1706.03762), section 3.1.
"""

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, KeysAndValues, causal_mask
from lmzoo.blocks.attention_block import AttentionBlock, NormPosition


class CrossBlock(AttentionBlock):
    """Causal self-attention, followed by an attention block over a memory."""

    def __init__(
        self, width: int, attention: Attention.Config, *, dropout: float = 0.0, **options: Any
    ) -> None:
        super().__init__(width, attention, dropout=dropout, **options)
        self.self_attention = Attention(attention, width, dropout=dropout)
        self.self_attention_norm = nn.LayerNorm(width)

    def forward(
        self,
        x: Float[Tensor, "B Q E"],
        memory: Float[Tensor, "B M E"] | None = None,
        mask: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "B Q E"]:
        assert memory is not None, "a decoder layer needs a memory"
        causal = causal_mask(x.shape[1], x.device)

        def attend_to_self(x: Tensor) -> Tensor:
            return self.self_attention(x, x, causal)

        g = self._residual(x, attend_to_self, self.self_attention_norm)
        return super().forward(g, memory, mask)

    def advance_over(
        self,
        memory: KeysAndValues,
        x: Float[Tensor, "B 1 E"],
        cache: KeysAndValues | None,
        mask: Bool[Tensor, "B 1 M"],
    ) -> tuple[Float[Tensor, "B 1 E"], KeysAndValues]:
        """Process the next position over a memory given by its keys and values.

        Returns:
            The output, and the self-attention keys and values of all positions so far.
        """
        pre = self.norm_position is NormPosition.PRE
        new = self.self_attention_norm(x) if pre else x
        new_cache = self.self_attention.keys_and_values(new, cache)

        def attend_to_self(x: Tensor) -> Tensor:
            return self.self_attention.attend(x, new_cache)

        def attend_to_memory(x: Tensor) -> Tensor:
            return self.attention.attend(x, memory, mask)

        g = self._residual(x, attend_to_self, self.self_attention_norm)
        h = self._residual(g, attend_to_memory, self.attention_norm)
        return self._residual(h, self.feed_forward, self.feed_forward_norm), new_cache
