r"""Which positions of a sequence a model reads.

    previous_vectors(x)[b, t, j-1] = c_j = x[b, t-j+1]      a constant pad vector where t-j+1 < 0

Row t is the context of the token after position t: the vectors of the last tokens.

    <start>, s_{n-1}, .., s_2, s_1                          reading order from right to left
    <start>, s_{n-2}, .., s_1, s_{n-1}                      the same with `keep_last`

Pads stay last. `keep_last` is for corpora with an `<end>` token: it is last in both directions.
If it were read first, its score would contain nothing about where the sequence stops, and the
sequences of each length would have a total probability of one. Read last, the order is a
permutation of all sequences that end or are cut at length T, so their probabilities sum to one, as
from left to right.
"""

import torch
from jaxtyping import Int, Num
from torch import Tensor

from lmzoo.types import Lengths


def previous_vectors(
    x: Num[Tensor, "B t E"], count: int, *, pad: float = 1.0
) -> Num[Tensor, "B t {count} E"]:
    """Return the last `count` vectors c_1 .. c_count at each position, the nearest first."""
    missing = count - 1
    # Pads in front, so that the first positions have a context of the same size.
    padded = torch.nn.functional.pad(x, (0, 0, missing, 0), value=pad)
    length = x.shape[1]
    shifted = [padded[:, j : j + length] for j in reversed(range(count))]
    return torch.stack(shifted, 2)


def delayed(
    x: Num[Tensor, "B T *N"],
    first: Num[Tensor, "B *N"],
) -> Num[Tensor, "B T *N"]:
    """Return what each step finds of the step before: `first`, x_0, .., x_{T-2}."""
    begin = first[:, None]
    earlier = x[:, :-1]
    return torch.cat([begin, earlier], 1)


def full_lengths(tokens: Int[Tensor, "B t"]) -> Lengths:
    """Return the lengths of sequences without pads."""
    batch, count = tokens.shape
    return torch.full((batch,), count, device=tokens.device)


def reversed_order(lengths: Lengths, count: int) -> Int[Tensor, "B {count}"]:
    """Return the positions n−1, .., 0, followed by those of the pads; its own inverse."""
    t = torch.arange(count, device=lengths.device)
    n = lengths[:, None]
    back = n - 1 - t
    return torch.where(t < n, back, t)


def reversed_positions(
    lengths: Lengths, count: int, *, keep_last: bool
) -> Int[Tensor, "B {count}"]:
    """Return the position to read at each of `count` steps; this permutation is its own inverse."""
    t = torch.arange(count, device=lengths.device)
    n = lengths[:, None]
    last = n - int(keep_last)
    inside = (t >= 1) & (t < last)
    back = last - t
    return torch.where(inside, back, t)
