r"""What could be gained by knowing the bag of a sequence's tokens, and nothing of their order.

An oracle that is told how often each token occurs, c_v of n in all, need only choose
among the orders of them:

    floor = E[ log( n! / Π_v c_v! ) ] / n                            nats per token
    gain  = H(unigram) − floor                = H(bag) / n  where tokens are independent

A leak that lets the bag through (dividing by the spread over the whole sequence does)
is worth up to that gain. For independent amino acids of natural frequencies, H = 2.889,
the floor is 1.747 at n = 19 and 2.497 at n = 99; S0's leaking LSTM scored 1.774 and 2.524,
an honest one cannot score below H.

zoo.md 1.7, whose figures for the short sequences are those of n = 20.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.data.corpus import Sequences


@dataclass(frozen=True)
class LeakBudget:
    """Nats per token of a set of sequences."""

    unigram: float
    """Entropy of the tokens' own frequencies: what an order-free model without leak scores."""
    floor: float
    """What the oracle scores that knows each sequence's bag."""
    tokens_per_sequence: float

    @property
    def gain(self) -> float:
        """The most that leaking the bag can be worth to an order-free model."""
        return self.unigram - self.floor


def leak_budget(part: Sequences, vocab: int) -> LeakBudget:
    """The budget of these sequences; `<start>` and padding are not among their tokens."""
    place = torch.arange(part.tokens.shape[1])
    real = (place >= 1) & (place < part.lengths[:, None])
    counts = torch.zeros(len(part), vocab, dtype=torch.float64)
    counts.scatter_add_(1, part.tokens, real.double())
    n = counts.sum(1)
    orders = torch.lgamma(n + 1) - torch.lgamma(counts + 1).sum(1)
    return LeakBudget(
        unigram=entropy(counts.sum(0)),
        floor=float(orders.sum() / n.sum()),
        tokens_per_sequence=float(n.mean()),
    )


def entropy(weights: Float[Tensor, "V"]) -> float:
    """−Σ p log p of the weights made to sum to one, in nats."""
    p = weights / weights.sum()
    return float(-torch.special.xlogy(p, p).sum())


def uniform_bag_floor(symbols: int, n: int) -> float:
    """The floor of n independent uniform tokens, exactly: E log n! − symbols · E log c!."""
    return bag_floor(torch.full((symbols,), 1.0 / symbols, dtype=torch.float64), n)


def bag_floor(p: Float[Tensor, "V"], n: int) -> float:
    """The floor of n independent tokens of frequencies p, each count c_v being binomial."""
    c = torch.arange(n + 1, dtype=torch.float64)
    choose = math.lgamma(n + 1) - torch.lgamma(c + 1) - torch.lgamma(n - c + 1)
    q = p.double()[:, None]
    binomial = (choose + torch.special.xlogy(c, q) + torch.special.xlogy(n - c, 1 - q)).exp()
    return (math.lgamma(n + 1) - float((binomial * torch.lgamma(c + 1)).sum())) / n
