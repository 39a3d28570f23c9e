r"""Causal Set Transformer: each prefix of the sequence is treated as a set.

    h^l_t = ISAB_m( h^{l-1}_{<=t} )_t      points = m > 0; ISAB: see `lmzoo.blocks.set_attention`
    h^l_t = SAB( h^{l-1}_{<=t} )_t         points = 0: masked self-attention MAB(X, X)
    P(s_{t+1} | s_<=t) = emission(h^D_t)

h^l_t is (E), l = 1..D; h^0 are the token vectors. One layer without positional encoding depends on
the last token and the bag of the earlier ones only; positions are encoded by default. The original
model is not causal; the causal form is defined by this package.

Source: Lee et al. 2019 (arXiv:1810.00825); S1.
"""

from typing import Annotated, cast

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.attention import causal_mask
from lmzoo.blocks.attention_block import AttentionBlock, Layer, LayerCaches, advance_layers
from lmzoo.blocks.set_attention import InducedAttention
from lmzoo.contract import Task, model
from lmzoo.models.attention.base import AttentionConfig, AttentionModel


@model(
    "set_transformer_causal", family="attention", document="S1",
    source="Lee et al. 2019 (arXiv:1810.00825); S1",
)  # fmt: skip
class SetTransformerCausal(AttentionModel):
    """Causal Set Transformer: inducing points summarise every prefix."""

    @config
    class Config(AttentionConfig):
        """Attention model fields and the number of inducing points."""

        points: Annotated[int, IntRange(1, 16, log=True)] = Field(4, ge=0)
        """Number m of inducing points; 0 is direct attention to all earlier tokens."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.layers))

    def encode(self, x: Float[Tensor, "B t E"]) -> Float[Tensor, "B t E"]:
        mask = causal_mask(x.shape[1], x.device)
        for block in self.blocks:
            x = block(x, causal=True) if self.config.points else block(x, mask=mask)
        return x

    def next_feature(
        self, x: Float[Tensor, "B 1 E"], position: int, cache: LayerCaches | None
    ) -> tuple[Float[Tensor, "B 1 E"], LayerCaches]:
        return advance_layers((cast("Layer", block) for block in self.blocks), x, cache)

    def _block(self) -> nn.Module:
        c = self.config
        if c.points:
            return InducedAttention(c.width, c.points, c.attention, dropout=c.dropout, std=c.spread)
        return AttentionBlock(c.width, c.attention, dropout=c.dropout, std=c.spread)
