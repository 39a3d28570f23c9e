r"""A recurrent encoder that reads a sequence from its end to its beginning.

    h_enc = output of the cell after x_{n-1}, x_{n-2}, .., x_0

Each sequence is reversed within its own length, so that pads come last and do not affect the
output after n steps. (The published code reverses the padded sequence and reads pads first.) The
output is the state h, except for an MGRU with `output=centred` (h − ½).

Reversal: Sutskever, Vinyals & Le 2014 (arXiv:1409.3215). Source: S0 (DLM50-54).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.cells.base import Cell
from lmzoo.types import Lengths


def reversed_order(lengths: Lengths, count: int) -> Int[Tensor, "B {count}"]:
    """Return the positions n−1, .., 0, followed by those of the pads; its own inverse."""
    t = torch.arange(count, device=lengths.device)
    return torch.where(t < lengths[:, None], lengths[:, None] - 1 - t, t)


def read_reversed(
    cell: Cell, x: Float[Tensor, "B t E"], lengths: Lengths, start: Float[Tensor, "B S"]
) -> Float[Tensor, "B E"]:
    """Return the cell's output after reading each sequence from its last vector to its first."""
    order = reversed_order(lengths, x.shape[1])[..., None].expand_as(x)
    h = cell.scan(x.gather(1, order), start)
    last = (lengths - 1).clamp_min(0)[:, None, None].expand(-1, 1, h.shape[2])
    return h.gather(1, last)[:, 0]
