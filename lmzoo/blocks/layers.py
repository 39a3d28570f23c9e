"""Layers of causal attention, moved on by one position: no key is computed twice.

    y_t, cache^l_t = layer^l( y_t^{l-1}, cache^l_{t-1} )

A cache holds the keys and values of positions 0..t, (B, heads, t+1, d) each.
"""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from lmzoo.blocks.attention import Remembered

Layers = tuple[Remembered, ...]


@runtime_checkable
class Layer(Protocol):
    """A block that reads one position after another."""

    def advance(self, x: Tensor, before: Remembered | None) -> tuple[Tensor, Remembered]: ...


def advance_layers(
    layers: Iterable[Layer], x: Float[Tensor, "B 1 E"], before: Layers | None
) -> tuple[Float[Tensor, "B 1 E"], Layers]:
    """The next position through all layers: (its output, their caches)."""
    after: list[Remembered] = []
    for number, layer in enumerate(layers):
        x, remembered = layer.advance(x, None if before is None else before[number])
        after.append(remembered)
    return x, tuple(after)
