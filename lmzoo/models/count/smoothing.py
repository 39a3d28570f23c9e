r"""Smoothing rules: from counts to the share f and the back-off weight γ of each order.

    P_k(w | h) = f(h w) + γ(h) P_{k-1}(w | h'),      P_{-1} = 1/V

    none             f = c(hw)/c(h)                    γ = 0
    add_alpha        f = c(hw)/(c(h) + αV)             γ = αV/(c(h) + αV), with P_{k-1} = 1/V
    jelinek_mercer   f = λ_k c(hw)/c(h)                γ = 1 − λ_k
    kneser_ney       f = (a(hw) − D(a(hw)))/a(h)       γ = Σ_w D(a(hw))/a(h)

h is a context, h' is h without its first token, w a token, c(·) a raw count and a(·) a count of
`counting.adjusted_counts`. Modified Kneser-Ney has three discounts per order, computed from the
numbers n_i of n-grams with a = i:

    Y = n_1/(n_1 + 2 n_2)     D_i = i − (i + 1) Y n_{i+1}/n_i     i = 1, 2, 3 or more

Source: Kneser & Ney 1995; Chen & Goodman 1998; Jelinek & Mercer 1980.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.config import OptionalName
from lmzoo.models.count.counting import Counts, adjusted_counts

FALLBACK = (0.5, 1.0, 1.5)
"""Discounts used if there are too few n-grams to estimate them, or an estimate is 0 or out of range
(those of KenLM)."""

Weights = tuple[Tensor, Tensor]
"""f of each n-gram and γ of each context."""


class Smoothing(OptionalName):
    """Rule that gives probability to n-grams that do not occur in the training data."""

    NONE = "none"
    ADD_ALPHA = "add_alpha"
    JELINEK_MERCER = "jelinek_mercer"
    KNESER_NEY = "kneser_ney"

    @property
    def interpolates(self) -> bool:
        """Whether P_{k-1} is the next lower order; otherwise it is 1/V."""
        return self in (Smoothing.JELINEK_MERCER, Smoothing.KNESER_NEY)


def add_alpha(level: Counts, alpha: float, vocab: int) -> Weights:
    """Add the pseudo-count α to every token; α = 0 is no smoothing."""
    raw = level.raw.double()
    total = level.per_context(raw) + alpha * vocab
    return raw / total[level.context], alpha * vocab / total


def jelinek_mercer(level: Counts, weight: float) -> Weights:
    """Interpolate the relative frequencies of this order with a fixed weight λ_k."""
    raw = level.raw.double()
    total = level.per_context(raw)
    return weight * raw / total[level.context], torch.full_like(total, 1 - weight)


def kneser_ney(levels: list[Counts]) -> list[Weights]:
    """Apply interpolated modified Kneser-Ney to all orders."""
    return [_discounted(*pair) for pair in zip(levels, adjusted_counts(levels), strict=True)]


def _discounted(level: Counts, counts: Int[Tensor, "G"]) -> Weights:
    by_count = torch.tensor((0.0, *discounts(counts)), dtype=torch.float64, device=counts.device)
    discount, counts = by_count[counts.clamp_max(3)], counts.double()
    total = level.per_context(counts)
    return (counts - discount) / total[level.context], level.per_context(discount) / total


def discounts(counts: Int[Tensor, "G"]) -> tuple[float, ...]:
    """Return D_1, D_2 and D_3+ of one order."""
    n = [int((counts == i).sum()) for i in range(1, 5)]
    if 0 in n[:3]:
        return FALLBACK
    y = n[0] / (n[0] + 2 * n[1])
    estimates = tuple(i - (i + 1) * y * n[i] / n[i - 1] for i in (1, 2, 3))
    # A discount of 0 would leave no probability for tokens that are new in a context.
    return estimates if all(0 < d <= i for i, d in enumerate(estimates, start=1)) else FALLBACK


def estimate_weights(
    frequencies: Float[Tensor, "K N"], known: Float[Tensor, "K N"], vocab: int, rounds: int = 50
) -> list[float]:
    """Estimate the Jelinek-Mercer weights λ_0..λ_{K-1} on held-out tokens, by EM.

    Args:
        frequencies: Relative frequency of each of the N tokens at each of the K orders.
        known: 1 where the context of that order occurs in the counts, else 0. An order with an
            unknown context is skipped.
        vocab: Vocabulary size V.
        rounds: Number of EM iterations.
    """
    weights = frequencies.new_full((len(frequencies),), 0.5)
    for _ in range(rounds):
        below = torch.full_like(frequencies[0], 1 / vocab)
        own = []  # posterior that order k generated the token, given that no higher order did
        for k, (frequency, is_known) in enumerate(zip(frequencies, known, strict=True)):
            weight = weights[k] * is_known
            mixed = weight * frequency + (1 - weight) * below
            own.append(weight * frequency / mixed)
            below = mixed
        # From the highest order down: `none_above` is the posterior that no higher order
        # generated the token.
        none_above = torch.ones_like(below)
        reached = []
        for share, is_known in zip(reversed(own), known.flip(0), strict=True):
            reached.insert(0, none_above * is_known)
            none_above = none_above * (1 - share)
        visits = torch.stack(reached)
        chosen = (visits * torch.stack(own)).sum(1)
        weights = torch.where(visits.sum(1) > 0, chosen / visits.sum(1).clamp_min(1e-300), weights)
    return weights.tolist()
