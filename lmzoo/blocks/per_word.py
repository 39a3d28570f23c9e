r"""What depends on one token or window only, computed once for each distinct one.

    x, at = per_word(Emb, s)        at(f(x))[b, t] = f( e(s_bt) )
    first, place = distinct(c)      c[first][place] = c

A bigram is such an f. Words are Zipfian: a batch of captions has a third as many
distinct words as positions, a batch of characters a hundredth.
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
    if _mapped(tokens):
        if len(table) < tokens.numel():
            return table, lambda rows: torch.nn.functional.embedding(tokens, rows)
        return table[tokens].flatten(0, 1), lambda rows: rows.unflatten(0, tokens.shape)
    # `unique` would sort; the vocabulary is small enough to be ticked off.
    present = torch.zeros(len(table), dtype=torch.bool, device=tokens.device)
    present[tokens] = True
    place = present.cumsum(0)[tokens] - 1
    return table[present], lambda rows: torch.nn.functional.embedding(place, rows)


def distinct(contexts: Int[Tensor, "N W"]) -> tuple[Int[Tensor, "D"], Int[Tensor, "N"]]:
    """Where each distinct row stands for the first time, and which of them each row is."""
    every = torch.arange(len(contexts), device=contexts.device)
    if _mapped(contexts):
        return every, every
    rows, place = contexts.unique(dim=0, return_inverse=True)
    first = every.new_full((len(rows),), len(every))
    return first.scatter_reduce(0, place, every, "amin"), place


def _mapped(tokens: Tensor) -> bool:
    """Whether `torch.vmap` runs over the tokens: then no shape may depend on them."""
    return torch._C._functorch.is_batchedtensor(tokens)  # pyright: ignore[reportAttributeAccessIssue]
