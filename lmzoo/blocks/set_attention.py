r"""Attention between sets: through m inducing points, or into k seeds.

    ISAB_m(X) = MAB(X, MAB(I, X))        I: m learned points; O(m T) pairs instead of O(T²)
    PMA_k(X)  = MAB(S, FF(X))            S: k learned seeds

MAB is `attention_block.py` with a memory. Neither knows an order: permuting X permutes
ISAB(X) and leaves PMA(X) as it is. Under `causal` the points summarise every prefix anew:

    I_t = MAB(I, X_<=t),   y_t = MAB(x_t, I_t)

Lee et al. 2019 (arXiv:1810.00825); zoo.md 4.1.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, Remembered, causal_mask
from lmzoo.blocks.attention_block import AttentionBlock
from lmzoo.blocks.feed_forward import Activation, FeedForward


class Points(nn.Module):
    """Learned vectors that ask: inducing points, or the seeds of a pool."""

    def __init__(self, count: int, width: int, spread: float | None = None) -> None:
        super().__init__()
        self._spread = spread
        self.vectors = nn.Parameter(torch.empty(count, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """N(0, spread²); where spread is None, Glorot's uniform, as published."""
        if self._spread is None:
            nn.init.xavier_uniform_(self.vectors)
        else:
            nn.init.normal_(self.vectors, std=self._spread)


class InducedAttention(nn.Module):
    """ISAB: every member reads m summaries of the set, or of its own prefix."""

    def __init__(
        self,
        width: int,
        points: int,
        attention: Attention.Config,
        *,
        dropout: float = 0.0,
        spread: float | None = None,
    ) -> None:
        super().__init__()
        self.points = Points(points, width, spread)
        self.gather = AttentionBlock(width, attention, dropout=dropout, spread=spread)
        self.spread = AttentionBlock(width, attention, dropout=dropout, spread=spread)

    def forward(self, x: Float[Tensor, "B T E"], *, causal: bool) -> Float[Tensor, "B T E"]:
        if causal:
            return self.spread(x[:, :, None], self.prefix_summaries(x))[:, :, 0]
        points = self.points.vectors.expand(len(x), -1, -1)
        return self.spread(x, self.gather(points, x))

    def advance(
        self, x: Float[Tensor, "B 1 E"], before: Remembered | None
    ) -> tuple[Float[Tensor, "B 1 E"], Remembered]:
        """One more member of the causal form: (its output, what the points look at next)."""
        remembered = self.gather.attention.remember(x, before)
        points = self.points.vectors.expand(len(x), -1, -1)
        return self.spread(x, self.gather.recall(points, remembered)), remembered

    def prefix_summaries(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T m E"]:
        """What the inducing points say of x_0..x_t, for every t."""
        t, count = x.shape[1], len(self.points.vectors)
        points = self.points.vectors.repeat(t, 1).expand(len(x), -1, -1)
        see = causal_mask(t, x.device).repeat_interleave(count, dim=0)
        return self.gather(points, x, see).unflatten(1, (t, count))


class PooledAttention(nn.Module):
    """PMA: k vectors that stand for the set."""

    def __init__(self, width: int, seeds: int, attention: Attention.Config) -> None:
        super().__init__()
        self.seeds = Points(seeds, width)
        self.feed_forward = FeedForward(width, 4 * width, Activation.RELU)
        self.pool = AttentionBlock(width, attention)

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B k E"]:
        return self.pool(self.seeds.vectors.expand(len(x), -1, -1), self.feed_forward(x))
