r"""The most that a model can gain by knowing the bag of a sequence's tokens but not their order.

An oracle that knows the count c_v of each token, n tokens in all, only has to predict their order:

    floor = E[ log( n! / Π_v c_v! ) ] / n                            nats per token
    gain  = H(unigram) − floor                = H(bag) / n  where tokens are independent

A leak of the bag, for example by dividing inputs by their standard deviation over the whole
sequence, is worth at most this gain. For independent amino acids with natural frequencies,
H = 2.889, and the floor is 1.747 at n = 19 and 2.497 at n = 99. The leaking LSTM of S0 scored 1.774
and 2.524; a causal model cannot score below H.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.data.corpus import Sequences
from lmzoo.functional.token_scores import scored_mask


@dataclass(frozen=True)
class LeakBudget:
    """Losses of two reference models on a set of sequences, in nats per token."""

    unigram: float
    """Entropy of the token frequencies: the best loss of a unigram model."""
    floor: float
    """Loss of the oracle that knows the bag of each sequence."""
    tokens_per_sequence: float

    @property
    def gain(self) -> float:
        """The most that a unigram model can gain by a leak of the bag."""
        return self.unigram - self.floor


def leak_budget(part: Sequences, vocab: int) -> LeakBudget:
    """Compute the leak budget of the sequences, without `<start>` and padding."""
    real = scored_mask(part.tokens, part.lengths)
    counts = torch.zeros(len(part), vocab, dtype=torch.float64)
    counts.scatter_add_(1, part.tokens, real.double())
    n = counts.sum(1)
    repeats = _log_factorial(counts).sum(1)
    orders = _log_factorial(n) - repeats
    floor = orders.sum() / n.sum()
    return LeakBudget(
        unigram=entropy(counts.sum(0)),
        floor=floor.item(),
        tokens_per_sequence=n.mean().item(),
    )


def _log_factorial(n: Tensor) -> Tensor:
    """Return log n!, also of large n: log Γ(n + 1)."""
    return torch.lgamma(n + 1)


def entropy(weights: Float[Tensor, "V"]) -> float:
    """Return −Σ p log p in nats, where p are the weights normalised to sum to one."""
    p = weights / weights.sum()
    terms = torch.special.xlogy(p, p)
    return -terms.sum().item()


def uniform_bag_floor(symbols: int, n: int) -> float:
    """Return the exact floor of n independent uniform tokens."""
    share = 1.0 / symbols
    p = torch.full((symbols,), share, dtype=torch.float64)
    return bag_floor(p, n)


def bag_floor(p: Float[Tensor, "V"], n: int) -> float:
    """Return the exact floor of n independent tokens with frequencies p.

    E log( n! / Π_v c_v! ) = log n! − Σ_v E log c_v!     with binomial counts c_v
    """
    c = torch.arange(n + 1, dtype=torch.float64)
    orders = math.lgamma(n + 1)
    choose = orders - _log_factorial(c) - _log_factorial(n - c)
    q = p.double()[:, None]
    # xlogy: 0 · log 0 is 0 at counts of 0 and n.
    present = torch.special.xlogy(c, q)
    absent = torch.special.xlogy(n - c, 1 - q)
    log_binomial = choose + present + absent
    repeats = log_binomial.exp() * _log_factorial(c)
    return (orders - repeats.sum().item()) / n
