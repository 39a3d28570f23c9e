r"""What a recurrence reads at each step, and the way back to it.

    a_t = x_t W + b      ∂L/∂W = Σ_t x_tᵀ d_t      ∂L/∂b = Σ_t d_t      ∂L/∂x_t = Σ_a d_t Wᵀ

with d_t = ∂L/∂a_t. Here inputs are vectors; `words.py` has those that are words.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

from jaxtyping import Float
from torch import Size, Tensor

from lmzoo.functional.scan.paths import OfVectors, Paths
from lmzoo.functional.scan.products import (
    accumulate,
    apart,
    biased,
    in_step,
    product,
    projected,
    transposed,
)
from lmzoo.functional.scan.sums import Afterwards, OfBias, OfWeight, Steps, Sum


class StepInputs(ABC):
    """All steps' inputs, laid out time first."""

    shape: Size
    """(T, *P, B)."""
    in_step: bool
    """Whether products and sums over steps are made a step at a time."""

    def projected(
        self,
        weight: Float[Tensor, "*P E G"] | None,
        bias: Float[Tensor, "*P G"] | None,
        out: Float[Tensor, "T *P B G"],
    ) -> Iterator[Float[Tensor, "*P B G"]]:
        """Each out_t = x_t W + b in turn, with either missing."""
        return iter(biased(bias, out)) if weight is None else self._products(weight, bias, out)

    @abstractmethod
    def _products(
        self, weight: Tensor, bias: Tensor | None, out: Tensor
    ) -> Iterator[Float[Tensor, "*P B G"]]: ...

    @abstractmethod
    def of_weight(self, weight: Float[Tensor, "*P E G"], d: Steps) -> Sum:
        """∂L/∂W; ∂L/∂x gets its share."""

    def of_bias(self, d: Steps) -> Sum:
        """∂L/∂b; asked for after that of the weight beside it."""
        if self.in_step:
            return OfBias(d)
        # Over both axes at once takes several times as long.
        return Afterwards(lambda: d.every.sum(-2).sum(0))

    @abstractmethod
    def spend(self, t: int) -> None:
        """Step t is written."""

    @abstractmethod
    def paths(self) -> Paths:
        """The same for sweeps that are compiled whole."""

    @abstractmethod
    def found(self) -> Tensor:
        """All steps are written: the gradient of the inputs; asked for before any sum."""


class Vectors(StepInputs):
    """x (T, *P, B, E), laid out."""

    def __init__(self, x: Float[Tensor, "T *P B E"]) -> None:
        self.shape, self.in_step = x.shape[:-1], in_step(x, x.shape[1:])
        self._x = Steps(x, len(x))
        self._through: list[tuple[Steps, Tensor]] = []

    def _products(
        self, weight: Tensor, bias: Tensor | None, out: Tensor
    ) -> Iterator[Float[Tensor, "*P B G"]]:
        return projected(self._x.every, weight, bias, out, in_step=self.in_step)

    def of_weight(self, weight: Float[Tensor, "*P E G"], d: Steps) -> Sum:
        self._through.append((d, transposed(weight)))
        if self.in_step:
            return OfWeight(weight, self._x.at, d)
        return Afterwards(lambda: self._x.rows.mT @ d.rows)

    def paths(self) -> Paths:
        return OfVectors(self._x.every)

    def spend(self, t: int) -> None:
        if self.in_step:
            self._back([d.at[t] for d, _ in self._through], self._dx.at[t])

    def found(self) -> Float[Tensor, "T *P B E"]:
        if self.in_step:
            return self._dx.every
        rows = self._x.rows.new_empty(self._x.rows.shape)
        self._back([d.rows for d, _ in self._through], rows)
        return apart(rows, len(self._x.every))

    @cached_property
    def _dx(self) -> Steps:
        """Room for ∂L/∂x: batch first, as inputs are given, or who asked for it copies it so.

        Members' products have to write one block.
        """
        x = self._x.every
        if x.dim() > 3:
            return Steps(x.new_empty(x.shape), len(x))
        return Steps(x.new_empty(x.transpose(0, 1).shape).transpose(0, 1), len(x))

    def _back(self, gradients: list[Tensor], out: Tensor) -> None:
        if not gradients:
            out.zero_()
        for k, (d, (_, weight)) in enumerate(zip(gradients, self._through, strict=True)):
            _ = accumulate(out, d, weight) if k else product(d, weight, out)
