r"""Estimate of a sentence's probability from sampled tree shapes.

    P(w) = Σ_b P(w, b)             b: one of Catalan(n-1) binary bracketings
    P̂(w) = Catalan(n-1) · mean_s P(w, b_s),   b_s uniform

n is the number of words. P(w, b) sums over all labels of the tree b, so the estimate is unbiased
and only the tree shape is sampled. It converges to the result of the inside algorithm.

Source: S1.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.functional.semiring import LOG
from lmzoo.models.grammar.pcfg import LogGrammar, leaf_scores

Bracketing = int | tuple[Any, Any]
"""A binary tree over word positions: a position, or a pair of trees."""


def catalan(n: int) -> int:
    """Return the number of binary trees with n + 1 leaves."""
    return math.comb(2 * n, n) // (n + 1)


def all_bracketings(first: int, stop: int) -> Iterator[Bracketing]:
    """Yield every bracketing of the words first..stop-1."""
    if stop - first == 1:
        yield first
    for k in range(first + 1, stop):
        for left in all_bracketings(first, k):
            for right in all_bracketings(k, stop):
                yield left, right


def draw_bracketing(first: int, stop: int, generator: torch.Generator) -> Bracketing:
    """Draw one of all bracketings of the words first..stop-1 uniformly."""
    words = stop - first
    if words == 1:
        return first
    shares = [float(catalan(k - 1) * catalan(words - k - 1)) for k in range(1, words)]
    k = first + 1 + int(torch.multinomial(torch.tensor(shares), 1, generator=generator))
    return draw_bracketing(first, k, generator), draw_bracketing(k, stop, generator)


def bracketing_log_prob(
    bracketing: Bracketing, words: Int[Tensor, "B n"], grammar: LogGrammar
) -> Float[Tensor, "B"]:
    """Return log P(w, b), summed over all labels."""
    top = _label_scores(bracketing, leaf_scores(grammar, words), grammar)
    return torch.logsumexp(top + grammar.root[1:], dim=-1)


def estimate_log_prob(
    words: Int[Tensor, "B n"], grammar: LogGrammar, samples: int, generator: torch.Generator
) -> Float[Tensor, "B"]:
    """Return log P̂(w) from `samples` bracketings."""
    n = words.shape[1]
    bracketings = [draw_bracketing(0, n, generator) for _ in range(samples)]
    scores = torch.stack([bracketing_log_prob(b, words, grammar) for b in bracketings])
    return torch.logsumexp(scores, dim=0) + math.log(catalan(n - 1)) - math.log(samples)


def _label_scores(
    bracketing: Bracketing, log_leaves: Float[Tensor, "B n Q"], grammar: LogGrammar
) -> Float[Tensor, "B M"]:
    """Return log P(words and inner brackets of the tree | label) for every label of its root."""
    labels, classes = len(grammar.rules), log_leaves.shape[2]
    if isinstance(bracketing, int):
        return torch.nn.functional.pad(log_leaves[:, bracketing], (labels, 0), value=LOG.zero)
    left, right = (_label_scores(part, log_leaves, grammar)[:, None] for part in bracketing)
    whole = LOG.bilinear(left, right, grammar.rules)
    return torch.nn.functional.pad(whole, (0, classes), value=LOG.zero)
