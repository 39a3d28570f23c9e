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
    position = torch.arange(part.tokens.shape[1])
    real = (position >= 1) & (position < part.lengths[:, None])
    counts = torch.zeros(len(part), vocab, dtype=torch.float64)
    counts.scatter_add_(1, part.tokens, real.double())
    n = counts.sum(1)
    # log Γ(n + 1) is log n!, also of large n.
    orders = torch.lgamma(n + 1) - torch.lgamma(counts + 1).sum(1)
    return LeakBudget(
        unigram=entropy(counts.sum(0)),
        floor=float(orders.sum() / n.sum()),
        tokens_per_sequence=float(n.mean()),
    )


def entropy(weights: Float[Tensor, "V"]) -> float:
    """Return −Σ p log p in nats, where p are the weights normalised to sum to one."""
    p = weights / weights.sum()
    return float(-torch.special.xlogy(p, p).sum())


def uniform_bag_floor(symbols: int, n: int) -> float:
    """Return the exact floor of n independent uniform tokens."""
    p = torch.full((symbols,), 1.0 / symbols, dtype=torch.float64)
    return bag_floor(p, n)


def bag_floor(p: Float[Tensor, "V"], n: int) -> float:
    """Return the exact floor of n independent tokens with frequencies p.

    E log( n! / Π_v c_v! ) = log n! − Σ_v E log c_v!     with binomial counts c_v
    """
    c = torch.arange(n + 1, dtype=torch.float64)
    choose = math.lgamma(n + 1) - torch.lgamma(c + 1) - torch.lgamma(n - c + 1)
    q = p.double()[:, None]
    # xlogy: 0 · log 0 is 0 at counts of 0 and n.
    log_binomial = choose + torch.special.xlogy(c, q) + torch.special.xlogy(n - c, 1 - q)
    log_factorials = log_binomial.exp() * torch.lgamma(c + 1)
    return (math.lgamma(n + 1) - float(log_factorials.sum())) / n
