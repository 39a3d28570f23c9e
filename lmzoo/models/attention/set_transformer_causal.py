r"""The Set Transformer as a language model: each prefix is a set.

    h^l_t = ISAB_m( h^{l-1}_{<=t} )_t      points > 0
    h^l_t = SAB( h^{l-1}_{<=t} )_t         points = 0: MAB(X, X), masked
    P(s_{t+1} | s_<=t) = emission(h^D_t)

In one layer without positions only the last token of the prefix and the bag of the others
matter; by default positions are told. The causal form is this zoo's.

Lee et al. 2019 (arXiv:1810.00825); S1; zoo.md 4.1.
"""

from typing import Annotated, cast

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.attention import causal_mask
from lmzoo.blocks.attention_block import AttentionBlock
from lmzoo.blocks.layers import Layer, Layers, advance_layers
from lmzoo.blocks.set_attention import InducedAttention
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.models.attention.base import AttentionConfig, AttentionModel
from lmzoo.search_space import IntRange


@model(
    "set_transformer_causal",
    family="attention",
    document="S1",
    source="Lee et al. 2019 (arXiv:1810.00825); S1",
)
class SetTransformerCausal(AttentionModel):
    """Set Transformer whose inducing points summarise every prefix."""

    @config
    class Config(AttentionConfig):
        """How many inducing points summarise a prefix."""

        points: Annotated[int, IntRange(1, 16, log=True)] = Field(4, ge=0)
        """m; 0 lets every token look at every earlier one."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.layers))

    def features(self, x: Float[Tensor, "B t E"]) -> Float[Tensor, "B t E"]:
        see = causal_mask(x.shape[1], x.device)
        for block in self.blocks:
            x = block(x, causal=True) if self.config.points else block(x, see=see)
        return x

    def next_feature(
        self, x: Float[Tensor, "B 1 E"], place: int, before: Layers | None
    ) -> tuple[Float[Tensor, "B 1 E"], Layers]:
        return advance_layers((cast("Layer", block) for block in self.blocks), x, before)

    def _block(self) -> nn.Module:
        how = self.config
        if how.points:
            return InducedAttention(
                how.width, how.points, how.attention, dropout=how.dropout, spread=how.spread
            )
        return AttentionBlock(how.width, how.attention, dropout=how.dropout, spread=how.spread)
