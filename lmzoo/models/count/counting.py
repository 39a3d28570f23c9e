r"""Raw and continuation counts of all n-grams of all orders.

    raw(g)           number of occurrences of g
    continuation(g)  number of different tokens that occur before g

n-grams are sorted integer keys (`table.py`). continuation(g) is the number of different n-grams of
the next order that end in g.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from lmzoo.contract import START
from lmzoo.functional.token_scores import scored_mask
from lmzoo.models.count.table import extend_keys, lookup, shift


@dataclass(frozen=True)
class Counts:
    """The n-grams of one order. All fields but `contexts` have one entry per n-gram."""

    contexts: Tensor
    """Sorted keys of the contexts."""
    grams: Tensor
    """Sorted keys of the n-grams."""
    context: Tensor
    """Index of the n-gram's context."""
    raw: Tensor
    """Number of occurrences."""
    suffix: Tensor
    """Index, one order down, of the n-gram without its first token."""
    has_start: Tensor
    """Whether the n-gram begins with `<start>`."""

    def per_context(self, values: Tensor) -> Tensor:
        """Sum a value of each n-gram over the n-grams of each context."""
        return values.new_zeros(len(self.contexts)).index_add(0, self.context, values)


def count_ngrams(
    tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"], order: int, vocab: int
) -> list[Counts]:
    """Count the n-grams of orders 1..order that end in a scored token."""
    return [*islice(count_orders(tokens, lengths, vocab), order)]


def count_orders(
    tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"], vocab: int
) -> Iterator[Counts]:
    """Yield the n-grams of orders 1, 2, ..."""
    scored = scored_mask(tokens, lengths)
    number = torch.zeros_like(tokens)
    last: Counts | None = None
    for k in count():
        token = shift(tokens, k) if k else torch.zeros_like(tokens)
        key = extend_keys(number, token, vocab).masked_fill(~scored, -1)
        known = key >= 0
        contexts = key[known].unique()
        number = lookup(contexts, key)
        grams, raw = extend_keys(number, tokens, vocab)[known].unique(return_counts=True)
        context = grams // vocab
        parent, first = contexts[context] // vocab, contexts[context] % vocab
        word = grams % vocab
        suffix = lookup(last.grams, parent * vocab + word) if last else torch.zeros_like(grams)
        has_start = (first if k else word) == START
        last = Counts(contexts, grams, context, raw, suffix, has_start)
        yield last


def adjusted_counts(levels: list[Counts]) -> list[Tensor]:
    """Return raw counts for the highest order and continuation counts for the lower ones.

    An n-gram that begins with `<start>` has no predecessor and keeps its raw count (Heafield et al.
    2013).
    """
    lower = []
    for level, above in pairwise(levels):
        continuation = torch.bincount(above.suffix, minlength=len(level.raw))
        lower.append(torch.where(level.has_start, level.raw, continuation))
    return [*lower, levels[-1].raw]
