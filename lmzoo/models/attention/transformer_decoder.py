r"""Transformer decoder: a stack of causally masked self-attention layers.

    x_t = √E e(s_t) + PE(t)
    h^l = block(h^{l-1}),   i attends to j <= i     h^0 = x,  l = 1..D
    y = h^D                                   norm=post
    y = LN(h^D)                               norm=pre

x_t, h^l_t and y_t are (E), Emb is (V, E); P(s_{t+1} | s_<=t) = softmax( Emb y_t ) with the default
emission. If `spread` is set, the maps that write into the residual stream have the initial standard
deviation spread/√(2D), as in GPT-2.

Source: Vaswani et al. 2017 (arXiv:1706.03762); Radford et al. 2019; S0 (DLM40, DLM41), S1, S3.
"""

from typing import Annotated, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmzoo.blocks.attention import causal_mask
from lmzoo.blocks.attention_block import AttentionBlock, LayerCaches, NormPosition, advance_layers
from lmzoo.blocks.feed_forward import Activation
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.models.attention.base import AttentionConfig, AttentionModel
from lmzoo.search_space import Choice


@model(
    "transformer_decoder", family="attention", document="S3",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
)  # fmt: skip
class TransformerDecoder(AttentionModel):
    """Original Transformer decoder: post-LN, sinusoidal positions, tied softmax."""

    attention_memory = "prefix"

    @config
    class Config(AttentionConfig):
        """Attention model fields, LayerNorm position and activation function."""

        norm: Annotated[NormPosition, Choice(("post", "pre"))] = NormPosition.POST
        activation: Activation = Activation.RELU

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        residual = config.spread and config.spread / (2 * config.layers) ** 0.5
        self.blocks = nn.ModuleList(
            AttentionBlock(
                config.width,
                config.attention,
                norm_position=config.norm,
                activation=config.activation,
                dropout=config.dropout,
                std=config.spread,
                output_std=residual,
            )
            for _ in range(config.layers)
        )
        self.final_norm = nn.LayerNorm(config.width) if config.norm is NormPosition.PRE else None

    def encode(self, x: Float[Tensor, "B t E"]) -> Float[Tensor, "B t E"]:
        mask = causal_mask(x.shape[1], x.device)
        for block in self._blocks:
            x = block(x, mask=mask)
        return x if self.final_norm is None else self.final_norm(x)

    def next_feature(
        self, x: Float[Tensor, "B 1 E"], position: int, cache: LayerCaches | None
    ) -> tuple[Float[Tensor, "B 1 E"], LayerCaches]:
        x, cache = advance_layers(self._blocks, x, cache)
        return x if self.final_norm is None else self.final_norm(x), cache

    def attention_maps(self, tokens: Int[Tensor, "B t"]) -> Float[Tensor, "layers B heads t t"]:
        """Return the attention weights α of token i to token j, by layer and head."""
        x, maps = self._inputs(tokens), []
        mask = causal_mask(x.shape[1], x.device)
        for block in self._blocks:
            maps.append(block.weights(x, mask))
            x = block(x, mask=mask)
        return torch.stack(maps)

    @property
    def _blocks(self) -> list[AttentionBlock]:
        return [cast("AttentionBlock", block) for block in self.blocks]
