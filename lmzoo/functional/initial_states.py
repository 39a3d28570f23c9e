r"""A mixture over W learned initial states, per sequence.

    log P(s_{1:T})     = LSE_i[ log ω_i + Σ_t L_{i,t} ],   L_{i,t} = log P(s_t | s_<t, h_0 = w_i)
    log P(s_t | s_<t)  = LSE_i[ log P(i | s_<t) + L_{i,t} ]
    log P(i | s_<t)    = log ω_i + Σ_{u<t} L_{i,u} − normaliser

The second line is the increment of the first, and sums to one over s_t.

Source: S0, "RNN-level mixture".
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from lmzoo.types import NextScores, TokenScores


def start_posterior(
    log_weights: Float[Tensor, "W"], scores: Float[Tensor, "W B T"]
) -> Float[Tensor, "W B T"]:
    """Return log P(i | s_<t) at each token, from the tokens' scores L."""
    # Not cumsum − scores: rounding would leave a trace of the token's own score.
    padded = pad(scores, (1, 0))
    earlier = padded[..., :-1]
    evidence = earlier.cumsum(-1)
    log_posterior = log_weights[:, None, None] + evidence
    return log_posterior.log_softmax(0)


def mix_starts(
    log_weights: Float[Tensor, "W"],
    scores: Float[Tensor, "W B T"],
) -> TokenScores:
    """Return log P(s_t | s_<t) from the scores L under each initial state."""
    weights = start_posterior(log_weights, scores)
    joint = weights + scores
    return joint.logsumexp(0)


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
    posterior = log_weights + evidence
    weights = posterior.log_softmax(-1)
    joint = weights[..., None] + next_scores
    mixed = joint.logsumexp(1)
    # Rounding may leave a probability just above 1.
    return mixed.clamp_max(0), evidence
