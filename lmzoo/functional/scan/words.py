r"""Inputs that are words: the vector at a position is a row of a table.

    a_t = (table W + b)[w_t]
    S_v = Σ_{t,b : w_tb = v} d_tb
    ∂L/∂W = tableᵀ S      ∂L/∂b = Σ_v S_v      ∂L/∂table = Σ_a S Wᵀ

Where a batch has more positions than the vocabulary has words, these are fewer products
each way than those of all positions, no vector is copied to where it stands, and biases cost
nothing. Looking up and adding up are compiled (`kernels/words.py`). Derived here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from lmzoo.functional.processor import arrays
from lmzoo.functional.scan.inputs import StepInputs
from lmzoo.functional.scan.paths import OfWords, Paths
from lmzoo.functional.scan.products import in_step, transposed
from lmzoo.functional.scan.sums import Afterwards, Steps, Sum

LARGE = 2**11
"""Numbers of a member's step (B, E) from which products are made step by step: no input's is
among them, so it pays sooner; and what others are in the pack changes no bit of a member."""


@dataclass(frozen=True)
class Words:
    """Inputs of a recurrence as words: sequences one after another, or time first."""

    tokens: Int[Tensor, "*N"]
    table: Float[Tensor, "*P V E"]

    def repeated(self, count: int) -> "Words":
        """The same sequences again and again."""
        return Words(self.tokens.repeat(count, 1), self.table)

    def vectors(self) -> Float[Tensor, "*N E"]:
        """The vector at each position, without members."""
        return nn.functional.embedding(self.tokens, self.table)


class ByWord(StepInputs):
    """Words (T, *P, B) of a table (*P, V, E)."""

    def __init__(self, tokens: Int[Tensor, "T *P B"], table: Float[Tensor, "*P V E"]) -> None:
        self.shape = tokens.shape
        self.in_step = in_step(table, (tokens.shape[-1], table.shape[-1]), LARGE)
        self._tokens, self._table, self._alone = tokens, table, tokens.dim() == 2
        self._words = self._array(tokens, 1)
        self._sums: list[tuple[Steps, Tensor, Tensor]] = []
        self._shares: list[Callable[[int, int], None]] = []

    def _products(
        self, weight: Tensor, bias: Tensor | None, out: Tensor
    ) -> Iterator[Float[Tensor, "*P B G"]]:
        from lmzoo.functional.kernels import words as kernels

        rows = self._table @ weight
        if bias is not None:
            rows += bias.unsqueeze(-2)
        scores, there = self._array(rows, 0), self._array(out, 1)

        def fill(steps: slice) -> None:
            if not kernels.look_up(scores, self._words[steps], there[steps]):
                last, least, most = rows.shape[-2] - 1, self._words.min(), self._words.max()
                raise IndexError(f"a word is not in 0..{last}: {least}..{most}")

        if not self.in_step:
            fill(slice(None))
            return iter(out.unbind(0))
        return self._filled(out, fill)

    @staticmethod
    def _filled(
        out: Float[Tensor, "T *P B G"], fill: Callable[[slice], None]
    ) -> Iterator[Float[Tensor, "*P B G"]]:
        for t, out_t in enumerate(out.unbind(0)):
            fill(slice(t, t + 1))
            yield out_t

    def of_weight(self, weight: Float[Tensor, "*P E G"], d: Steps) -> Sum:
        from lmzoo.functional.kernels import words as kernels

        total = weight.new_zeros(*self._table.shape[:-1], weight.shape[-1])
        share, sums = self._array(d.every, 1), self._array(total, 0)
        self._shares.append(lambda t, end: kernels.add_up(share, self._words[t:end], sums))
        self._sums.append((d, total, transposed(weight)))
        return Afterwards(lambda: self._table.mT @ total)

    def of_bias(self, d: Steps) -> Sum:
        for one, total, _ in self._sums:
            if one is d:
                return Afterwards(partial(total.sum, -2))
        return super().of_bias(d)

    def paths(self) -> Paths:
        return OfWords(self._tokens, self._table)

    def spend(self, t: int) -> None:
        if self.in_step:
            for share in self._shares:
                share(t, t + 1)

    def found(self) -> Float[Tensor, "*P V E"]:
        if not self.in_step:
            for share in self._shares:
                share(0, len(self._words))
        self._shares.clear()  # they hold this, and it them
        found = self._table.new_zeros(self._table.shape)
        for _, total, weight in self._sums:
            found += total @ weight
        return found

    def _array(self, x: Tensor, axis: int) -> Any:
        """As the loops take it, where it is: with members at their axis."""
        assert x.is_contiguous()
        return arrays(x.unsqueeze(axis) if self._alone else x)[0]
