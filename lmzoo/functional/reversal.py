r"""Where a reader from the right finds what it reads, in sequences of several lengths.

    <start>, s_{n-1}, .., s_2, s_1                          pads stay last
    <start>, s_{n-2}, .., s_1, s_{n-1}        `ends`: the last token is read last

Where a stop is a token, `<end>`, that token comes last in both directions. Read first it
would say nothing and nothing would be paid for where the sequence stops: each length would
have a mass of one. Read last, whatever it is, it maps the sequences that end, and those cut
at length T, one to one onto themselves, so that any model's probabilities of all of them sum
to one as they do from left to right.

zoo.md 4.3, 4.4.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from lmzoo.types import Lengths


def reversed_positions(lengths: Lengths, count: int, *, ends: bool) -> Int[Tensor, "B {count}"]:
    """The position to read at each of `count` steps; its own inverse."""
    t = torch.arange(count, device=lengths.device)
    last = lengths[:, None] - int(ends)
    return torch.where((t >= 1) & (t < last), last - t, t)
