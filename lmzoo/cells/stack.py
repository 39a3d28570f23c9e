"""Cells stacked on one another, moved on by one token, from W initial states at once.

    h⁰ = x_t,   h^l = cell^l(h^{l-1}, state^l)

What a stack carries is a tuple with the state of each cell, its tensors (B, W, ..): every
one begins with the sequence, so that a beam can pick its rows.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from lmzoo.cells.base import Cell, State

Stack = tuple[State, ...]


def begin(cells: Sequence[Cell], start: Float[Tensor, "B W S"]) -> Stack:
    """The states that `start` stands for: the starts of all cells, concatenated."""
    count = start.shape[1]
    parts = start.flatten(0, 1).chunk(len(cells), dim=-1)
    return tuple(_apart(cell.initial(part), count) for cell, part in zip(cells, parts, strict=True))


def advance(
    cells: Sequence[Cell], x: Float[Tensor, "B E"], stack: Stack
) -> tuple[Float[Tensor, "B W H"], Stack]:
    """One time step of every cell: (outputs of the uppermost, next states)."""
    count = stack[0][0].shape[1]
    h, after = x[:, None].expand(-1, count, -1).flatten(0, 1), []
    for cell, state in zip(cells, stack, strict=True):
        h, state = cell.advance(h, tuple(part.flatten(0, 1) for part in state))
        after.append(_apart(state, count))
    return h.unflatten(0, (-1, count)), tuple(after)


def _apart(state: State, count: int) -> State:
    """Each tensor's (B W, ..) as (B, W, ..)."""
    return tuple(part.unflatten(0, (-1, count)) for part in state)
