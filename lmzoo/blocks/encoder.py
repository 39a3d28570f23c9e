r"""A sequence as one vector: the last output when it is read from its end to its beginning.

    h_enc = output of the cell after x_{n-1}, x_{n-2}, .., x_0

Reversed within each length, so that the pads come last and the output after n steps has
seen none of them (the published code reversed the padded sequence and read them first). The
output is the state h unless the cell says otherwise (an MGRU with output=centred: h − ½).

Sutskever, Vinyals & Le 2014 (arXiv:1409.3215) for reversing; S0 DLM50-54; zoo.md 2.4.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.types import Lengths


@runtime_checkable
class Reader(Protocol):
    """What reads: a recurrent cell."""

    def scan(self, x: Tensor, start: Tensor) -> Tensor: ...


def reversal(lengths: Lengths, count: int) -> Int[Tensor, "B {count}"]:
    """Where to read: n−1, .., 0, then the pads in their places; its own inverse."""
    t = torch.arange(count, device=lengths.device)
    return torch.where(t < lengths[:, None], lengths[:, None] - 1 - t, t)


def read_reversed(
    reader: Reader, x: Float[Tensor, "B t E"], lengths: Lengths, start: Float[Tensor, "B S"]
) -> Float[Tensor, "B E"]:
    """The reader's output after each sequence's first vector, having started at its last."""
    order = reversal(lengths, x.shape[1])[..., None].expand_as(x)
    h = reader.scan(x.gather(1, order), start)
    last = (lengths - 1).clamp_min(0)[:, None, None].expand(-1, 1, h.shape[2])
    return h.gather(1, last)[:, 0]
