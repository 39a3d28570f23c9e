r"""Ancestral sampling and greedy decoding: one token after another from the model's conditionals.

    s_t ~ P(· | s_<t)^{1/τ} / Z          ancestral sampling, τ > 0
    s_t = argmax_v P(v | s_<t)           greedy decoding, the limit τ = 0

until `<end>` or length T. At τ = 1 the frequencies of samples converge to the model. `top` limits
the draw to the `top` most likely tokens. A greedy sequence need not be the most likely sequence.

Top-k sampling: Fan et al. 2018 (arXiv:1805.04833). Source: S3.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lmzoo.base.registry import technique
from lmzoo.contract import PAD, LanguageModel
from lmzoo.decode.start import is_end, start_decoding
from lmzoo.types import NextScores, StepTokens, Tokens

technique(
    "ancestral_sampling", family="decoding", document="S3",
    source="S3; top-k: Fan et al. 2018 (arXiv:1805.04833)",
    summary="Random samples, with temperature and top-k (sample --temperature --top).",
)  # fmt: skip
technique(
    "greedy", family="decoding", document="S3", source="S3",
    summary="The most likely token at every step (sample --greedy).",
)  # fmt: skip


@torch.no_grad()
def sample(
    model: LanguageModel,
    count: int,
    length: int,
    *,
    temperature: float = 1.0,
    top: int | None = None,
    prefix: Sequence[int] = (),
    sources: tuple[Tensor, ...] = (),
    generator: torch.Generator | None = None,
) -> Tokens:
    """Generate `count` sequences of at most `length` tokens.

    Args:
        model: The model; it is put into evaluation mode.
        count: Number of sequences.
        length: Maximum number of tokens, `<start>` included.
        temperature: τ; 0 selects greedy decoding.
        top: Draw only from this many most likely tokens; None draws from all.
        prefix: Token ids after `<start>` with which all sequences begin.
        sources: Source tokens (B, S) and lengths (B,) of a conditional model, B = `count`.
        generator: Random generator; None uses the global one.

    Returns:
        Token ids (B, t) with t <= `length`, `<start>` included, padded after `<end>`.
    """
    model.eval()
    # A prefix is evidence on a sentence latent, which a draw from its prior would ignore.
    begin = None if prefix else model.begin_samples(count, *sources, generator=generator)
    tokens, scores, state = start_decoding(model, count, prefix, sources, begin)
    ended = torch.zeros_like(tokens[:, 0], dtype=torch.bool)
    while tokens.shape[1] < length:
        token = draw(scores, temperature, top, generator).masked_fill(ended, PAD)
        tokens = torch.cat([tokens, token[:, None]], dim=1)
        ended = ended | is_end(token)
        if tokens.shape[1] == length or bool(ended.all()):
            break
        scores, state = model.advance(state, token)
    return tokens


def draw(
    scores: NextScores,
    temperature: float = 1.0,
    top: int | None = None,
    generator: torch.Generator | None = None,
) -> StepTokens:
    """Draw one token per sequence from log-probabilities (B, V); the argmax at temperature 0."""
    if temperature == 0:
        return scores.argmax(-1)
    if top is not None and top < scores.shape[-1]:
        likeliest = scores.topk(top, dim=-1).indices
        # By index: with a threshold, ties would keep more than `top` tokens.
        mask = torch.full_like(scores, -torch.inf).scatter(-1, likeliest, 0.0)
        scores = scores + mask
    probabilities = torch.softmax(scores / temperature, dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
