"""How every decoder starts, goes on and ends.

A sequence begins with `<start>` and ends with `<end>`, at length T, or with a pad, which
is what a corpus without an end token has behind its sequences.
"""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.utils._pytree import tree_map_only

from lmzoo.contract import END, PAD, START, Carried, LanguageModel
from lmzoo.types import NextScores, Prefix, Step


def read(
    model: LanguageModel, batch: int, prefix: Sequence[int], given: tuple[Tensor, ...]
) -> tuple[Prefix, NextScores, Carried]:
    """`<start>` and the prefix as tokens, the distribution of what follows, what is carried."""
    owned = next(itertools.chain(model.parameters(), model.buffers()), None)
    device = None if owned is None else owned.device
    tokens = torch.tensor([[START, *prefix]], device=device).repeat(batch, 1)
    carried = model.begin(batch, *given)
    for token in tokens[:, :-1].unbind(1):
        _, carried = model.advance(carried, token)
    scores, carried = model.advance(carried, tokens[:, -1])
    return tokens, scores, carried


def pick(carried: Carried, rows: Step) -> Carried:
    """What is carried of these rows, in this order, some perhaps more than once."""
    return tree_map_only(Tensor, lambda part: part[rows], carried)


def ends(token: Int[Tensor, "*N"]) -> Bool[Tensor, "*N"]:
    """Where nothing follows."""
    return (token == END) | (token == PAD)
