r"""Beam search: of all beginnings of one length the likeliest few, and of those what may follow.

    rank(s) = Σ_t log P(s_t | s_<t) / n^α            n tokens after `<start>`

Every beam is extended by every token, and the extensions compete with one another and with
the sequences that have ended for `width` places. What has ended is never forgotten, even
where beginnings that looked better then took its place. α = 0 ranks by probability; α = 1
by the mean, which does not prefer short sequences.

Width 1 is greedy decoding. A width of V^{T-1} finds the likeliest sequence; less may miss
it, and a larger width may even do worse than a smaller one.

Lowerre 1976; Sutskever et al. 2014 (arXiv:1409.3215); S3; zoo.md 4.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.catalogue import technique
from lmzoo.contract import LanguageModel
from lmzoo.decode.start import ends, pick, read

technique(
    "beam_search",
    family="decoding",
    document="S3",
    source="Lowerre 1976; S3",
    summary="The likeliest sequences that few beams can find (sample --beam).",
)


@dataclass(frozen=True)
class Hypothesis:
    """A sequence that beam search has found."""

    tokens: tuple[int, ...]
    """`<start>` included, and `<end>` if it came to one."""
    log_prob: float
    """Log P of what follows `<start>` and the prefix, in nats."""
    rank: float
    """What it is sorted by: log_prob, normalised by length if asked."""


@torch.no_grad()
def beam_search(
    model: LanguageModel,
    length: int,
    width: int,
    *,
    alpha: float = 0.0,
    prefix: Sequence[int] = (),
    given: tuple[Tensor, ...] = (),
) -> list[Hypothesis]:
    """At most `width` different sequences of at most `length` tokens, the best first.

    What is `given` to a conditional model has one row: one search is for one source.
    """
    model.eval()
    tokens, scores, carried = read(model, 1, prefix, given)
    first = tokens.shape[1]
    # In double precision, so that ties are those of the model and not of the sums.
    log_prob = scores.new_zeros(1, dtype=torch.float64)
    found: list[Hypothesis] = []
    while len(tokens) and tokens.shape[1] < length:
        penalty = (tokens.shape[1] + 1 - first) ** alpha
        total = (log_prob[:, None] + scores).flatten()
        kept = contest(total / penalty, [ended.rank for ended in found], width)
        row, token = kept // scores.shape[1], kept % scores.shape[1]
        tokens, log_prob = torch.cat([tokens[row], token[:, None]], dim=1), total[kept]
        over = ends(token) | (tokens.shape[1] == length)
        found += [
            Hypothesis(tuple(one), score, score / penalty)
            for one, score in zip(tokens[over].tolist(), log_prob[over].tolist(), strict=True)
        ]
        tokens, log_prob = tokens[~over], log_prob[~over]
        if len(tokens):
            scores, carried = model.advance(pick(carried, row[~over]), token[~over])
    return sorted(found, key=lambda hypothesis: -hypothesis.rank)[:width]


def contest(ranks: Float[Tensor, "N"], ended: list[float], width: int) -> Tensor:
    """Which of N extensions are among the `width` best of them and of what has ended, best first.

    Of equals the first wins, as it does in greedy decoding. What is impossible never does.
    """
    best, order = torch.cat([ranks, ranks.new_tensor(ended)]).sort(descending=True, stable=True)
    order = order[:width][best[:width].isfinite()]
    return order[order < len(ranks)]
