r"""Ancestral sampling: one token after another from the model's own conditionals.

    s_t ~ P(· | s_<t)^{1/τ} / Z,   until `<end>` or length T

At τ = 1 the empirical frequencies tend to the model. S3; zoo.md 4.3.
"""

import torch

from lmzoo.contract import END, PAD, START, LanguageModel
from lmzoo.types import Tokens


@torch.no_grad()
def ancestral(
    model: LanguageModel,
    count: int,
    length: int,
    *,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tokens:
    """`count` sequences of at most `length` tokens, `<start>` included, padded after `<end>`."""
    model.eval()
    tokens = torch.full((count, 1), START)
    ended = torch.zeros(count, dtype=torch.bool)
    for _ in range(length - 1):
        scores = model.next_log_prob(tokens) / temperature
        drawn = torch.multinomial(scores.softmax(-1), 1, generator=generator)[:, 0]
        drawn = torch.where(ended, torch.full_like(drawn, PAD), drawn)
        ended = ended | (drawn == END) | (drawn == PAD)
        tokens = torch.cat([tokens, drawn[:, None]], dim=1)
        if bool(ended.all()):
            break
    return tokens
