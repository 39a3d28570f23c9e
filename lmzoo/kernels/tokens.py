"""Token ids as the inputs of a recurrence."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from lmzoo.kernels.dispatch import Backward, CustomFunction, has_gpu_kernels
from lmzoo.types import Tokens, Vectors


@dataclass(frozen=True)
class TokenInputs:
    """Inputs given as token ids and an embedding table."""

    tokens: Int[Tensor, "*N"]
    """Batch first or time first."""
    table: Float[Tensor, "*P V E"]

    def repeated(self, count: int) -> "TokenInputs":
        """Repeat the batch `count` times."""
        return TokenInputs(self.tokens.repeat(count, 1), self.table)

    def vectors(self) -> Vectors:
        """Return the vector at each position; the table must have no member axis."""
        return embedding(self.tokens, self.table)


def map_vectors(function: Callable[[Tensor], Tensor], x: Tensor | TokenInputs) -> Any:
    """Apply a function of vectors (B, T, E) to inputs; of tokens, to each row of the table once."""
    if not isinstance(x, TokenInputs):
        return function(x)
    # A row for each token of the vocabulary, so that each is computed once.
    return TokenInputs(x.tokens, function(x.table[None]).squeeze(0))


def take_rows(
    table: Float[Tensor, "V G"],
    tokens: Tokens,
) -> Float[Tensor, "B T G"]:
    """Return the row of the table at each position."""
    # torch's gradient of an embedding adds atomically on a GPU: it would not be reproducible.
    if not has_gpu_kernels(table):
        return embedding(tokens, table)
    return _TakeRows.apply(table, tokens)[0]


class _TakeRows(CustomFunction):
    """(table, tokens), both or neither with a member axis first -> (rows,)."""

    axes = 2

    @staticmethod
    def compute(table: Tensor, tokens: Tensor) -> tuple[Tensor]:
        # Here, because it imports Triton, which not every machine has.
        from lmzoo.kernels.gpu.rows import take_rows

        return (take_rows(table.contiguous(), tokens),)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any):
        table, tokens = inputs
        ctx.vocab = table.shape[-2]
        ctx.save_for_backward(tokens)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        (tokens,) = ctx.saved_tensors
        return _AddRows.apply(upstream[0], tokens, ctx.vocab)[0], None


class _AddRows(Backward):
    """(g, tokens, V) -> (gradient of the table,)."""

    axes = 3

    @staticmethod
    def compute(g: Tensor, tokens: Tensor, vocab: int) -> tuple[Tensor]:
        from lmzoo.kernels.gpu.rows import add_rows

        return (add_rows(g.contiguous(), tokens, vocab),)
