"""Ancestral sampling and greedy decoding: one token after another from the model's conditionals.

    s_t ~ P(· | s_<t)^{1/τ} / Z          ancestral sampling, τ > 0
    s_t = argmax_v P(v | s_<t)           greedy decoding, the limit τ = 0

until `<end>` or length T. At τ = 1 the frequencies of samples converge to the model. `top` limits
the draw to the `top` most likely tokens. A greedy sequence need not be the most likely sequence.

Top-k sampling: Fan et al. 2018 (arXiv:1805.04833). Source: S3.

A sequence begins with `<start>`. It ends with `<end>`, at length T, or with a pad in corpora
without an end token.
"""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.utils._pytree import tree_map_only

from lmzoo.base.registry import technique
from lmzoo.contract import END, PAD, START, DecodingState, LanguageModel
from lmzoo.types import NextScores, Prefix, StepTokens, Tokens


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
