r"""Compute functions of a single token, or of a window, once per distinct value.

    x, at = embed_unique(Emb, s)        at(f(x))[b, t] = f( e(s_bt) )
    first, index = unique_rows(c)       c[first][index] = c

A bigram is such an f. Token frequencies are Zipfian: the number of distinct tokens in a batch is a
third of its positions for captions, and a hundredth for characters.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from lmzoo.functional.vmapped import is_vmapped
from lmzoo.types import Embeddings, Prefix


def needs_fixed_shapes(tokens: Tensor) -> bool:
    """True under `torch.vmap`, and on a GPU, which would wait for the host to read the shape."""
    if is_vmapped(tokens):
        return True
    return tokens.device.type == "cuda"


def embed_unique(
    table: Embeddings, tokens: Prefix
) -> tuple[Float[Tensor, "N E"], Callable[[Tensor], Tensor]]:
    """Return the N distinct embeddings, and a function that expands (N, D) results to (B, t, D).

    Where no shape may depend on the tokens, N is B t or V.
    """
    if needs_fixed_shapes(tokens):
        # As few vectors as can be known without reading the tokens.
        if len(table) < tokens.numel():
            return table, partial(embedding, tokens)
        vectors = table[tokens].flatten(0, 1)
        return vectors, lambda rows: rows.unflatten(0, tokens.shape)
    # `unique` would sort; a mask over the vocabulary is cheaper.
    present = torch.zeros(len(table), dtype=torch.bool, device=tokens.device)
    present[tokens] = True
    number = present.cumsum(0) - 1
    return table[present], partial(embedding, number[tokens])


def unique_rows(
    contexts: Int[Tensor, "N W"],
) -> tuple[Int[Tensor, "D"], Int[Tensor, "N"]]:
    """Return the first index of each distinct row, and for every row the number of its value."""
    count = len(contexts)
    indices = torch.arange(count, device=contexts.device)
    if needs_fixed_shapes(contexts):
        return indices, indices
    rows, index = contexts.unique(dim=0, return_inverse=True)
    first = indices.new_full((len(rows),), count)
    first = first.scatter_reduce(0, index, indices, "amin")
    return first, index
