r"""From the gradients of pre-activations to those of weights, biases and inputs.

    a_t = x_t W_x + q_t W_q + b          d_t = ∂L/∂a_t, found by the reverse sweep

    ∂L/∂W_x = Σ_t x_tᵀ d_t    ∂L/∂W_q = Σ_t q_tᵀ d_t    ∂L/∂b = Σ_t d_t    ∂L/∂x_t = Σ_a d_t W_xᵀ

Two ways to the same sums. Afterwards: every d_t is kept, and each weight gets one product
over all steps when the sweep is done. In step: a step's share is added while d_t is in the
cache, and the next step writes over it. `products.in_step` says which one pays.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.scan.products import (
    accumulate,
    apart,
    before,
    in_step,
    product,
    side_by_side,
    transposed,
)


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
        return list(self.every.unbind(0)) * (self.count // len(self.every))

    @cached_property
    def rows(self) -> Float[Tensor, "*P N G"]:
        """All steps' rows side by side."""
        return side_by_side(self.every)


class Gradients:
    """What is asked for: the gradients of a sweep's weights in the order of the asking.

    That of a weight which is None is None.
    """

    def __init__(
        self,
        x: Float[Tensor, "T *P B E"],
        start: Float[Tensor, "*P B H"],
        states: Float[Tensor, "T *P B H"],
    ) -> None:
        self._in_step = in_step(x)
        self._x, self._start, self._states = Steps(x, len(x)), start, states
        self._dx = Steps(_like_given(x), len(x)) if self._in_step else None
        self._through: list[tuple[Steps, Tensor]] = []
        self._shares: list[Callable[[int], object]] = []
        self._sums: list[Callable[[], Tensor] | None] = []
        self.before = before(start, states)
        """The state that each step starts from."""

    def steps(self, columns: int) -> Steps:
        """Room for something that the sweep writes at every step."""
        count = len(self._states)
        shape = (1 if self._in_step else count, *self._start.shape[:-1], columns)
        return Steps(self._start.new_empty(shape), count)

    def of_inputs(self, weight: Tensor | None, d: Steps) -> None:
        """W_x, and its share of ∂L/∂x."""
        self.of(weight, self._x, d)
        if weight is not None:
            self._through.append((d, transposed(weight)))

    def of_states(self, weight: Tensor | None, d: Steps) -> None:
        """W_q where q_t is the state before the step."""

        def afterwards() -> Tensor:
            count, total = self._start.shape[-2], self._start.mT @ d.at[0]
            if len(self._states) == 1:
                return total
            return total + side_by_side(self._states[:-1]).mT @ d.rows[..., count:, :]

        self._product(weight, lambda: self.before, d, afterwards)

    def of(self, weight: Tensor | None, q: Steps, d: Steps) -> None:
        """W_q where the sweep writes q_t."""
        self._product(weight, lambda: q.at, d, lambda: q.rows.mT @ d.rows)

    def of_gated(self, weight: Tensor | None, f: Float[Tensor, "T *P B H"], d: Steps) -> None:
        """W_q where q_t is the state before the step times f_t, and is made again in the step."""
        if weight is not None:
            assert self._in_step
            q, f_at, before = self.steps(f.shape[-1]), f.unbind(0), self.before
            self._shares.append(lambda t: torch.mul(before[t], f_at[t], out=q.at[t]))
            self.of(weight, q, d)
        else:
            self._sums.append(None)

    def of_bias(self, bias: Tensor | None, d: Steps) -> None:
        """B."""
        if bias is None:
            self._sums.append(None)
        elif self._in_step:
            total = d.at[0].new_zeros(d.at[0].shape)
            self._shares.append(lambda t: total.add_(d.at[t]))
            self._sums.append(lambda: total.sum(-2))
        else:  # over both axes at once takes several times as long
            self._sums.append(lambda: d.every.sum(-2).sum(0))

    def spend(self, t: int) -> None:
        """Step t is written."""
        if self._dx is not None:
            for share in self._shares:
                share(t)
            self._to_inputs([d.at[t] for d, _ in self._through], self._dx.at[t])

    def found(self) -> tuple[Float[Tensor, "T *P B E"], list[Tensor | None]]:
        """All steps are written: the gradient of the inputs, and those of the weights."""
        if self._dx is None:
            rows = self._x.rows.new_empty(self._x.rows.shape)
            self._to_inputs([d.rows for d, _ in self._through], rows)
            dx = apart(rows, len(self._states))
        else:
            dx = self._dx.every
        found = [total and total() for total in self._sums]
        # They hold this object, and it them: arrays would wait for the garbage collector.
        self._sums.clear()
        self._shares.clear()
        return dx, found

    def _product(
        self,
        weight: Tensor | None,
        q: Callable[[], Sequence[Tensor]],
        d: Steps,
        afterwards: Callable[[], Tensor],
    ) -> None:
        if weight is None:
            self._sums.append(None)
        elif self._in_step:
            total, turned = weight.new_zeros(weight.shape), [one.mT for one in q()]
            self._shares.append(lambda t: accumulate(total, turned[t], d.at[t]))
            self._sums.append(lambda: total)
        else:
            self._sums.append(afterwards)

    def _to_inputs(self, gradients: Sequence[Tensor], out: Tensor) -> None:
        if not gradients:
            out.zero_()
        for k, (d, (_, weight)) in enumerate(zip(gradients, self._through, strict=True)):
            _ = accumulate(out, d, weight) if k else product(d, weight, out)


def _like_given(x: Float[Tensor, "T *P B E"]) -> Float[Tensor, "T *P B E"]:
    """Room for ∂L/∂x: batch first, as inputs are given, or who asked for it copies it so.

    Members' products have to write one block.
    """
    return (
        x.new_empty(x.transpose(0, 1).shape).transpose(0, 1)
        if x.dim() == 3
        else x.new_empty(x.shape)
    )
