r"""Decoding: sequences from any causal model with its `begin` and `advance` methods.

    s_t ~ P(· | s_<t)^{1/τ} / Z          ancestral sampling, τ > 0
    s_t = argmax_v P(v | s_<t)           greedy decoding, the limit τ = 0

until `<end>` or length T. At τ = 1 the frequencies of samples converge to the model. `top` limits
the draw to the `top` most likely tokens. A greedy sequence need not be the most likely sequence.

    rank(s) = Σ_t log P(s_t | s_<t) / n^α            n tokens after `<start>`

Beam search extends the most likely prefixes of each length by every token. The extensions and the
finished sequences compete for `width` places. A finished sequence is kept for the final ranking,
even if unfinished prefixes outrank it later. α = 0 ranks by probability, α = 1 by the mean
log-probability, which does not favour short sequences. Width 1 is greedy decoding. Width V^{T-1}
finds the most likely sequence. A smaller width can miss it, and a larger width can give a worse
result than a smaller one.

A sequence begins with `<start>`. It ends with `<end>`, at length T, or with a pad in corpora
without an end token.

Top-k sampling: Fan et al. 2018 (arXiv:1805.04833); beam search: Lowerre 1976; Sutskever et al. 2014
(arXiv:1409.3215). Source: S3.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils._pytree import tree_map_only

from lmzoo.contract import END, PAD, START, DecodingState, LanguageModel
from lmzoo.kernels.guest import in_evaluation
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
    weights = itertools.chain(model.parameters(), model.buffers())
    owned = next(weights, None)
    # A model without weights, such as a grammar, computes anywhere.
    device = None
    if owned is not None:
        device = owned.device
    ids = [START] + list(prefix)
    row = torch.tensor(ids, device=device)
    tokens = row.repeat(batch, 1)
    if state is None:
        state = model.begin(batch, *sources)
    for token in tokens[:, :-1].unbind(1):
        # The scores of given tokens are not needed.
        _, state = model.advance(state, token)
    last = tokens[:, -1]
    scores, state = model.advance(state, last)
    return tokens, scores, state


def select_rows(state: DecodingState, rows: StepTokens) -> DecodingState:
    """Return the decoding state of these sequences, in this order; indices may repeat."""
    return tree_map_only(Tensor, lambda part: part[rows], state)


def is_end(token: Int[Tensor, "*N"]) -> Bool[Tensor, "*N"]:
    """Return True where the token ends its sequence."""
    return (token == END) | (token == PAD)


@torch.no_grad()
@in_evaluation
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
        model: The model.
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
    # A prefix is evidence on a sentence latent, which a draw from its prior would ignore.
    begin = None
    if not prefix:
        begin = model.begin_samples(count, *sources, generator=generator)
    tokens, scores, state = start_decoding(model, count, prefix, sources, begin)
    ended = torch.zeros_like(tokens[:, 0], dtype=torch.bool)
    while tokens.shape[1] < length:
        drawn = draw(scores, temperature, top, generator)
        # A sequence that has ended is filled up with pads.
        token = drawn.masked_fill(ended, PAD)
        tokens = torch.cat([tokens, token[:, None]], 1)
        ended = ended | is_end(token)
        # Nothing reads the scores of a further step.
        if tokens.shape[1] == length or ended.all():
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
        excluded = torch.full_like(scores, -torch.inf)
        scores = scores + excluded.scatter(-1, likeliest, 0.0)
    logits = scores / temperature
    probabilities = logits.softmax(-1)
    drawn = torch.multinomial(probabilities, 1, generator=generator)
    return drawn[:, 0]


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence of a beam search."""

    tokens: tuple[int, ...]
    """Token ids, `<start>` included, and `<end>` if the sequence ended with it."""
    log_prob: float
    """Log P of the tokens after `<start>` and the prefix, in nats."""
    rank: float
    """The sort key: log_prob / n^α."""


@torch.no_grad()
@in_evaluation
def beam_search(
    model: LanguageModel,
    length: int,
    width: int,
    *,
    alpha: float = 0.0,
    prefix: Sequence[int] = (),
    sources: tuple[Tensor, ...] = (),
) -> list[Hypothesis]:
    """Return at most `width` different sequences, best first.

    Args:
        model: The model.
        length: Maximum number of tokens, `<start>` included.
        width: Number of beams.
        alpha: Exponent of the length normalisation.
        prefix: Token ids after `<start>` with which all sequences begin.
        sources: Source tokens (1, S) and length (1,) of a conditional model.
    """
    tokens, scores, state = start_decoding(model, 1, prefix, sources)
    first = tokens.shape[1]
    # Sums in double precision, so that only probabilities that are equal in the model tie.
    log_prob = scores.new_zeros(1, dtype=torch.float64)
    finished: list[Hypothesis] = []
    while len(tokens) and tokens.shape[1] < length:
        vocab = scores.shape[1]
        # A prefix that is given does not count as length.
        count = tokens.shape[1] + 1
        penalty = (count - first) ** alpha
        total = log_prob[:, None] + scores
        total = total.flatten()
        ranks = [done.rank for done in finished]
        best = best_extensions(total / penalty, ranks, width)
        row = best // vocab
        token = best % vocab
        tokens = torch.cat([tokens[row], token[:, None]], 1)
        log_prob = total[best]
        ended = is_end(token) | (count == length)
        sequences = tokens[ended].tolist()
        pairs = zip(sequences, log_prob[ended].tolist(), strict=True)
        for sequence, score in pairs:
            rank = score / penalty
            finished.append(Hypothesis(tuple(sequence), score, rank))
        going = ~ended
        tokens = tokens[going]
        log_prob = log_prob[going]
        if len(tokens):
            # A hypothesis goes on from the state of the one that it extends.
            state = select_rows(state, row[going])
            scores, state = model.advance(state, token[going])
    finished.sort(key=lambda hypothesis: -hypothesis.rank)
    return finished[:width]


def best_extensions(
    ranks: Float[Tensor, "N"],
    finished: list[float],
    width: int,
) -> Tensor:
    """Return the indices of the extensions among the `width` best candidates, best first.

    Candidates are the N extensions and the finished sequences, by rank. Of equal ranks the first
    wins, as in greedy decoding. An extension of probability zero never wins.
    """
    candidates = torch.cat([ranks, ranks.new_tensor(finished)])
    best, order = candidates.sort(descending=True, stable=True)
    possible = best[:width].isfinite()
    order = order[:width][possible]
    return order[order < len(ranks)]
