r"""A Transformer decoder layer: what was said so far, then a memory, then a feed-forward.

    post    g = LN(x + A(x, x)),   h = LN(g + A'(g, m)),   y = LN(h + FF(h))       as published
    pre     g = x + A(LN x, LN x), h = g + A'(LN g, m),    y = h + FF(LN h)

Position i of x sees j <= i of x, and of the memory m what `see` allows.

Vaswani et al. 2017 (arXiv:1706.03762), 3.1.
"""

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, Remembered, causal_mask
from lmzoo.blocks.attention_block import AttentionBlock, NormPlace


class CrossBlock(AttentionBlock):
    """An attention block over a memory, behind causal self-attention."""

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
        see: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "B Q E"]:
        assert memory is not None, "a decoder layer looks at a memory"
        before = causal_mask(x.shape[1], x.device)

        def look_back(x: Tensor) -> Tensor:
            return self.self_attention(x, x, before)

        return super().forward(self._residual(x, look_back, self.self_attention_norm), memory, see)

    def advance_over(
        self,
        memory: Remembered,
        x: Float[Tensor, "B 1 E"],
        before: Remembered | None,
        see: Bool[Tensor, "B 1 M"],
    ) -> tuple[Float[Tensor, "B 1 E"], Remembered]:
        """One more position over a memory whose keys and values are known: as `forward`."""
        pre = self.place is NormPlace.PRE
        said = self.self_attention.remember(self.self_attention_norm(x) if pre else x, before)

        def look_back(x: Tensor) -> Tensor:
            return self.self_attention.look(x, said)

        def look_over(x: Tensor) -> Tensor:
            return self.attention.look(x, memory, see)

        g = self._residual(x, look_back, self.self_attention_norm)
        h = self._residual(g, look_over, self.attention_norm)
        return self._residual(h, self.feed_forward, self.feed_forward_norm), said
