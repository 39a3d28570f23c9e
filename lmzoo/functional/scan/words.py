r"""Inputs that are words: the vector at a position is a row of a table.

    a_t = (table W + b)[w_t]
    S_v = Σ_{t,b : w_tb = v} d_tb
    ∂L/∂W = tableᵀ S      ∂L/∂b = Σ_v S_v      ∂L/∂table = Σ_a S Wᵀ

Where a batch has more positions than the vocabulary has words, these are fewer products
each way than those of all positions, no vector is copied to where it stands, and biases cost
nothing. Looking up and adding up are compiled (`kernels/words.py`). Derived here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from jaxtyping import Float, Int
from torch import Tensor, nn

from lmzoo.functional.processor import arrays
from lmzoo.functional.scan.inputs import Inputs
from lmzoo.functional.scan.products import in_step, transposed
from lmzoo.functional.scan.sums import Afterwards, Steps, Sum


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


class ByWord(Inputs):
    """Words (T, *P, B) of a table (*P, V, E)."""

    def __init__(self, tokens: Int[Tensor, "T *P B"], table: Float[Tensor, "*P V E"]) -> None:
        self.shape = tokens.shape
        self.in_step = in_step(table, (*tokens.shape[1:], table.shape[-1]))
        self._tokens, self._table = tokens if tokens.dim() > 2 else tokens[:, None], table
        self._sums: list[tuple[Steps, Tensor, Tensor]] = []

    def _products(
        self, weight: Tensor, bias: Tensor | None, out: Tensor
    ) -> Iterator[Float[Tensor, "*P B G"]]:
        rows = self._table @ weight
        if bias is not None:
            rows += bias.unsqueeze(-2)
        if not self.in_step:
            self._look_up(rows, self._tokens, out)
        for t, out_t in enumerate(out.unbind(0)):
            if self.in_step:
                self._look_up(rows, self._tokens[t : t + 1], out_t[None])
            yield out_t

    def of_weight(self, weight: Float[Tensor, "*P E G"], d: Steps) -> Sum:
        total = weight.new_zeros(*self._table.shape[:-1], weight.shape[-1])
        self._sums.append((d, total, transposed(weight)))
        return Afterwards(lambda: self._table.mT @ total)

    def of_bias(self, d: Steps) -> Sum:
        for one, total, _ in self._sums:
            if one is d:
                return Afterwards(partial(total.sum, -2))
        return super().of_bias(d)

    def spend(self, t: int) -> None:
        if self.in_step:
            for d, total, _ in self._sums:
                self._add_up(d.at[t][None], self._tokens[t : t + 1], total)

    def found(self) -> Float[Tensor, "*P V E"]:
        found = self._table.new_zeros(self._table.shape)
        for d, total, weight in self._sums:
            if not self.in_step:
                self._add_up(d.every, self._tokens, total)
            found += total @ weight
        return found

    def _look_up(self, rows: Tensor, tokens: Tensor, out: Tensor) -> None:
        from lmzoo.functional.kernels import words as kernels

        assert out.is_contiguous()
        if not kernels.look_up(*arrays(_of_members(rows, 2), tokens, _of_members(out, 3))):
            last, least, most = rows.shape[-2] - 1, tokens.min(), tokens.max()
            raise IndexError(f"a word is not in 0..{last}: {least}..{most}")

    def _add_up(self, d: Tensor, tokens: Tensor, total: Tensor) -> None:
        from lmzoo.functional.kernels import words as kernels

        kernels.add_up(*arrays(_of_members(d, 3), tokens, _of_members(total, 2)))


def _of_members(x: Tensor, without: int) -> Tensor:
    """With an axis of members before the last two."""
    return x.unsqueeze(-3) if x.dim() == without else x
