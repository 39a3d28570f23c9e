"""Gradients that are sums over a sweep's steps: a share a step, or all when it is done.

Σ_t q_tᵀ d_t of a weight        Σ_t Σ_b d_tb of a bias        d_t = ∂L/∂a_t, a_t = q_t W + b
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.scan.products import accumulate, side_by_side


class Steps:
    """What a sweep writes at every step, (T, *P, B, G); or one step's room, used again."""

    def __init__(self, every: Float[Tensor, "T *P B G"], count: int) -> None:
        self.every, self.count = every, count

    def columns(self, begin: int, end: int) -> "Steps":
        """Some of the columns."""
        return Steps(self.every[..., begin:end], self.count)

    @cached_property
    def at(self) -> list[Float[Tensor, "*P B G"]]:
        """Where each step is: an index every time would cost as much as a small product."""
        return list(self.every.unbind(0)) * self.repeats

    @property
    def repeats(self) -> int:
        """How often each room is written."""
        return self.count // len(self.every)

    @cached_property
    def rows(self) -> Float[Tensor, "*P N G"]:
        """All steps' rows side by side."""
        return side_by_side(self.every)


def product_of_all(q: Steps, d: Steps) -> Float[Tensor, "*P H G"]:
    """Σ_t q_tᵀ d_t over q's steps, which are d's last ones.

    Members' rows have to be copied for one product of all steps. So there it is one a step, all
    asked for at once, unless these were larger than what they are made of.
    """
    steps, members = q.every.shape[:-2], q.every.dim() > 3
    (rows, h), g = q.every.shape[-2:], d.every.shape[-1]
    if members and 2 * h * g <= rows * (h + g):
        late = d.every[-len(q.every) :]
        products = torch.bmm(q.every.flatten(0, 1).mT, late.flatten(0, 1))
        return products.unflatten(0, steps).sum(0)
    return q.rows.mT @ d.rows[..., -q.rows.shape[-2] :, :]


class Afterwards:
    """A sum made when every step is there."""

    def __init__(self, total: Callable[[], Tensor]) -> None:
        self.total = total

    def spend(self, t: int) -> None:
        """Nothing yet."""


class OfWeight:
    """Σ_t q_tᵀ d_t, a step at a time."""

    def __init__(
        self,
        weight: Float[Tensor, "*P H G"],
        q: Sequence[Float[Tensor, "*P B H"]],
        d: Steps,
    ) -> None:
        self._total = weight.new_zeros(weight.shape)
        self._turned, self._d = [one.mT for one in q], d

    def spend(self, t: int) -> None:
        """Add step t's share."""
        accumulate(self._total, self._turned[t], self._d.at[t])

    def total(self) -> Float[Tensor, "*P H G"]:
        """All shares."""
        return self._total


class OfBias:
    """Σ_t Σ_b d_tb, a step at a time; sequences are summed last."""

    def __init__(self, d: Steps) -> None:
        self._total, self._d = d.at[0].new_zeros(d.at[0].shape), d

    def spend(self, t: int) -> None:
        """Add step t's share."""
        self._total.add_(self._d.at[t])

    def total(self) -> Float[Tensor, "*P G"]:
        """All shares."""
        return self._total.sum(-2)


Sum = Afterwards | OfWeight | OfBias
