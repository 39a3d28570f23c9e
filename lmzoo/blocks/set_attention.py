r"""Set attention: through m inducing points (ISAB), or pooled into k vectors (PMA).

    ISAB_m(X) = MAB(X, MAB(I, X))        I: m learned points; O(m T) pairs instead of O(T²)
    PMA_k(X)  = MAB(S, FF(X))            S: k learned seed vectors

MAB is `AttentionBlock` with a memory. Neither uses the order of X: permuting X permutes ISAB(X)
and does not change PMA(X). The `causal` form of ISAB summarises every prefix separately:

    I_t = MAB(I, X_<=t),   y_t = MAB(x_t, I_t)

Lee et al. 2019 (arXiv:1810.00825). Source: S1.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, KeysAndValues, causal_mask
from lmzoo.blocks.attention_block import AttentionBlock
from lmzoo.blocks.feed_forward import Activation, FeedForward


class LearnedVectors(nn.Module):
    """Learned query vectors: inducing points, or seed vectors of a pool."""

    def __init__(self, count: int, width: int, std: float | None = None) -> None:
        super().__init__()
        self._std = std
        self.vectors = nn.Parameter(torch.empty(count, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw from N(0, std²), or Glorot-uniform as published if `std` is None."""
        if self._std is None:
            nn.init.xavier_uniform_(self.vectors)
        else:
            nn.init.normal_(self.vectors, std=self._std)


class InducedAttention(nn.Module):
    """ISAB: every vector attends to m summaries of the set, or of its prefix if `causal`."""

    def __init__(
        self,
        width: int,
        points: int,
        attention: Attention.Config,
        *,
        dropout: float = 0.0,
        std: float | None = None,
    ) -> None:
        super().__init__()
        self.points = LearnedVectors(points, width, std)
        self.gather = AttentionBlock(width, attention, dropout=dropout, std=std)
        self.spread = AttentionBlock(width, attention, dropout=dropout, std=std)

    def forward(self, x: Float[Tensor, "B T E"], *, causal: bool) -> Float[Tensor, "B T E"]:
        if causal:
            return self.spread(x[:, :, None], self.prefix_summaries(x))[:, :, 0]
        points = self.points.vectors.expand(len(x), -1, -1)
        return self.spread(x, self.gather(points, x))

    def advance(
        self, x: Float[Tensor, "B 1 E"], cache: KeysAndValues | None
    ) -> tuple[Float[Tensor, "B 1 E"], KeysAndValues]:
        """Process the next position of the causal form; return its output and the new cache."""
        cache = self.gather.attention.keys_and_values(x, cache)
        points = self.points.vectors.expand(len(x), -1, -1)
        return self.spread(x, self.gather.forward_cached(points, cache)), cache

    def prefix_summaries(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T m E"]:
        """Return I_t, the m summaries of x_0..x_t, for every t."""
        t, count = x.shape[1], len(self.points.vectors)
        points = self.points.vectors.repeat(t, 1).expand(len(x), -1, -1)
        mask = causal_mask(t, x.device).repeat_interleave(count, dim=0)
        return self.gather(points, x, mask).unflatten(1, (t, count))


class PooledAttention(nn.Module):
    """PMA: pool the set into k vectors."""

    def __init__(self, width: int, seeds: int, attention: Attention.Config) -> None:
        super().__init__()
        self.seeds = LearnedVectors(seeds, width)
        self.feed_forward = FeedForward(width, 4 * width, Activation.RELU)
        self.pool = AttentionBlock(width, attention)

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B k E"]:
        return self.pool(self.seeds.vectors.expand(len(x), -1, -1), self.feed_forward(x))
