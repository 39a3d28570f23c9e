r"""Beam search: extend the most likely prefixes of each length.

    rank(s) = Σ_t log P(s_t | s_<t) / n^α            n tokens after `<start>`

At each step every beam is extended by every token. The extensions and the finished sequences
compete for `width` places. A finished sequence is kept for the final ranking, even if unfinished
prefixes outrank it later. α = 0 ranks by probability, α = 1 by the mean log-probability, which does
not favour short sequences.

Width 1 is greedy decoding. Width V^{T-1} finds the most likely sequence. A smaller width can miss
it, and a larger width can give a worse result than a smaller one.

Lowerre 1976; Sutskever et al. 2014 (arXiv:1409.3215). Source: S3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.base.registry import technique
from lmzoo.contract import LanguageModel
from lmzoo.decode.sampling import is_end, select_rows, start_decoding

technique(
    "beam_search", family="decoding", document="S3", source="Lowerre 1976; S3",
    summary="The most likely sequences that a beam of limited width finds (sample --beam).",
)  # fmt: skip


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
        model: The model; it is put into evaluation mode.
        length: Maximum number of tokens, `<start>` included.
        width: Number of beams.
        alpha: Exponent of the length normalisation.
        prefix: Token ids after `<start>` with which all sequences begin.
        sources: Source tokens (1, S) and length (1,) of a conditional model.
    """
    model.eval()
    tokens, scores, state = start_decoding(model, 1, prefix, sources)
    first = tokens.shape[1]
    # Sums in double precision, so that only probabilities that are equal in the model tie.
    log_prob = scores.new_zeros(1, dtype=torch.float64)
    finished: list[Hypothesis] = []
    while len(tokens) and tokens.shape[1] < length:
        penalty = (tokens.shape[1] + 1 - first) ** alpha
        total = (log_prob[:, None] + scores).flatten()
        best = best_extensions(total / penalty, [done.rank for done in finished], width)
        row, token = best // scores.shape[1], best % scores.shape[1]
        tokens, log_prob = torch.cat([tokens[row], token[:, None]], dim=1), total[best]
        ended = is_end(token) | (tokens.shape[1] == length)
        finished += [
            Hypothesis(tuple(sequence), score, score / penalty)
            for sequence, score in zip(
                tokens[ended].tolist(), log_prob[ended].tolist(), strict=True
            )
        ]
        tokens, log_prob = tokens[~ended], log_prob[~ended]
        if len(tokens):
            scores, state = model.advance(select_rows(state, row[~ended]), token[~ended])
    return sorted(finished, key=lambda hypothesis: -hypothesis.rank)[:width]


def best_extensions(ranks: Float[Tensor, "N"], finished: list[float], width: int) -> Tensor:
    """Return the indices of the extensions among the `width` best candidates, best first.

    Candidates are the N extensions and the finished sequences, by rank. Of equal ranks the first
    wins, as in greedy decoding. An extension of probability zero never wins.
    """
    candidates = torch.cat([ranks, ranks.new_tensor(finished)])
    best, order = candidates.sort(descending=True, stable=True)
    order = order[:width][best[:width].isfinite()]
    return order[order < len(ranks)]
