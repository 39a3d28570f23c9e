r"""Reading a source with a recurrent cell, from its first token or from its last.

    h_i, s_i = cell(x_i, s_{i-1})        i = 1..n, s_0 a state of ones
    last = h_n, s_n                      of each source's own n: pads move nothing

Both ways at once is forward ⊕ reversed backward: h_i = [h→_i ; h←_i], where h← has read
x_n, .., x_i.

Schuster & Paliwal 1997; S3, S4; zoo.md 4.3, 4.4.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.blocks.encoder import reversal
from lmzoo.cells.base import Cell, State
from lmzoo.types import Lengths


def read(
    cell: Cell, x: Float[Tensor, "B S E"], lengths: Lengths
) -> tuple[Float[Tensor, "B S H"], State]:
    """The outputs at all positions, those at pads meaningless, and each source's final state."""
    state = cell.initial(x.new_ones(len(x), cell.parts * cell.width))
    outputs = []
    for i, projected in enumerate(cell.project(x).unbind(1)):
        h, moved = cell.step(projected, state)
        real = (i < lengths)[:, None]
        state = tuple(torch.where(real, new, old) for new, old in zip(moved, state, strict=True))
        outputs.append(h)
    return torch.stack(outputs, dim=1), state


def read_backward(
    cell: Cell, x: Float[Tensor, "B S E"], lengths: Lengths
) -> tuple[Float[Tensor, "B S H"], State]:
    """The same from the last token to the first; outputs stand where their tokens do."""
    order = reversal(lengths, x.shape[1])[..., None].expand_as(x)
    outputs, state = read(cell, x.gather(1, order), lengths)
    return outputs.gather(1, order), state


def at_last(outputs: Float[Tensor, "B S H"], lengths: Lengths) -> Float[Tensor, "B H"]:
    """h_n of each source."""
    return outputs[torch.arange(len(outputs), device=outputs.device), lengths - 1]
