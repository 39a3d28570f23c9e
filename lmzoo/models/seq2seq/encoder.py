r"""Recurrent encoding of a padded source, forwards or backwards.

    h_i, s_i = cell(x_i, s_{i-1})        i = 1..n, s_0 a state of ones

n is the length of each source; pads do not change the state. x_i and h_i are (E). A bidirectional
encoder concatenates both directions, h_i = [h→_i ; h←_i], where h←_i has read x_n, .., x_i.

Source: Schuster & Paliwal 1997; S3, S4.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lmzoo.blocks.encoder import reversed_order
from lmzoo.cells.base import Cell, State
from lmzoo.types import Lengths


def encode(
    cell: Cell, x: Float[Tensor, "B S E"], lengths: Lengths
) -> tuple[Float[Tensor, "B S H"], State]:
    """Encode forwards: return the outputs, undefined at pads, and each source's final state."""
    state = cell.initial_state(x.new_ones(len(x), cell.num_state_vectors * cell.width))
    outputs = []
    for i, projected in enumerate(cell.project(x).unbind(1)):
        h, next_state = cell.step(projected, state)
        pairs = zip(next_state, state, strict=True)
        state = tuple(torch.where(_like(i < lengths, new), new, old) for new, old in pairs)
        outputs.append(h)
    return torch.stack(outputs, dim=1), state


def _like(mask: Bool[Tensor, "B"], part: Tensor) -> Tensor:
    """Return the mask with the axes of a tensor of the state; a state may be a matrix."""
    return mask.view(-1, *(1 for _ in part.shape[1:]))


def encode_backward(
    cell: Cell, x: Float[Tensor, "B S E"], lengths: Lengths
) -> tuple[Float[Tensor, "B S H"], State]:
    """Encode from the last token to the first; outputs are at the positions of their tokens."""
    order = reversed_order(lengths, x.shape[1])[..., None].expand_as(x)
    outputs, state = encode(cell, x.gather(1, order), lengths)
    return outputs.gather(1, order), state


def last_output(outputs: Float[Tensor, "B S H"], lengths: Lengths) -> Float[Tensor, "B H"]:
    """Return h_n of each source."""
    return outputs[torch.arange(len(outputs), device=outputs.device), lengths - 1]
