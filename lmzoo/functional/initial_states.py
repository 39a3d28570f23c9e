r"""Mixing whole sequences over learned initial states.

    log P(s_{1:T})     = LSE_i[ log ω_i + Σ_t L_{i,t} ],   L_{i,t} = log P(s_t | s_<t, h_0 = w_i)
    log P(s_t | s_<t)  = LSE_i[ log P(i | s_<t) + L_{i,t} ]
    log P(i | s_<t)    = log ω_i + Σ_{u<t} L_{i,u} − normaliser

The second line is the first one's increment, and sums to one over s_t by construction.
S0 "RNN-level mixture"; zoo.md 2.1.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def start_posterior(
    log_weights: Float[Tensor, "W"], scores: Float[Tensor, "W B T"]
) -> Float[Tensor, "W B T"]:
    """Log P(i | s_<t) before each scored token, from scores L of the tokens themselves."""
    # Shifted, not cumsum − scores: that would leave the token's own score in the rounding.
    before = torch.nn.functional.pad(scores, (1, 0))[..., :-1].cumsum(-1)
    return torch.log_softmax(log_weights[:, None, None] + before, dim=0)


def mix_starts(
    log_weights: Float[Tensor, "W"], scores: Float[Tensor, "W B T"]
) -> Float[Tensor, "B T"]:
    """Log P(s_t | s_<t) from the scores under each initial state."""
    return torch.logsumexp(start_posterior(log_weights, scores) + scores, dim=0)


def mix_next(
    log_weights: Float[Tensor, "W"],
    evidence: Float[Tensor, "B W"],
    told: Float[Tensor, "B W V"],
    token: Int[Tensor, "B"],
    dense: Float[Tensor, "B W V"],
) -> tuple[Float[Tensor, "B V"], Float[Tensor, "B W"]]:
    """(log P(v | s_<=t), Σ_{u<=t} L_{i,u}) of one more token s_t.

    `told` and `dense` are what each state says of the tokens t and t+1, before they are known.
    """
    index = token[:, None, None].expand(-1, told.shape[1], -1)
    evidence = evidence + told.gather(-1, index)[..., 0]
    weights = torch.log_softmax(log_weights + evidence, dim=-1)
    return torch.logsumexp(weights[..., None] + dense, dim=1), evidence
