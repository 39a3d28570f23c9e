r"""Semirings: one recurrence, several questions.

    SUM   (+, ×)        probabilities, or counts of derivations
    LOG   (LSE, +)      the same in logarithms
    MAX   (max, +)      the best derivation's score; its gradient is that derivation

`plus` and `times` say everything; `matmul` and `bilinear` are the two products that
chains and trees are made of, written once over them. SUM and LOG do them as matrix
products too, which is faster and keeps no (I, K, J) array.

Goodman 1999, "Semiring parsing"; Rush 2020 (arXiv:2002.00876).
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor


class Semiring(ABC):
    """An associative `plus` with `zero`, and a `times` that distributes over it."""

    zero: float
    one: float

    @abstractmethod
    def plus(self, x: Tensor, dim: int) -> Tensor:
        """The sum of all entries along `dim`."""

    @abstractmethod
    def times(self, a: Tensor, b: Tensor) -> Tensor:
        """The entrywise product."""

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
        """out_a = plus_kbc rules_abc times left_kb times right_kc: every split of a span."""
        return self.bilinear_by_definition(left, right, rules)

    def bilinear_by_definition(self, left: Tensor, right: Tensor, rules: Tensor) -> Tensor:
        """`bilinear` by nothing but `plus` and `times`."""
        pairs = self.plus(self.times(left[..., :, :, None], right[..., :, None, :]), -3)
        return self.plus(self.times(rules, pairs[..., None, :, :]).flatten(-2), -1)


class SumProduct(Semiring):
    """Probabilities as they are."""

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
    """Probabilities as logarithms."""

    zero, one = -torch.inf, 0.0

    def plus(self, x: Tensor, dim: int) -> Tensor:
        return torch.logsumexp(x, dim)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def bilinear(self, left: Tensor, right: Tensor, rules: Tensor) -> Tensor:
        # Splits differ by hundreds of nats and symbols within a split by few, so each
        # split has its own scale. What falls below e^-87 of the best is dropped.
        scale = [x.detach().amax(-1, keepdim=True).clamp_min(_LEAST) for x in (left, right)]
        splits = scale[0] + scale[1]
        top = splits.amax(-2, keepdim=True)
        left = (left - scale[0] + (splits - top)).exp()
        pairs = left.mT @ (right - scale[1]).exp()
        return safe_log(pairs.flatten(-2) @ rules.exp().flatten(1).T) + top[..., 0]


class MaxPlus(Semiring):
    """Best scores."""

    zero, one = -torch.inf, 0.0

    def plus(self, x: Tensor, dim: int) -> Tensor:
        return x.amax(dim)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


SUM, LOG, MAX = SumProduct(), LogSumExp(), MaxPlus()

_LEAST = -1e30
"""Stands in for −∞ where a difference of two of them would be NaN."""


def safe_log(x: Tensor) -> Tensor:
    """Log x, −∞ at 0, where its gradient is 0 and not NaN."""
    positive = x > 0
    return torch.where(positive, x, 1.0).log().masked_fill(~positive, -torch.inf)
