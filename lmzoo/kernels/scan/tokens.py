"""Inputs of a recurrence that are words: the vector at a position is a row of a table.

Sequences of them are what a compiled sweep looks up and adds up itself (`paths.py`).
"""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn


@dataclass(frozen=True)
class Words:
    """Inputs of a recurrence as words: sequences one after another, or time first."""

    tokens: Int[Tensor, "*N"]
    table: Float[Tensor, "*P V E"]

    def repeated(self, count: int) -> "Words":
        """The same sequences again and again."""
        return Words(self.tokens.repeat(count, 1), self.table)

    def vectors(self) -> Float[Tensor, "*N E"]:
        """The vector at each position, without members."""
        return nn.functional.embedding(self.tokens, self.table)
