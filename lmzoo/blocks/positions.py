r"""Positional encodings for models without recurrence.

    PE(p, 2i) = sin( p / 10000^{2i/E} )    PE(p, 2i+1) = cos( p / 10000^{2i/E} )

    add       √E x_p + PE(p)             as published
    concat    M [ √E x_p ; PE(p) ]       as in S3; M is learned, 2E -> E
    learned   x_p + P_p                  one vector per position
    none      x_p

Sinusoids have a fixed magnitude, hence the factor √E; learned positions start as small as x.
Moving by k positions rotates the pair i by the angle k / 10000^{2i/E}.

Vaswani et al. 2017 (arXiv:1706.03762), sections 3.4 and 3.5. Source: S3.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.config import OptionalName
from lmzoo.base.errors import UserError
from lmzoo.blocks.layers import EmbeddingTable, Linear
from lmzoo.types import Features

Positions = OptionalName("Positions", "ADD CONCAT LEARNED NONE")
"""The kind of positional encoding."""


class PositionalEncoding(nn.Module):
    """Adds positions to token vectors."""

    def __init__(
        self,
        kind: Positions,
        width: int,
        length: int,
        std: float | None,
    ):
        super().__init__()
        self.kind = kind
        self.table = None
        self.fold = None
        if kind is Positions.LEARNED:
            self.table = EmbeddingTable(length, width, std)
        elif kind is Positions.CONCAT:
            self.fold = Linear(2 * width, width, std)

    @property
    def per_position(self) -> int:
        """Number of parameters of each position.

        They are unused for the last token of a sequence, which a decoder does not read.
        """
        if self.table is None:
            return 0
        return self.table.embedding_dim

    def forward(self, x: Features, first: int = 0) -> Features:
        """Encode x at the positions first..first+t-1; learned ones end with the task's length."""
        if self.kind is Positions.NONE:
            return x
        _, t, width = x.shape
        if self.table is not None:
            table = self.table.weight
            length = len(table)
            # Sinusoids go on for ever; a table ends.
            if first + t > length:
                raise UserError(
                    f"positions=learned has {length} positions, got {first + t} tokens; "
                    "use positions=add"
                )
            return x + table[first : first + t]
        # Computed in float64, then rounded once.
        encoding = sinusoids(t, width, first).to(x)
        if self.fold is None:
            return width**0.5 * x + encoding
        scaled = width**0.5 * x
        pair = torch.cat([scaled, encoding.expand_as(x)], -1)
        return self.fold(pair)


def sinusoids(
    length: int,
    width: int,
    first: int = 0,
) -> Float[Tensor, "length width"]:
    """Return PE of `length` positions from `first` on, in float64; an odd width drops a cosine."""
    # In float64: a position times a frequency loses its fraction in float32.
    even = torch.arange(0, width, 2, dtype=torch.float64)
    position = torch.arange(first, first + length, dtype=torch.float64)
    base = 10000 ** (even / width)
    angle = position[:, None] / base
    sine = angle.sin()
    cosine = angle.cos()
    pairs = torch.stack([sine, cosine], -1)
    return pairs.flatten(1)[:, :width]
