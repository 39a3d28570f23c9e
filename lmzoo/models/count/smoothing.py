r"""How counts become probabilities: the share f and the back-off weight γ of each order.

    P_k(w | h) = f(h w) + γ(h) P_{k-1}(w | h'),      P_{-1} = 1/V

    none             f = c(hw)/c(h)                    γ = 0
    add_alpha        f = c(hw)/(c(h) + αV)             γ = αV/(c(h) + αV), with P_{k-1} = 1/V
    jelinek_mercer   f = λ_k c(hw)/c(h)                γ = 1 − λ_k
    kneser_ney       f = (a(hw) − D(a(hw)))/a(h)       γ = Σ_w D(a(hw))/a(h)

a counts as `counting.adjusted` does. Modified Kneser-Ney has three discounts an order,
from n_i, the number of n-grams with a = i:

    Y = n_1/(n_1 + 2 n_2)     D_i = i − (i + 1) Y n_{i+1}/n_i     i = 1, 2, 3 or more

Kneser & Ney 1995; Chen & Goodman 1998; Jelinek & Mercer 1980.
"""

from enum import StrEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.models.count.counting import Counts, adjusted

FALLBACK = (0.5, 1.0, 1.5)
"""Discounts where there are too few n-grams to estimate them (as KenLM offers)."""

Weights = tuple[Tensor, Tensor]
"""f of each n-gram, γ of each context."""


class Smoothing(StrEnum):
    """Where the probability of what was not seen comes from."""

    NONE = "none"
    ADD_ALPHA = "add_alpha"
    JELINEK_MERCER = "jelinek_mercer"
    KNESER_NEY = "kneser_ney"

    @property
    def interpolates(self) -> bool:
        """Whether every order leans on the one below, or on 1/V at once."""
        return self in (Smoothing.JELINEK_MERCER, Smoothing.KNESER_NEY)


def add_alpha(level: Counts, alpha: float, vocab: int) -> Weights:
    """The same pseudo-count for every token; α = 0 is no smoothing."""
    raw = level.raw.double()
    total = level.per_context(raw) + alpha * vocab
    return raw / total[level.context], alpha * vocab / total


def jelinek_mercer(level: Counts, trust: float) -> Weights:
    """A fixed weight for the order's own relative frequencies."""
    raw = level.raw.double()
    total = level.per_context(raw)
    return trust * raw / total[level.context], torch.full_like(total, 1 - trust)


def kneser_ney(levels: list[Counts]) -> list[Weights]:
    """Interpolated modified Kneser-Ney, all orders."""
    return [_discounted(*pair) for pair in zip(levels, adjusted(levels), strict=True)]


def _discounted(level: Counts, counts: Int[Tensor, "G"]) -> Weights:
    by_count = torch.tensor((0.0, *discounts(counts)), dtype=torch.float64, device=counts.device)
    off, counts = by_count[counts.clamp_max(3)], counts.double()
    total = level.per_context(counts)
    return (counts - off) / total[level.context], level.per_context(off) / total


def discounts(counts: Int[Tensor, "G"]) -> tuple[float, ...]:
    """D_1, D_2, D_3+ of one order."""
    n = [int((counts == i).sum()) for i in range(1, 5)]
    if 0 in n[:3]:
        return FALLBACK
    y = n[0] / (n[0] + 2 * n[1])
    found = tuple(i - (i + 1) * y * n[i] / n[i - 1] for i in (1, 2, 3))
    return found if all(0 <= d <= i for i, d in enumerate(found, start=1)) else FALLBACK


def trusts(
    frequencies: Float[Tensor, "K N"], known: Float[Tensor, "K N"], vocab: int, rounds: int = 50
) -> list[float]:
    """λ_0..λ_{K-1} that make held-out tokens likeliest, by expectation maximisation.

    `frequencies` are each order's relative frequencies of the N tokens, 0 where the
    context is not known; there the order passes its turn to the one below.
    """
    trust = frequencies.new_full((len(frequencies),), 0.5)
    for _ in range(rounds):
        below = torch.full_like(frequencies[0], 1 / vocab)
        own, reached = [], []
        for k, (frequency, seen) in enumerate(zip(frequencies, known, strict=True)):
            weight = trust[k] * seen
            mixed = weight * frequency + (1 - weight) * below
            own.append(weight * frequency / mixed)
            below = mixed
        # From the top: a token is still looking for its order where none above was it.
        looking = torch.ones_like(below)
        for share, seen in zip(reversed(own), known.flip(0), strict=True):
            reached.insert(0, looking * seen)
            looking = looking * (1 - share)
        asked = torch.stack(reached)
        chosen = (asked * torch.stack(own)).sum(1)
        trust = torch.where(asked.sum(1) > 0, chosen / asked.sum(1).clamp_min(1e-300), trust)
    return trust.tolist()
