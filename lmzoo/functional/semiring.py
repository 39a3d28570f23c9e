r"""Semirings: one recurrence answers several questions.

    SUM   (+, ×)        probabilities, or counts of derivations
    LOG   (LSE, +)      log-probabilities
    MAX   (max, +)      the best derivation's score; its gradient is that derivation

`plus` and `times` define a semiring. `matmul` and `bilinear`, the products of chains and trees, are
written with them; SUM and LOG override them by matrix products, which are faster and need no
(I, K, J) tensor.

    α_1(j) = start_j                  chain: forward sums over paths z_1 -> z_2 -> ... -> z_N
    α_n(j) = plus_i α_{n-1}(i) times step_n[i, j]

In SUM, with rows of each step summing to one, α_n is the marginal of z_n; in LOG its
logarithm; in MAX the score of the best path that ends in j.

Goodman 1999, "Semiring parsing"; Rush 2020 (arXiv:2002.00876); Rabiner 1989.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.logspace import safe_log

_FINITE_MIN = -1e30
"""Replaces −∞ where −∞ − (−∞) would give NaN."""


class Semiring(ABC):
    """An associative `plus` with `zero`, and a `times` with `one` that distributes over it."""

    zero: float
    one: float

    @abstractmethod
    def plus(self, x: Tensor, dim: int) -> Tensor:
        """Sum all entries along `dim`."""

    @abstractmethod
    def times(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply entry by entry."""

    def matmul(
        self, a: Float[Tensor, "*N I K"], b: Float[Tensor, "*N K J"]
    ) -> Float[Tensor, "*N I J"]:
        """out_ij = plus_k a_ik times b_kj."""
        return self.plus(self.times(a[..., :, :, None], b[..., None, :, :]), -2)

    def bilinear(
        self,
        left: Float[Tensor, "*N K M"],
        right: Float[Tensor, "*N K M"],
        rules: Float[Tensor, "A M M"],
    ) -> Float[Tensor, "*N A"]:
        """out_a = plus_kbc rules_abc times left_kb times right_kc, over the K splits of a span."""
        return self.naive_bilinear(left, right, rules)

    def naive_bilinear(self, left: Tensor, right: Tensor, rules: Tensor) -> Tensor:
        """Compute `bilinear` with `plus` and `times` only."""
        pairs = self.plus(self.times(left[..., :, :, None], right[..., :, None, :]), -3)
        return self.plus(self.times(rules, pairs[..., None, :, :]).flatten(-2), -1)


class SumProduct(Semiring):
    """The semiring (+, ×) of probabilities."""

    zero, one = 0.0, 1.0

    def plus(self, x: Tensor, dim: int) -> Tensor:
        return x.sum(dim)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def bilinear(self, left: Tensor, right: Tensor, rules: Tensor) -> Tensor:
        return (left.mT @ right).flatten(-2) @ rules.flatten(1).T


class LogSumExp(Semiring):
    """The semiring (logsumexp, +) of log-probabilities."""

    zero, one = -torch.inf, 0.0

    def plus(self, x: Tensor, dim: int) -> Tensor:
        return torch.logsumexp(x, dim)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def bilinear(self, left: Tensor, right: Tensor, rules: Tensor) -> Tensor:
        # Splits differ by hundreds of nats, symbols within a split by few. So each split has its
        # own scale. Terms more than 87 nats below the best are dropped.
        scale = [x.detach().amax(-1, keepdim=True).clamp_min(_FINITE_MIN) for x in (left, right)]
        splits = scale[0] + scale[1]
        top = splits.amax(-2, keepdim=True)
        left = (left - scale[0] + (splits - top)).exp()
        pairs = left.mT @ (right - scale[1]).exp()
        return safe_log(pairs.flatten(-2) @ rules.exp().flatten(1).T) + top[..., 0]


class MaxPlus(Semiring):
    """The semiring (max, +) of the scores of best derivations."""

    zero, one = -torch.inf, 0.0

    def plus(self, x: Tensor, dim: int) -> Tensor:
        return x.amax(dim)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


SUM, LOG, MAX = SumProduct(), LogSumExp(), MaxPlus()


def chain(
    start: Float[Tensor, "*N K"], steps: Iterable[Float[Tensor, "*N K K"]], semiring: Semiring
) -> Iterator[Float[Tensor, "*N K"]]:
    """Yield α_1, α_2, ..., each before the next step is read."""
    alpha = start
    yield alpha
    for step in steps:
        alpha = semiring.matmul(alpha[..., None, :], step)[..., 0, :]
        yield alpha
