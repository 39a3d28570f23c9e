r"""Estimating a sentence's probability from sampled trees.

    P(w) = Σ_b P(w, b)             b: one of Catalan(n-1) binary bracketings
    P̂(w) = Catalan(n-1) · mean_s P(w, b_s),   b_s uniform

P(w, b) sums over the labels inside b, so the estimate is unbiased with little variance
from labels and all of it from shapes; the inside algorithm is its limit.

S1; zoo.md 4.1.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.functional.semiring import LOG
from lmzoo.models.grammar.pcfg import LogGrammar, leaves

Bracketing = int | tuple[Any, Any]
"""A binary tree over word positions: a position, or two trees side by side."""


def catalan(n: int) -> int:
    """The number of binary trees with n + 1 leaves."""
    return math.comb(2 * n, n) // (n + 1)


def bracketings(first: int, stop: int) -> Iterator[Bracketing]:
    """Every bracketing of the words first..stop-1."""
    if stop - first == 1:
        yield first
    for k in range(first + 1, stop):
        for left in bracketings(first, k):
            for right in bracketings(k, stop):
                yield left, right


def draw_bracketing(first: int, stop: int, generator: torch.Generator) -> Bracketing:
    """One of them, each with equal probability."""
    words = stop - first
    if words == 1:
        return first
    shares = [float(catalan(k - 1) * catalan(words - k - 1)) for k in range(1, words)]
    k = first + 1 + int(torch.multinomial(torch.tensor(shares), 1, generator=generator))
    return draw_bracketing(first, k, generator), draw_bracketing(k, stop, generator)


def log_prob_of(
    bracketing: Bracketing, words: Int[Tensor, "B n"], grammar: LogGrammar
) -> Float[Tensor, "B"]:
    """Log P(w, b), all labels summed."""
    top = _labels(bracketing, leaves(grammar, words), grammar)
    return torch.logsumexp(top + grammar.root[1:], dim=-1)


def estimate(
    words: Int[Tensor, "B n"], grammar: LogGrammar, samples: int, generator: torch.Generator
) -> Float[Tensor, "B"]:
    """Log P̂(w) from so many bracketings."""
    n = words.shape[1]
    drawn = [draw_bracketing(0, n, generator) for _ in range(samples)]
    scores = torch.stack([log_prob_of(b, words, grammar) for b in drawn])
    return torch.logsumexp(scores, dim=0) + math.log(catalan(n - 1)) - math.log(samples)


def _labels(
    bracketing: Bracketing, log_leaves: Float[Tensor, "B n Q"], grammar: LogGrammar
) -> Float[Tensor, "B M"]:
    """Log P(words under it, its inner brackets | its label)."""
    labels, classes = len(grammar.rules), log_leaves.shape[2]
    if isinstance(bracketing, int):
        return torch.nn.functional.pad(log_leaves[:, bracketing], (labels, 0), value=LOG.zero)
    left, right = (_labels(part, log_leaves, grammar)[:, None] for part in bracketing)
    whole = LOG.bilinear(left, right, grammar.rules)
    return torch.nn.functional.pad(whole, (0, classes), value=LOG.zero)
