"""Steps of a stack of cells, from W initial states at once.

    h⁰ = x_t,   h^l = cell^l(h^{l-1}, state^l)

The state of a stack is a tuple with the state of each cell. Its tensors are (B, W, ..): the batch
is the first axis, so that beam search can select sequences.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from lmzoo.cells.base import Cell, State

Stack = tuple[State, ...]
"""The states of all cells, lowest first."""


def begin(cells: Sequence[Cell], start: Float[Tensor, "B W S"]) -> Stack:
    """Return the initial states; `start` concatenates the initial vectors of all cells."""
    count = start.shape[1]
    sizes = [cell.start_size for cell in cells]
    # A cell knows one batch axis: the W states of a sequence are W rows of it.
    rows = start.flatten(0, 1)
    parts = rows.split(sizes, -1)
    states = [cell.initial_state(part) for cell, part in zip(cells, parts, strict=True)]
    return tuple(_split_states(state, count) for state in states)


def advance(
    cells: Sequence[Cell], x: Float[Tensor, "B E"], stack: Stack
) -> tuple[Float[Tensor, "B W H"], Stack]:
    """Compute one time step of every cell: (outputs of the last cell, next states)."""
    first = stack[0]
    # Every tensor of a state has the axes (B, W).
    count = first[0].shape[1]
    # All W states of a sequence read the same token.
    repeated = x[:, None].expand(-1, count, -1)
    h = repeated.flatten(0, 1)
    next_states = []
    for cell, state in zip(cells, stack, strict=True):
        flat = tuple(part.flatten(0, 1) for part in state)
        h, state = cell.advance(h, flat)
        next_states.append(_split_states(state, count))
    outputs = h.unflatten(0, (-1, count))
    return outputs, tuple(next_states)


def _split_states(state: State, count: int) -> State:
    """Reshape each tensor from (B W, ..) to (B, W, ..)."""
    by_start = (-1, count)
    return tuple(part.unflatten(0, by_start) for part in state)
