r"""Greedy decoding: always the likeliest next token.

    s_t = argmax_v P(v | s_<t),   until `<end>` or length T

The limit of ancestral sampling at temperature 0, and of beam search at width 1. The
sequence it finds need not be the likeliest one. S3; zoo.md 4.3.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lmzoo.catalogue import technique
from lmzoo.contract import PAD, LanguageModel
from lmzoo.decode.start import ends, read
from lmzoo.types import Tokens

technique(
    "greedy",
    family="decoding",
    document="S3",
    source="S3",
    summary="The likeliest token, again and again (sample --greedy).",
)


@torch.no_grad()
def greedy(
    model: LanguageModel,
    length: int,
    *,
    batch: int = 1,
    prefix: Sequence[int] = (),
    given: tuple[Tensor, ...] = (),
) -> Tokens:
    """`batch` sequences of at most `length` tokens, `<start>` included, padded after `<end>`.

    They differ only in what is `given` to a conditional model, one row for each.
    """
    model.eval()
    tokens, scores, carried = read(model, batch, prefix, given)
    ended = torch.zeros_like(tokens[:, 0], dtype=torch.bool)
    while tokens.shape[1] < length:
        token = scores.argmax(-1).masked_fill(ended, PAD)
        tokens = torch.cat([tokens, token[:, None]], dim=1)
        ended = ended | ends(token)
        if tokens.shape[1] == length or bool(ended.all()):
            break
        scores, carried = model.advance(carried, token)
    return tokens
