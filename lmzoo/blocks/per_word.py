r"""What depends on one token only, computed once per word where that is less work.

    x, at = per_word(Emb, s)        at(f(x))[b, t] = f( e(s_bt) )

A bigram is such an f. A batch of characters holds a thousand times more positions than
the alphabet has letters; a batch of words may hold fewer than the vocabulary.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.types import Embeddings


def per_word(
    table: Embeddings, tokens: Int[Tensor, "B t"]
) -> tuple[Float[Tensor, "N E"], Callable[[Tensor], Tensor]]:
    """The vectors to compute with, and how to read (N, D) results at every position."""
    if len(table) < tokens.numel():
        return table, lambda rows: torch.nn.functional.embedding(tokens, rows)
    return table[tokens].flatten(0, 1), lambda rows: rows.unflatten(0, tokens.shape)
