r"""One pass over the data: every n-gram of every order, raw and continuation counts.

    raw(g)           how often g occurs
    continuation(g)  how many different tokens come before g somewhere

Both are counts of sorted keys; the second counts, one order up, the different longer
n-grams that end in g.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from lmzoo.contract import START, scored_mask
from lmzoo.models.count.table import find, history, longer


@dataclass(frozen=True)
class Counts:
    """The n-grams of one order: keys sorted, everything else in their order."""

    contexts: Tensor
    """Keys of the contexts."""
    grams: Tensor
    """Keys of the n-grams."""
    context: Tensor
    """The number of each n-gram's context."""
    raw: Tensor
    """How often each n-gram occurs."""
    ends: Tensor
    """The number of each n-gram without its first token, one order down."""
    opening: Tensor
    """Whether each n-gram begins with `<start>`."""

    def per_context(self, values: Tensor) -> Tensor:
        """Sum a number of each n-gram over each context."""
        return values.new_zeros(len(self.contexts)).index_add(0, self.context, values)


def count(
    tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"], order: int, vocab: int
) -> list[Counts]:
    """Counts of orders 1..order of all scored tokens."""
    wanted = scored_mask(tokens, lengths)
    number = torch.zeros_like(tokens)
    levels: list[Counts] = []
    for k in range(order):
        token = history(tokens, k) if k else torch.zeros_like(tokens)
        key = longer(number, token, vocab).masked_fill(~wanted, -1)
        here = key >= 0
        contexts = key[here].unique()
        number = find(contexts, key)
        grams, raw = longer(number, tokens, vocab)[here].unique(return_counts=True)
        context = grams // vocab
        parent, first = contexts[context] // vocab, contexts[context] % vocab
        word = grams % vocab
        ends = find(levels[-1].grams, parent * vocab + word) if k else torch.zeros_like(grams)
        opening = (first if k else word) == START
        levels.append(Counts(contexts, grams, context, raw, ends, opening))
    return levels


def adjusted(levels: list[Counts]) -> list[Tensor]:
    """Continuation counts below the highest order; raw where nothing can come before.

    An n-gram that begins with `<start>` has no predecessor to count (Heafield et al. 2013).
    """
    lower = [
        torch.where(level.opening, level.raw, torch.bincount(above.ends, minlength=len(level.raw)))
        for level, above in pairwise(levels)
    ]
    return [*lower, levels[-1].raw]
