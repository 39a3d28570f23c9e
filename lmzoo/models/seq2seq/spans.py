r"""Which tokens are hidden, and what then is read and what is said.

    s        <start> a b c d e        masked         b c . e
    source   <start> a X d Y          each span becomes one sentinel, X = V, Y = V + 1, ..
    target   X b c Y e                each span behind its sentinel

Spans come from a chain over positions, so that no position need know the length:

    P(m_1) = p    P(m_t | m_{t-1} = 1) = 1 − 1/μ    P(m_t | m_{t-1} = 0) = p / (μ (1 − p))

Every token is hidden with probability p, spans are geometric of mean μ, and a token stands
between any two. (T5 fixes the number of spans and of hidden tokens by the length instead.)

Raffel et al. 2020 (arXiv:1910.10683), 3.1.4 and 3.3.4; S3; zoo.md 4.3.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lmzoo.contract import PAD
from lmzoo.types import Lengths, Mask, Tokens

Ids = Int[Tensor, "B N"]
"""Token ids, and sentinels from V upwards."""


def spans(u: Float[Tensor, "*N t"], density: float, mean: float) -> Bool[Tensor, "*N t"]:
    """m of positions 1..t from their uniform numbers."""
    first = u[..., 0] < density
    return torch.stack([first, *_onward(first, u[..., 1:], density, mean)], dim=-1)


def spans_around(
    at: int, u: Float[Tensor, "*N t"], density: float, mean: float
) -> Bool[Tensor, "*N t"]:
    """m of positions 1..t where that of the number u[at] is hidden.

    A chain of two states reads the same backwards: both ways it goes on by the same numbers.
    """
    here = torch.ones_like(u[..., at], dtype=torch.bool)
    before = _onward(here, u[..., :at].flip(-1), density, mean)
    after = _onward(here, u[..., at + 1 :], density, mean)
    return torch.stack([*reversed(before), here, *after], dim=-1)


def _onward(
    masked: Bool[Tensor, "*N"], u: Float[Tensor, "*N k"], density: float, mean: float
) -> list[Bool[Tensor, "*N"]]:
    """What follows `masked` in the chain."""
    begin, go_on = density / (mean * (1 - density)), 1 - 1 / mean
    found = []
    for now in u.unbind(-1):
        masked = now < torch.where(masked, go_on, begin)
        found.append(masked)
    return found


def firsts(masked: Mask) -> Mask:
    """Where a span begins."""
    return masked & ~nn.functional.pad(masked, (1, 0))[:, :-1]


def corrupt(tokens: Tokens, lengths: Lengths, masked: Mask, vocab: int) -> tuple[Ids, Lengths]:
    """What is read, pads last, and how long it is."""
    first = firsts(masked)
    t = torch.arange(tokens.shape[1], device=tokens.device)
    kept = (first | ~masked) & (t < lengths[:, None])
    ids = torch.where(first, vocab + first.cumsum(1) - 1, tokens)
    return _placed(ids, kept, kept.cumsum(1) - 1, tokens.shape[1]), kept.sum(1)


def hidden(tokens: Tokens, masked: Mask, vocab: int) -> tuple[Ids, Int[Tensor, "B T"]]:
    """What is said, pads last, and at which place each hidden token is said there."""
    first = firsts(masked)
    place = (masked.long() + first.long()).cumsum(1) - 1
    count = max(2, int(place.max()) + 1)
    said = _placed(tokens, masked, place, count)
    sentinels = _placed(vocab + first.cumsum(1) - 1, first, place - 1, count)
    return said + sentinels, place


def _placed(ids: Ids, chosen: Mask, place: Int[Tensor, "B T"], count: int) -> Int[Tensor, "B n"]:
    """The chosen ids at their places among `count`, pads elsewhere."""
    out = ids.new_full((len(ids), count + 1), PAD)
    return out.scatter(1, torch.where(chosen, place, count), ids)[:, :count]
