r"""Spans of hidden tokens, and the source and target sequences of span corruption.

    s        <start> a b c d e        masked         b c . e
    source   <start> a X d Y          each span becomes one sentinel, X = V, Y = V + 1, ..
    target   X b c Y e                each span after its sentinel

The spans are drawn by a two-state Markov chain over positions, which needs no sequence length:

    P(m_1) = p    P(m_t | m_{t-1} = 1) = 1 − 1/μ    P(m_t | m_{t-1} = 0) = p / (μ (1 − p))

Every token is hidden with probability p, span lengths are geometric with mean μ, and at least one
visible token separates two spans. (T5 fixes the number of spans and of hidden tokens instead.)

Source: Raffel et al. 2020 (arXiv:1910.10683), 3.1.4 and 3.3.4; S3.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lmzoo.blocks.unique import needs_fixed_shapes
from lmzoo.contract import PAD
from lmzoo.types import Lengths, Mask, Tokens

Ids = Int[Tensor, "B N"]
"""Token ids, and sentinels from V upwards."""


def sample_spans(u: Float[Tensor, "*N t"], density: float, mean: float) -> Bool[Tensor, "*N t"]:
    """Return m of positions 1..t, drawn with the uniform numbers u."""
    first = u[..., 0] < density
    return torch.stack([first, *_continue_chain(first, u[..., 1:], density, mean)], dim=-1)


def sample_spans_around(
    at: int, u: Float[Tensor, "*N t"], density: float, mean: float
) -> Bool[Tensor, "*N t"]:
    """Return m of positions 1..t, drawn given that position `at` + 1 is hidden.

    A two-state chain is reversible, so it continues to the left with the same probabilities.
    """
    hidden = torch.ones_like(u[..., at], dtype=torch.bool)
    before = _continue_chain(hidden, u[..., :at].flip(-1), density, mean)
    after = _continue_chain(hidden, u[..., at + 1 :], density, mean)
    return torch.stack([*reversed(before), hidden, *after], dim=-1)


def _continue_chain(
    masked: Bool[Tensor, "*N"], u: Float[Tensor, "*N k"], density: float, mean: float
) -> list[Bool[Tensor, "*N"]]:
    """Return the k states of the chain after the state `masked`."""
    p_begin, p_stay = density / (mean * (1 - density)), 1 - 1 / mean
    states = []
    for draw in u.unbind(-1):
        masked = draw < torch.where(masked, p_stay, p_begin)
        states.append(masked)
    return states


def span_starts(masked: Mask) -> Mask:
    """Return the mask of the first token of each span."""
    return masked & ~nn.functional.pad(masked, (1, 0))[:, :-1]


def corrupt(tokens: Tokens, lengths: Lengths, masked: Mask, vocab: int) -> tuple[Ids, Lengths]:
    """Return the source sequence, pads last, and its lengths."""
    first = span_starts(masked)
    t = torch.arange(tokens.shape[1], device=tokens.device)
    kept = (first | ~masked) & (t < lengths[:, None])
    ids = torch.where(first, vocab + first.cumsum(1) - 1, tokens)
    return _scatter(ids, kept, kept.cumsum(1) - 1, tokens.shape[1]), kept.sum(1)


def span_targets(tokens: Tokens, masked: Mask, vocab: int) -> tuple[Ids, Int[Tensor, "B T"]]:
    """Return the target sequence, pads last, and the position of each hidden token in it."""
    first = span_starts(masked)
    position = (masked.long() + first.long()).cumsum(1) - 1
    most = tokens.shape[1] + tokens.shape[1] // 2  # all hidden, or every second
    count = most if needs_fixed_shapes(tokens) else max(2, int(position.max()) + 1)
    spans = _scatter(tokens, masked, position, count)
    sentinels = _scatter(vocab + first.cumsum(1) - 1, first, position - 1, count)
    return spans + sentinels, position


def _scatter(
    ids: Ids, chosen: Mask, position: Int[Tensor, "B T"], count: int
) -> Int[Tensor, "B n"]:
    """Return sequences of `count` ids: the chosen ids at their positions, pads elsewhere."""
    out = ids.new_full((len(ids), count + 1), PAD)
    return out.scatter(1, torch.where(chosen, position, count), ids)[:, :count]
