r"""A Transformer encoder and decoder, over vectors: what two of the models are made of.

    m = encoder(x)          D blocks, each real position sees every real position
    y = decoder(u, m)       D blocks, position i sees j <= i, and every real position of m

Under `norm=pre` a last LayerNorm stands behind each stack.

Vaswani et al. 2017 (arXiv:1706.03762); Xiong et al. 2020 (arXiv:2002.04745); S3; zoo.md 4.3.
"""

from typing import Annotated, Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, Remembered
from lmzoo.blocks.attention_block import AttentionBlock, NormPlace
from lmzoo.blocks.cross_block import CrossBlock
from lmzoo.blocks.feed_forward import Activation
from lmzoo.blocks.positions import Positions
from lmzoo.config import config
from lmzoo.emissions.base import EMISSIONS
from lmzoo.search_space import Choice, FloatRange, IntRange
from lmzoo.types import Lengths


@config
class TransformerConfig:
    """Sizes, and what the layers are made of."""

    width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
    layers: Annotated[int, IntRange(1, 6)] = Field(2, ge=1)
    """D, of the encoder and of the decoder."""
    attention: Attention.Config = Attention.Config()
    positions: Positions = Positions.ADD
    norm: Annotated[NormPlace, Choice(("post", "pre"))] = NormPlace.POST
    activation: Activation = Activation.RELU
    emission: Annotated[Any, EMISSIONS] = "vector"
    dropout: Annotated[float, FloatRange(0.0, 0.3)] = Field(0.1, ge=0, lt=1)
    """On token vectors, attention weights and residuals."""


class Memory(NamedTuple):
    """Keys and values of each decoder block: of the source, and of what was said so far."""

    known: tuple[Remembered, ...]
    see: Bool[Tensor, "B 1 S"]
    said: tuple[Remembered | None, ...]


class EncoderDecoder(nn.Module):
    """Two stacks of one shape."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, pre = config.width, config.norm is NormPlace.PRE
        options: dict[str, Any] = {
            "place": config.norm, "activation": config.activation, "dropout": config.dropout,
        }  # fmt: skip
        depth = range(config.layers)
        self.encoder = nn.ModuleList(
            AttentionBlock(width, config.attention, **options) for _ in depth
        )
        self.decoder = nn.ModuleList(CrossBlock(width, config.attention, **options) for _ in depth)
        self.encoder_norm = nn.LayerNorm(width) if pre else None
        self.decoder_norm = nn.LayerNorm(width) if pre else None

    def encode(self, x: Float[Tensor, "B S E"], lengths: Lengths) -> Float[Tensor, "B S E"]:
        """m; its vectors at pads mean nothing, and are not looked at."""
        see = real(lengths, x.shape[1])[:, None].expand(-1, x.shape[1], -1)
        for block in self.encoder:
            x = block(x, see=see)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def decode(
        self, u: Float[Tensor, "B t E"], memory: Float[Tensor, "B S E"], lengths: Lengths
    ) -> Float[Tensor, "B t E"]:
        """y of every position; `lengths` are those of the memory."""
        see = real(lengths, memory.shape[1])[:, None].expand(-1, u.shape[1], -1)
        for block in self.decoder:
            u = block(u, memory, see)
        return u if self.decoder_norm is None else self.decoder_norm(u)

    def begin(self, memory: Float[Tensor, "B S E"], lengths: Lengths) -> Memory:
        """What decoding position by position starts from."""
        see = real(lengths, memory.shape[1])[:, None]
        known = tuple(block.attention.remember(memory) for block in self._blocks)
        return Memory(known, see, (None,) * len(known))

    def advance(
        self, u: Float[Tensor, "B 1 E"], carried: Memory
    ) -> tuple[Float[Tensor, "B 1 E"], Memory]:
        """`decode` of one more position: no key is computed twice."""
        said = []
        for block, memory, before in zip(self._blocks, carried.known, carried.said, strict=True):
            u, after = block.advance_over(memory, u, before, carried.see)
            said.append(after)
        y = u if self.decoder_norm is None else self.decoder_norm(u)
        return y, carried._replace(said=tuple(said))

    @property
    def _blocks(self) -> list[CrossBlock]:
        return [cast("CrossBlock", block) for block in self.decoder]


def real(lengths: Lengths, count: int) -> Bool[Tensor, "B {count}"]:
    """True at the first `lengths` of `count` positions."""
    return torch.arange(count, device=lengths.device) < lengths[:, None]
