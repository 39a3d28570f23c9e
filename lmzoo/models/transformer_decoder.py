"""The Transformer decoder, and rows that are one with some fields set."""

from typing import Annotated, Any

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.blocks.attention import KeysAndValues
from lmzoo.blocks.attention_block import Activation, LayerCaches, NormPosition
from lmzoo.contract import Task, model
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.models.attention_model import AttentionConfig, AttentionModel, transformer_layers
from lmzoo.types import Features, Prefix, StepFeatures


@model(
    "transformer_decoder",
    family="attention",
    document="S3",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
)
class TransformerDecoder(AttentionModel):
    """Original Transformer decoder: post-LN, sinusoidal positions, tied softmax.

        x_t = √E e(s_t) + PE(t)
        h^l = block(h^{l-1}),   i attends to j <= i     h^0 = x,  l = 1..D
        y = h^D                                   norm=post
        y = LN(h^D)                               norm=pre

    Position i attends to the last `window` positions only if that is set.

    x_t, h^l_t and y_t are (E), Emb is (V, E); P(s_{t+1} | s_<=t) = softmax( Emb y_t ) with the
    default emission. If `spread` is set, the maps that write into the residual stream have the
    initial standard deviation spread/√(2D), as in GPT-2.
    """

    attention_memory = "prefix"

    @config
    class Config(AttentionConfig):
        """Attention model fields, LayerNorm position and activation function."""

        norm: Annotated[NormPosition, Choice(("post", "pre"))] = NormPosition.POST
        activation: Activation = Activation.RELU
        window: int = Field(0, ge=0, exclude_if=lambda window: not window)
        """Number of positions that a position attends to, itself included; 0 is all."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        std = config.spread
        residual = None
        if std is not None:
            # 2D maps write into the residual stream: their sum keeps the variance of one.
            residual = std / (2 * config.layers) ** 0.5
        self.blocks: Any = transformer_layers(config, std=std, output_std=residual)
        # Post-norm blocks end with a norm of their own.
        if config.norm is NormPosition.PRE:
            self.final_norm = nn.LayerNorm(config.width)
        else:
            self.final_norm = None

    def encode(self, x: Features) -> Features:
        mask = self._mask(x)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self._finish(x)

    def next_feature(
        self,
        x: StepFeatures,
        position: int,
        cache: LayerCaches | None,
    ) -> tuple[StepFeatures, LayerCaches]:
        window = self.config.window
        new = list[KeysAndValues]()
        for number, block in enumerate(self.blocks):
            before = None
            if cache is not None:
                before = cache[number]
            x, kept = block.advance(x, before)
            if window:  # the next position reads the last window − 1 of these
                keys, values = kept
                first = max(0, keys.shape[-2] - window + 1)
                kept = (keys[..., first:, :], values[..., first:, :])
            new.append(kept)
        return self._finish(x), tuple(new)

    def _finish(self, x: Tensor) -> Tensor:
        if self.final_norm is None:
            return x
        return self.final_norm(x)

    @property
    def state_size(self) -> int | None:
        c = self.config
        # Without a window the keys of all earlier positions are kept: there is no fixed size.
        if not c.window:
            return None
        # A head has ⌈E / heads⌉ channels.
        heads = c.attention.heads
        keys = heads * -(-c.width // heads)
        return c.layers * 2 * keys * (c.window - 1)

    def attention_maps(self, tokens: Prefix) -> Float[Tensor, "layers B heads t t"]:
        """Return the attention weights α of token i to token j, by layer and head."""
        x = self._inputs(tokens)
        maps = []
        mask = self._mask(x)
        for block in self.blocks:
            maps.append(block.weights(x, mask))
            x = block(x, mask=mask)
        return torch.stack(maps)

    def _mask(self, x: Features) -> Bool[Tensor, "t t"]:
        return causal_mask(x.shape[1], x.device, self.config.window)
