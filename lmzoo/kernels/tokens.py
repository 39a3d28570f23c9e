"""Token ids as the inputs of a recurrence."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn


@dataclass(frozen=True)
class TokenInputs:
    """Inputs given as token ids and an embedding table.

    A CPU kernel projects the rows of the table instead of the vector at every position.
    """

    tokens: Int[Tensor, "*N"]
    """Batch first or time first."""
    table: Float[Tensor, "*P V E"]

    def repeated(self, count: int) -> "TokenInputs":
        """Repeat the batch `count` times."""
        return TokenInputs(self.tokens.repeat(count, 1), self.table)

    def vectors(self) -> Float[Tensor, "*N E"]:
        """Return the vector at each position; the table must have no member axis."""
        return nn.functional.embedding(self.tokens, self.table)
