"""What a recurrent language model keeps between two tokens, and between two blocks of a text."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.cells import stack
from lmzoo.cells.base import State
from lmzoo.functional.initial_states import mix_starts
from lmzoo.functional.normalise import Norm, RunningMoments, normalise_next


class RecurrentState(NamedTuple):
    """Decoding state after some tokens. L_{i,t} is log P(s_t | s_<t, h_0 = w_i)."""

    layers: stack.Stack
    input_stats: RunningMoments | None
    """Running mean and variance of the inputs (norm=time_std_causal only)."""
    evidence: Float[Tensor, "B W"] | None
    """Σ_{u<t} L_{i,u}, up to a constant (several initial states only)."""
    outputs: Float[Tensor, "B W E"] | None
    """N(h) from each initial state, from which L_{i,t} of the next token is computed."""


class BlockState(NamedTuple):
    """State between two blocks of B parallel texts; detached, except before the first."""

    layers: tuple[State, ...]
    """The state of each cell; the rows are the W initial states of B texts, (W · B, ..)."""
    input_stats: RunningMoments | None
    evidence: Float[Tensor, "W B"]
    """Σ_{u<t} L_{i,u}, less the largest of the W values."""


def normalise_block(
    x: Float[Tensor, "B T E"], moments: RunningMoments | None
) -> tuple[Float[Tensor, "B T E"], RunningMoments | None]:
    """Normalise a block over time, causally: (normalised vectors, detached moments)."""
    outputs = []
    for vector in x.unbind(1):
        y, moments = normalise_next(vector, Norm.TIME_STD_CAUSAL, moments)
        outputs.append(y)
    if moments is not None:
        moments = moments[0], moments[1].detach(), moments[2].detach()
    return torch.stack(outputs, dim=1), moments


def mix_block(
    log_weights: Float[Tensor, "W"], scores: Float[Tensor, "W B T"], evidence: Float[Tensor, "W B"]
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "W B"]]:
    """Mix the scores of a block over the initial states: (log P(s_t | s_<t), new evidence).

    The evidence of earlier blocks counts as the score of one more token before the block.
    """
    mixed = mix_starts(log_weights, torch.cat([evidence[..., None], scores], dim=-1))[:, 1:]
    evidence = (evidence + scores.sum(-1)).detach()
    return mixed, evidence - evidence.amax(0)
