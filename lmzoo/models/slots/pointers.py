r"""Pointers: for each target token, a distribution over the tokens before it.

Source j = 0..S-1 is token s_j. Row t-1 of a pointer belongs to target s_t and is nonzero for
j < t only: the lower triangle with its diagonal.

    lag      p(j | t) = softmax_{j<t}( Λ[t, j] + score_j )
    chained  p_n(j | t) = Σ_{i<t} p_{n-1}(i | t) · softmax_{j<t}( score_n[i, j] )

The softmax of a chained pointer has one normaliser per (i, t), so a direct computation takes an
S x S matrix per target: O(T³) memory per sequence. `chained_pointers` processes targets in blocks
instead. All targets of a block see the tokens before the block, so that

    softmax_{j<t} = share · softmax_{before block} + (1 − share) · softmax_{in block, j<t}
    share         = σ(LSE_before − LSE_in)

and only the tokens within the block take a matrix per target.

Source: S0 (DLM30, DLM31).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.functional.semiring import SUM, chain

BLOCK = 8
"""Number of targets per block."""


def earlier(sources: int, device: torch.device) -> Bool[Tensor, "S S"]:
    """Return the mask [target, source] that is True where source j < target t."""
    return torch.ones(sources, sources, dtype=torch.bool, device=device).tril()


def lag_pointer(
    lags: Float[Tensor, "*N S S"], scores: Float[Tensor, "*B S"]
) -> Float[Tensor, "*B S S"]:
    """Return p(j | t) = softmax_{j<t}( lags[t, j] + scores[j] ); the last axis is the source."""
    visible = earlier(scores.shape[-1], scores.device)
    return (lags + scores[..., None, :]).masked_fill(~visible, -torch.inf).softmax(-1)


def unused_lags(sources: int) -> int:
    """Return how many of S x S lag logits have no effect: j ≥ t, and the only source of t = 1."""
    return sources**2 - (sources * (sources + 1) // 2 - 1)


def chained_pointers(
    first: Float[Tensor, "B S S"], scores: Float[Tensor, "N B S S"]
) -> Float[Tensor, "B M S S"]:
    """Return the first pointer and the N pointers that follow it, N + 1 = M in all.

    Args:
        first: p_1(j | t), indexed [target, source].
        scores: One matrix per move, indexed [from, to].
    """
    sources = first.shape[-1]
    blocks = []
    for low in range(0, sources, BLOCK):
        high = min(low + BLOCK, sources)
        pointers = [first[:, low:high, :high]]
        for score in scores:
            pointers.append(_chain_step(pointers[-1], score[:, :high, :high], low))
        blocks.append(nn.functional.pad(torch.stack(pointers, dim=1), (0, sources - high)))
    return torch.cat(blocks, dim=2)


def _chain_step(
    pointer: Float[Tensor, "B b S"], score: Float[Tensor, "B S S"], low: int
) -> Float[Tensor, "B b S"]:
    """Move the pointers of a block's targets once; the last target sees all S sources."""
    in_block = score[:, :, low:]
    visible = earlier(score.shape[-1], score.device)[low:, None, low:]
    # Subtracting the maximum over what target t sees keeps the sum at least 1. Masking by
    # multiplication avoids exp(−∞), which is about thirty times slower on a CPU.
    peak = in_block.detach().cummax(-1).values.mT[..., None]
    weights = ((in_block[:, None] - peak) * visible).exp() * visible
    total = weights.sum(-1)
    if low == 0:
        return ((pointer / total)[:, :, None] @ weights)[:, :, 0]
    before = torch.logsumexp(score[:, :, :low], dim=-1)
    share = torch.sigmoid(before[:, None] - peak[..., 0] - total.log())
    to_before = (pointer * share) @ score[:, :, :low].softmax(-1)
    to_block = (pointer * (1 - share) / total)[:, :, None] @ weights
    return torch.cat([to_before, to_block[:, :, 0]], dim=-1)


def chained_pointers_reference(
    first: Float[Tensor, "B S S"], scores: Float[Tensor, "N B S S"]
) -> Float[Tensor, "B M S S"]:
    """Compute `chained_pointers` directly, with one matrix per target (for tests)."""
    visible = earlier(first.shape[-1], first.device)
    steps = (s[:, None].masked_fill(~visible[:, None], -torch.inf).softmax(-1) for s in scores)
    return torch.stack(list(chain(first, steps, SUM)), dim=1)
