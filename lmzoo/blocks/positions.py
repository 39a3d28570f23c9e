r"""Where a token stands, told to a model that would not know.

    PE(p, 2i) = sin( p / 10000^{2i/E} )    PE(p, 2i+1) = cos( p / 10000^{2i/E} )

    add       √E x_p + PE(p)             as published
    concat    M [ √E x_p ; PE(p) ]       as S3 tells it; M is learned, 2E -> E
    learned   x_p + P_p                  one vector per position
    none      x_p

The sinusoids have a fixed size, hence the √E; learned positions start as small as x. Pair i at
p + k is pair i at p, turned by the angle k / 10000^{2i/E}.

Vaswani et al. 2017 (arXiv:1706.03762), 3.4 and 3.5; S3.
"""

from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.linear import Linear
from lmzoo.catalogue import technique
from lmzoo.errors import UserError

technique(
    "positional_encoding",
    document="S3",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
    summary="Positions as sinusoids, added or concatenated, or as learned vectors.",
)


class Positions(StrEnum):
    """How positions are told."""

    ADD = "add"
    CONCAT = "concat"
    LEARNED = "learned"
    NONE = "none"


class PositionalEncoding(nn.Module):
    """Token vectors that know their positions 0..t-1."""

    def __init__(self, kind: Positions, width: int, length: int, spread: float | None) -> None:
        super().__init__()
        self.kind = kind
        self.table = Table(length, width, spread) if kind is Positions.LEARNED else None
        self.fold = Linear(2 * width, width, spread) if kind is Positions.CONCAT else None

    def forward(self, x: Float[Tensor, "B t E"], first: int = 0) -> Float[Tensor, "B t E"]:
        """Told that x stands at positions first..first+t-1."""
        if self.kind is Positions.NONE:
            return x
        _, t, width = x.shape
        if self.table is not None:
            if first + t > len(self.table.weight):
                length = len(self.table.weight)
                raise UserError(
                    f"learned positions end at {length}, got {first + t} tokens: use add"
                )
            return x + self.table.weight[first : first + t]
        places = sinusoids(t, width, first).to(x)
        if self.fold is None:
            return width**0.5 * x + places
        return self.fold(torch.cat([width**0.5 * x, places.expand_as(x)], dim=-1))


def sinusoids(length: int, width: int, first: int = 0) -> Float[Tensor, "length width"]:
    """PE of positions first.., in float64 until it is used; an odd width drops a cosine."""
    even = torch.arange(0, width, 2, dtype=torch.float64)
    place = torch.arange(first, first + length, dtype=torch.float64)
    angle = place[:, None] / 10000 ** (even / width)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width]
