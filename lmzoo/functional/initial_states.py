r"""A mixture over W learned initial states, per sequence.

    log P(s_{1:T})     = LSE_i[ log ω_i + Σ_t L_{i,t} ],   L_{i,t} = log P(s_t | s_<t, h_0 = w_i)
    log P(s_t | s_<t)  = LSE_i[ log P(i | s_<t) + L_{i,t} ]
    log P(i | s_<t)    = log ω_i + Σ_{u<t} L_{i,u} − normaliser

The second line is the increment of the first, and sums to one over s_t.

Source: S0, "RNN-level mixture".
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.types import NextScores, TokenScores


def start_posterior(
    log_weights: Float[Tensor, "W"], scores: Float[Tensor, "W B T"]
) -> Float[Tensor, "W B T"]:
    """Return log P(i | s_<t) at each token, from the tokens' scores L."""
    # Not cumsum − scores: rounding would leave a trace of the token's own score.
    earlier = torch.nn.functional.pad(scores, (1, 0))[..., :-1]
    evidence = earlier.cumsum(-1)
    return torch.log_softmax(log_weights[:, None, None] + evidence, dim=0)


def mix_starts(log_weights: Float[Tensor, "W"], scores: Float[Tensor, "W B T"]) -> TokenScores:
    """Return log P(s_t | s_<t) from the scores L under each initial state."""
    weights = start_posterior(log_weights, scores)
    return torch.logsumexp(weights + scores, dim=0)


def mix_next(
    log_weights: Float[Tensor, "W"],
    evidence: Float[Tensor, "B W"],
    scores: Float[Tensor, "B W"],
    next_scores: Float[Tensor, "B W V"],
) -> tuple[NextScores, Float[Tensor, "B W"]]:
    """Advance the mixture by one observed token s_t: the mixed log P(· | s_<=t), and the evidence.

    The evidence is Σ_{u<t} L_{i,u} before and includes s_t after; `scores` are L_{i,t}, and
    `next_scores` log P(· | s_<=t, i).
    """
    evidence = evidence + scores
    weights = torch.log_softmax(log_weights + evidence, dim=-1)
    mixed = torch.logsumexp(weights[..., None] + next_scores, dim=1)
    # Rounding may leave a probability just above 1.
    return mixed.clamp_max(0), evidence
