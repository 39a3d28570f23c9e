r"""Ancestral sampling: one token after another from the model's own conditionals.

    s_t ~ P(· | s_<t)^{1/τ} / Z,   until `<end>` or length T

At τ = 1 the empirical frequencies tend to the model, at τ -> 0 it is greedy decoding. With
`top` only the so many likeliest tokens may be drawn. S3; zoo.md 4.3.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lmzoo.catalogue import technique
from lmzoo.contract import PAD, LanguageModel
from lmzoo.decode.start import ends, read
from lmzoo.types import NextScores, Step, Tokens

technique(
    "ancestral_sampling",
    family="decoding",
    document="S3",
    source="S3; top-k: Fan et al. 2018 (arXiv:1805.04833)",
    summary="Draws from the model, tempered and cut if asked (sample --temperature).",
)


@torch.no_grad()
def ancestral(
    model: LanguageModel,
    count: int,
    length: int,
    *,
    temperature: float = 1.0,
    top: int | None = None,
    prefix: Sequence[int] = (),
    given: tuple[Tensor, ...] = (),
    generator: torch.Generator | None = None,
) -> Tokens:
    """`count` sequences of at most `length` tokens, `<start>` included, padded after `<end>`."""
    model.eval()
    tokens, scores, carried = read(model, count, prefix, given)
    ended = torch.zeros_like(tokens[:, 0], dtype=torch.bool)
    while tokens.shape[1] < length:
        token = draw(scores, temperature, top, generator).masked_fill(ended, PAD)
        tokens = torch.cat([tokens, token[:, None]], dim=1)
        ended = ended | ends(token)
        if tokens.shape[1] == length or bool(ended.all()):
            break
        scores, carried = model.advance(carried, token)
    return tokens


def draw(
    scores: NextScores,
    temperature: float = 1.0,
    top: int | None = None,
    generator: torch.Generator | None = None,
) -> Step:
    """One token for each row, from the tempered distribution of the `top` likeliest."""
    if top is not None and top < scores.shape[-1]:
        likeliest = scores.topk(top, dim=-1).indices
        # By index, not by threshold: ties would let more than `top` through.
        kept = torch.full_like(scores, -torch.inf).scatter(-1, likeliest, 0.0)
        scores = scores + kept
    chances = torch.softmax(scores / temperature, dim=-1)
    return torch.multinomial(chances, 1, generator=generator)[:, 0]
