r"""The Transformer decoder: a stack of causally masked self-attention layers.

    x_t = √E e(s_t) + PE(t)
    h^l = block(h^{l-1}),   i sees j <= i     h^0 = x,  l = 1..D
    y = h^D                                   norm=post
    y = LN(h^D)                               norm=pre

With `spread`, the maps that write into the residual stream start at spread/√(2D) (GPT-2).

Vaswani et al. 2017 (arXiv:1706.03762); Radford et al. 2019; S0 DLM40, S1, S3; zoo.md 2, 4.1, 4.3.
"""

from typing import Annotated, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmzoo.blocks.attention import causal_mask
from lmzoo.blocks.attention_block import AttentionBlock, NormPlace
from lmzoo.blocks.feed_forward import Activation
from lmzoo.blocks.layers import Layers, advance_layers
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.models.attention.base import AttentionConfig, AttentionModel
from lmzoo.search_space import Choice


@model(
    "transformer_decoder",
    family="attention",
    document="S3",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
)
class TransformerDecoder(AttentionModel):
    """A Transformer decoder as published: post-LN, sinusoidal positions, tied softmax."""

    @config
    class Config(AttentionConfig):
        """What the layers are made of."""

        norm: Annotated[NormPlace, Choice(("post", "pre"))] = NormPlace.POST
        activation: Activation = Activation.RELU

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        residual = config.spread and config.spread / (2 * config.layers) ** 0.5
        self.blocks = nn.ModuleList(
            AttentionBlock(
                config.width,
                config.attention,
                place=config.norm,
                activation=config.activation,
                dropout=config.dropout,
                spread=config.spread,
                output_spread=residual,
            )
            for _ in range(config.layers)
        )
        self.final_norm = nn.LayerNorm(config.width) if config.norm is NormPlace.PRE else None

    def features(self, x: Float[Tensor, "B t E"]) -> Float[Tensor, "B t E"]:
        see = causal_mask(x.shape[1], x.device)
        for block in self._blocks:
            x = block(x, see=see)
        return x if self.final_norm is None else self.final_norm(x)

    def next_feature(
        self, x: Float[Tensor, "B 1 E"], place: int, before: Layers | None
    ) -> tuple[Float[Tensor, "B 1 E"], Layers]:
        x, after = advance_layers(self._blocks, x, before)
        return x if self.final_norm is None else self.final_norm(x), after

    def attention_maps(self, tokens: Int[Tensor, "B t"]) -> Float[Tensor, "layers B heads t t"]:
        """α of every layer and head: how much token i looks at token j."""
        x, maps = self._inputs(tokens), []
        see = causal_mask(x.shape[1], x.device)
        for block in self._blocks:
            maps.append(block.weights(x, see))
            x = block(x, see=see)
        return torch.stack(maps)

    @property
    def _blocks(self) -> list[AttentionBlock]:
        return [cast("AttentionBlock", block) for block in self.blocks]
