"""The causal Set Transformer and its attention to inducing points."""

from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.attention import Attention, KeysAndValues
from lmzoo.blocks.attention_block import AttentionBlock, LayerCaches
from lmzoo.contract import Task, model
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.models.attention_model import AttentionConfig, AttentionModel
from lmzoo.types import Features, StepFeatures


class LearnedVectors(nn.Module):
    """Learned query vectors."""

    def __init__(self, count: int, width: int, std: float | None):
        super().__init__()
        self._std = std
        empty = torch.empty(count, width)
        self.vectors = nn.Parameter(empty)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw from N(0, std²), or Glorot-uniform as published if `std` is None."""
        if self._std is None:
            nn.init.xavier_uniform_(self.vectors)
        else:
            nn.init.normal_(self.vectors, std=self._std)


class InducedAttention(nn.Module):
    """Causal ISAB: every vector attends to m summaries of its prefix.

        ISAB_m(X) = MAB(X, MAB(I, X))          I: m learned points; O(m T) pairs instead of O(T²)
        I_t = MAB(I, X_<=t),   y_t = MAB(x_t, I_t)          the causal form

    MAB is `AttentionBlock` with a memory, which does not use the order of X.

    Lee et al. 2019 (arXiv:1810.00825). Source: S1.
    """

    def __init__(
        self,
        width: int,
        points: int,
        attention: Attention.Config,
        *,
        dropout: float = 0.0,
        std: float | None = None,
    ):
        super().__init__()
        self.points = LearnedVectors(points, width, std)
        self.gather = AttentionBlock(width, attention, dropout=dropout, std=std)
        self.spread = AttentionBlock(width, attention, dropout=dropout, std=std)

    def forward(self, x: Features) -> Features:
        # One set of summaries for each prefix: those of the whole sequence would read later tokens.
        summaries = self.prefix_summaries(x)
        # Each position is a query of its own with a memory of its own: (B, t, 1, E).
        queries = x[:, :, None]
        y = self.spread(queries, summaries)
        return y[:, :, 0]

    def advance(
        self, x: StepFeatures, cache: KeysAndValues | None
    ) -> tuple[StepFeatures, KeysAndValues]:
        """Process the next position of the causal form; return its output and the new cache."""
        # The points are the same at every step: only keys and values of the tokens are kept.
        cache = self.gather.attention.keys_and_values(x, cache)
        vectors = self.points.vectors
        points = vectors.expand(len(x), -1, -1)
        summaries = self.gather(points, cache)
        return self.spread(x, summaries), cache

    def prefix_summaries(self, x: Features) -> Float[Tensor, "B T m E"]:
        """Return I_t, the m summaries of x_0..x_t, for every t."""
        t = x.shape[1]
        vectors = self.points.vectors
        count = len(vectors)
        # Each prefix has queries of its own: t · m of them, masked by position.
        points = vectors.repeat(t, 1)
        points = points.expand(len(x), -1, -1)
        by_position = causal_mask(t, x.device)
        mask = by_position.repeat_interleave(count, 0)
        summaries = self.gather(points, x, mask)
        return summaries.unflatten(1, (t, count))


Points = Annotated[int, IntRange(1, 16, log=True), Field(ge=0)]


@model(
    "set_transformer_causal",
    family="attention",
    document="S1",
    source="Lee et al. 2019 (arXiv:1810.00825); S1",
)
class SetTransformerCausal(AttentionModel):
    """Causal Set Transformer: inducing points summarise every prefix.

        h^l_t = ISAB_m( h^{l-1}_{<=t} )_t      points = m > 0; ISAB: `InducedAttention`
        h^l_t = SAB( h^{l-1}_{<=t} )_t         points = 0: masked self-attention MAB(X, X)
        P(s_{t+1} | s_<=t) = emission(h^D_t)

    h^l_t is (E), l = 1..D; h^0 are the token vectors. One layer without positional encoding depends
    on the last token and the bag of the earlier ones only; positions are encoded by default. The
    original model is not causal; the causal form is defined by this package.
    """

    @config
    class Config(AttentionConfig):
        """Attention model fields and the number of inducing points."""

        points: Points = 4
        """Number m of inducing points; 0 is direct attention to all earlier tokens."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        blocks = [self._block() for _ in range(config.layers)]
        self.blocks: Any = nn.ModuleList(blocks)

    def encode(self, x: Features) -> Features:
        mask = causal_mask(x.shape[1], x.device)
        for block in self.blocks:
            # The mask is part of `InducedAttention`.
            if self.config.points:
                x = block(x)
            else:
                x = block(x, mask=mask)
        return x

    def next_feature(
        self,
        x: StepFeatures,
        position: int,
        cache: LayerCaches | None,
    ) -> tuple[StepFeatures, LayerCaches]:
        new = list[KeysAndValues]()
        for number, block in enumerate(self.blocks):
            before = None
            if cache is not None:
                before = cache[number]
            x, kept = block.advance(x, before)
            new.append(kept)
        return x, tuple(new)

    def _block(self) -> nn.Module:
        c = self.config
        options = {"dropout": c.dropout, "std": c.spread}
        if c.points:
            return InducedAttention(c.width, c.points, c.attention, **options)
        return AttentionBlock(c.width, c.attention, **options)
