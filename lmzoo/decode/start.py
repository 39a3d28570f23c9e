"""Starting, selecting and ending sequences: what all decoders share.

A sequence begins with `<start>`. It ends with `<end>`, at length T, or with a pad in corpora
without an end token.
"""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.utils._pytree import tree_map_only

from lmzoo.contract import END, PAD, START, DecodingState, LanguageModel
from lmzoo.types import NextScores, Prefix, StepTokens


def start_decoding(
    model: LanguageModel,
    batch: int,
    prefix: Sequence[int],
    sources: tuple[Tensor, ...],
    state: DecodingState | None = None,
) -> tuple[Prefix, NextScores, DecodingState]:
    """Read `<start>` and the prefix, from a given state or from that of `model.begin`.

    Returns:
        The tokens read, the log-probabilities of the next token, and the decoding state.
    """
    owned = next(itertools.chain(model.parameters(), model.buffers()), None)
    device = None if owned is None else owned.device
    tokens = torch.tensor([[START, *prefix]], device=device).repeat(batch, 1)
    state = model.begin(batch, *sources) if state is None else state
    for token in tokens[:, :-1].unbind(1):
        _, state = model.advance(state, token)
    scores, state = model.advance(state, tokens[:, -1])
    return tokens, scores, state


def select_rows(state: DecodingState, rows: StepTokens) -> DecodingState:
    """Return the decoding state of these sequences, in this order; indices may repeat."""
    return tree_map_only(Tensor, lambda part: part[rows], state)


def is_end(token: Int[Tensor, "*N"]) -> Bool[Tensor, "*N"]:
    """Return True where the token ends its sequence."""
    return (token == END) | (token == PAD)
