r"""What compiled sweeps read of their inputs, gate by gate, and where they put its gradients.

    a_t = x_t W + b  |  rows[w_t],  rows = table W + b

Of vectors the loops (`kernels/paths.py`) find every gradient. Of words they add up
S_v = Σ_{w_tb = v} d_tb, and what is left is ∂L/∂W = tableᵀ S, ∂L/∂b = Σ_v S_v and
∂L/∂table = Σ S Wᵀ. Where a batch has more positions than the vocabulary has words, these are
fewer products than those of all positions. Derived here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Size, Tensor

from lmzoo.kernels import dispatch as processor

Pair = tuple[Tensor | None, Tensor | None]
"""A weight's and a bias's; None where there is none."""


class Paths(ABC):
    """From the inputs to every gate, and back."""

    def __init__(self, numbers: Tensor, shape: Size) -> None:
        """Of a tensor that has the inputs' type of numbers, and (T, *P, B)."""
        self.shape, self._alone = shape, len(shape) == 2
        self._type = numbers.new_empty(0).numpy().dtype

    @abstractmethod
    def into(self, weight: Float[Tensor, "*P E G"] | None, bias: Tensor | None) -> Any:
        """What the loops read for a gate (`kernels.paths.Into`), with either missing."""

    @abstractmethod
    def back(
        self, weight: Float[Tensor, "*P E G"] | None, bias: Tensor | None
    ) -> tuple[Any, Callable[[], Pair]]:
        """What they add its gradients to (`kernels.paths.Back`), and these, once they have."""

    @abstractmethod
    def found(self) -> Tensor:
        """The gradient of the inputs, when the loops are done."""

    def strange(self) -> IndexError:
        """Why they stopped on their way: a word has no row. Vectors stop none."""
        raise NotImplementedError

    def arrays(self, *tensors: Float[Tensor, "*P _ _"] | None) -> list[Any]:
        """As loops take them, members first; of None one without numbers, as of a weight.

        They can be written to if the tensor has C order.
        """
        none = np.empty((0, 0, 0), self._type)
        return [none if one is None else self._array(one, 0) for one in tensors]

    def steps(self, *tensors: Float[Tensor, "T *P B _"]) -> list[Any]:
        """The same of what has steps."""
        return [self._array(one, 1) for one in tensors]

    def _array(self, x: Tensor, axis: int) -> Any:
        return processor.as_arrays(x.unsqueeze(axis) if self._alone else x)[0]

    def _made(self, kind: Any, **given: Any) -> Any:
        """What loops read or add to, a `NamedTuple` of arrays; what is None has no numbers."""
        from lmzoo.kernels.cpu.projection import AXES

        for name in kind._fields:
            axes = AXES.get(name.removeprefix("of_"))
            if isinstance(given.get(name), Tensor):
                given[name] = self._array(given[name], 0)
            elif axes and given.get(name) is None:
                given[name] = np.empty((0,) * axes, np.int64 if name == "words" else self._type)
        return kind(**given)


def paths(first: Tensor, *table: Tensor) -> Paths:
    """Of vectors (T, *P, B, E), laid out; or of words (T, *P, B) and their table."""
    return OfWords(first, *table) if table else OfVectors(first)


class OfWords(Paths):
    """Words (T, *P, B) and their table (*P, V, E)."""

    def __init__(self, words: Int[Tensor, "T *P B"], table: Float[Tensor, "*P V E"]) -> None:
        super().__init__(table, words.shape)
        self._table, self._words = table, self._array(words, 1)
        self._sums: list[tuple[Tensor, Tensor]] = []

    def into(self, weight: Tensor | None, bias: Tensor | None) -> Any:
        from lmzoo.kernels.cpu.projection import InputProjection

        if weight is None:
            return self._made(InputProjection, words=self._words, bias=bias)
        rows = self._table @ weight
        if bias is not None:
            rows += bias.unsqueeze(-2)
        return self._made(InputProjection, words=self._words, rows=rows)

    def back(self, weight: Tensor | None, bias: Tensor | None) -> tuple[Any, Callable[[], Pair]]:
        from lmzoo.kernels.cpu.projection import ProjectionGradient

        if weight is None:
            of_bias = zeros_like(bias)
            return self._made(ProjectionGradient, words=self._words, of_bias=of_bias), lambda: (
                None,
                of_bias,
            )
        table, sums = self._table, weight.new_zeros(*self._table.shape[:-1], weight.shape[-1])
        self._sums.append((sums, weight))
        into = self._made(ProjectionGradient, words=self._words, sums=sums)
        return into, lambda: (table.mT @ sums, None if bias is None else sums.sum(-2))

    def found(self) -> Float[Tensor, "*P V E"]:
        found = self._table.new_zeros(self._table.shape)
        for sums, weight in self._sums:
            found += sums @ weight.mT
        return found

    def strange(self) -> IndexError:
        last, least, most = self._table.shape[-2] - 1, self._words.min(), self._words.max()
        return IndexError(f"a word is not in 0..{last}: {least}..{most}")


class OfVectors(Paths):
    """Vectors x (T, *P, B, E), laid out in this order."""

    def __init__(self, x: Float[Tensor, "T *P B E"]) -> None:
        super().__init__(x, x.shape[:-1])
        self._x, self._vectors = x, self._array(x, 1)
        self._of_x: Tensor | None = None

    def into(self, weight: Tensor | None, bias: Tensor | None) -> Any:
        from lmzoo.kernels.cpu.projection import InputProjection

        return self._made(InputProjection, x=self._vectors, weight=weight, bias=bias)

    def back(self, weight: Tensor | None, bias: Tensor | None) -> tuple[Any, Callable[[], Pair]]:
        from lmzoo.kernels.cpu.projection import ProjectionGradient

        of_weight, of_bias = zeros_like(weight), zeros_like(bias)
        given = {"weight": weight, "of_weight": of_weight, "of_bias": of_bias}
        if weight is not None:
            given |= self._room()
        into = self._made(ProjectionGradient, x=self._vectors, **given)
        return into, lambda: (of_weight, of_bias)

    def found(self) -> Float[Tensor, "T *P B E"]:
        return self._x.new_zeros(self._x.shape) if self._of_x is None else self._of_x

    def _room(self) -> dict[str, Any]:
        """Where ∂L/∂x goes, sequence by sequence: as inputs are given, or who asks copies it so."""
        first = self._of_x is None
        if self._of_x is None:
            lengthwise = self._x.movedim(0, -2)
            self._of_x = lengthwise.new_empty(lengthwise.shape).movedim(-2, 0)
        of_x = self._of_x.unsqueeze(1) if self._alone else self._of_x
        return {"of_x": of_x.detach().numpy(), "first": first}


def zeros_like(tensor: Tensor | None) -> Tensor | None:
    """Zeros in C order, or None."""
    return None if tensor is None else tensor.new_zeros(tensor.shape)
