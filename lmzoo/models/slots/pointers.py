r"""Pointers: distributions over the tokens so far.

Sources are numbered j = 0..S-1 and read s_j; row t-1 of a pointer belongs to target s_t,
which may look at j < t: the lower triangle, its diagonal included.

    lag      p(j | t) = softmax_{j<t}( Λ[t, j] + score_j )
    chained  p_n(j | t) = Σ_{i<t} p_{n-1}(i | t) · softmax_{j<t}( score_n[i, j] )

The second sum has a normaliser for every (i, t), so by definition one step is an S x S
matrix for each target, T³ numbers a sequence. Targets are therefore taken in blocks. For
a block, the tokens before it are the same for all its targets, and

    softmax_{j<t} = share · softmax_{before block} + (1 − share) · softmax_{in block, j<t}

where share = σ(LSE_before − LSE_in) is all that differs: nothing can overflow, and only
the few tokens in the block need a matrix for each target.

S0; zoo.md DLM30, 31.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.functional.chain import chain
from lmzoo.functional.semiring import SUM

BLOCK = 8
"""Targets taken together."""


def earlier(sources: int, device: torch.device) -> Bool[Tensor, "S S"]:
    """True where source j < target t."""
    return torch.ones(sources, sources, dtype=torch.bool, device=device).tril()


def lag_pointer(
    lags: Float[Tensor, "*N S S"], scores: Float[Tensor, "*B S"]
) -> Float[Tensor, "*B S S"]:
    """p(j | t), its last axis the source."""
    seen = earlier(scores.shape[-1], scores.device)
    return (lags + scores[..., None, :]).masked_fill(~seen, -torch.inf).softmax(-1)


def chained_pointers(
    first: Float[Tensor, "B S S"], scores: Float[Tensor, "N B S S"]
) -> Float[Tensor, "B M S S"]:
    """p_1 and the N pointers that follow it; scores[n] is indexed [from, to]."""
    sources = first.shape[-1]
    blocks = []
    for low in range(0, sources, BLOCK):
        high = min(low + BLOCK, sources)
        links = [first[:, low:high, :high]]
        for score in scores:
            links.append(_follow(links[-1], score[:, :high, :high], low))
        blocks.append(nn.functional.pad(torch.stack(links, dim=1), (0, sources - high)))
    return torch.cat(blocks, dim=2)


def _follow(
    pointer: Float[Tensor, "B b S"], score: Float[Tensor, "B S S"], low: int
) -> Float[Tensor, "B b S"]:
    """One step of the chain for the block's targets, the last of which sees all S sources."""
    here = score[:, :, low:]
    visible = earlier(score.shape[-1], score.device)[low:, None, low:]
    # Scaled by what target t may see: a sum of zeros and ones at least, and no exp(−∞),
    # which a CPU computes thirty times more slowly than any other.
    peak = here.detach().cummax(-1).values.mT[..., None]
    weights = ((here[:, None] - peak) * visible).exp() * visible
    total = weights.sum(-1)
    if low == 0:
        return ((pointer / total)[:, :, None] @ weights)[:, :, 0]
    before = torch.logsumexp(score[:, :, :low], dim=-1)
    share = torch.sigmoid(before[:, None] - peak[..., 0] - total.log())
    back = (pointer * share) @ score[:, :, :low].softmax(-1)
    near = (pointer * (1 - share) / total)[:, :, None] @ weights
    return torch.cat([back, near[:, :, 0]], dim=-1)


def chained_pointers_by_definition(
    first: Float[Tensor, "B S S"], scores: Float[Tensor, "N B S S"]
) -> Float[Tensor, "B M S S"]:
    """The same as forward sums of a chain, with a matrix for each target."""
    seen = earlier(first.shape[-1], first.device)
    steps = (s[:, None].masked_fill(~seen[:, None], -torch.inf).softmax(-1) for s in scores)
    return torch.stack(list(chain(first, steps, SUM)), dim=1)
