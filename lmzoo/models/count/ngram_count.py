r"""Count n-grams: relative frequencies of the last tokens, smoothed.

    P(s_t | s_<t) = P_k(s_t | s_{t-k..t-1}),    k = min(order − 1, t)
    P_k(w | h)    = f(h w) + γ(h) P_{k-1}(w | h'),    h' = h without its first token

A context that was never seen has f = 0 and γ = 1 (so a rule that does not interpolate is
uniform there). All V ids share probability one: the
recursion ends in 1/V. No context reaches behind `<start>`. Jelinek-Mercer's weights, one
an order, are estimated on every tenth training sequence from the counts of the others,
and then applied to the counts of all. Before it is fitted the model is uniform.

Shannon 1948; Chen & Goodman 1998; S4.
"""

from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.contract import LanguageModel, Task, model, scored_mask
from lmzoo.models.count import smoothing
from lmzoo.models.count.counting import Counts, count
from lmzoo.models.count.smoothing import Smoothing, Weights
from lmzoo.models.count.table import Level, find, history, longer, picked
from lmzoo.search_space import Choice, FloatRange, IntRange

HELD_OUT = 10
"""Every so-many-th training sequence is kept aside for Jelinek-Mercer's weights."""


@model("ngram_count", family="count", document="S4", source="Shannon 1948; Chen & Goodman 1998")
class NgramCount(LanguageModel):
    """Relative frequencies of n-grams; modified Kneser-Ney unless told otherwise."""

    closed_form = True

    @config
    class Config:
        """How far back, and what becomes of the unseen."""

        order: Annotated[int, IntRange(1, 6)] = Field(3, ge=1)
        smoothing: Annotated[Smoothing, Choice(tuple(Smoothing))] = Smoothing.KNESER_NEY
        alpha: Annotated[float, FloatRange(1e-4, 1.0, log=True)] = Field(0.1, ge=0)
        """Pseudo-count of every token in every context (`add_alpha`)."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.levels = nn.ModuleList(Level() for _ in range(config.order))

    @property
    def state_size(self) -> int | None:
        return self.config.order - 1

    def fit_closed_form(self, tokens: Tensor, lengths: Tensor) -> None:
        if self.config.smoothing is Smoothing.JELINEK_MERCER and len(tokens) > 1:
            aside = torch.arange(len(tokens), device=tokens.device) % HELD_OUT == 0
            self._hold(tokens[~aside], lengths[~aside], [1.0] * self.config.order)
            trusts = self._trusts(tokens[aside], lengths[aside])
        else:
            trusts = [0.5] * self.config.order
        self._hold(tokens, lengths, trusts)

    def _hold(self, tokens: Tensor, lengths: Tensor, trusts: list[float]) -> None:
        """Count, and keep what the counts amount to."""
        counts = count(tokens, lengths, self.config.order, self.task.vocab)
        weights = self._weights(counts, trusts)
        for level, found, (share, backoff) in zip(self.levels, counts, weights, strict=True):
            assert isinstance(level, Level)
            level.hold(found.contexts, found.grams, backoff, share)

    def _weights(self, counts: list[Counts], trusts: list[float]) -> list[Weights]:
        match self.config.smoothing:
            case Smoothing.KNESER_NEY:
                return smoothing.kneser_ney(counts)
            case Smoothing.JELINEK_MERCER:
                return [smoothing.jelinek_mercer(*p) for p in zip(counts, trusts, strict=True)]
            case Smoothing.ADD_ALPHA:
                return [smoothing.add_alpha(c, self.config.alpha, self.task.vocab) for c in counts]
            case _:
                return [smoothing.add_alpha(c, 0.0, self.task.vocab) for c in counts]

    def _trusts(self, tokens: Tensor, lengths: Tensor) -> list[float]:
        """λ of each order, from tokens that the present counts have not seen."""
        wanted = scored_mask(tokens, lengths)
        pairs = [(share[wanted], context[wanted]) for _, share, context in self._found(tokens)]
        frequencies = torch.stack([share for share, _ in pairs])
        known = torch.stack([context >= 0 for _, context in pairs]).double()
        return smoothing.trusts(frequencies, known, self.task.vocab)

    def _found(
        self, tokens: Int[Tensor, "B T"]
    ) -> list[tuple[Level, Float[Tensor, "B T"], Int[Tensor, "B T"]]]:
        """By order: the level, f of each position's n-gram, the number of its context."""
        vocab, number, found = self.task.vocab, torch.zeros_like(tokens), []
        for k, level in enumerate(self.levels):
            assert isinstance(level, Level)
            token = history(tokens, k) if k else torch.zeros_like(tokens)
            number = find(level.contexts, longer(number, token, vocab))
            gram = find(level.grams, longer(number, tokens, vocab))
            found.append((level, picked(level.share, gram, 0.0), number))
        return found

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        t = torch.arange(tokens.shape[1], device=tokens.device)
        uniform = torch.full_like(tokens, 1, dtype=torch.float64) / self.task.vocab
        p = uniform
        for k, (level, share, context) in enumerate(self._found(tokens)):
            below = p if self.config.smoothing.interpolates else uniform
            p = torch.where(t < k, p, share + picked(level.backoff, context, 1.0) * below)
        return p[:, 1:].log().to(torch.get_default_dtype())

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        batch, vocab = len(prefix), self.task.vocab
        uniform = torch.full((batch, vocab), 1 / vocab, dtype=torch.float64, device=prefix.device)
        # The contexts of a token yet to come; which token that is makes no difference.
        coming = nn.functional.pad(prefix, (0, 1))
        p = uniform
        for level, _, contexts in self._found(coming)[: prefix.shape[1] + 1]:
            below = p if self.config.smoothing.interpolates else uniform
            backoff = picked(level.backoff, contexts[:, -1], 1.0)
            p = _shares(level, contexts[:, -1], vocab) + backoff[:, None] * below
        return p.log().to(torch.get_default_dtype())


def _shares(level: Level, context: Int[Tensor, "B"], vocab: int) -> Float[Tensor, "B V"]:
    """f of every token after each context, 0 where unseen."""
    first = torch.searchsorted(level.grams, context * vocab)
    runs = (torch.searchsorted(level.grams, (context + 1) * vocab) - first) * (context >= 0)
    rows = torch.arange(len(context), device=context.device).repeat_interleave(runs)
    within = torch.arange(len(rows), device=context.device) - (runs.cumsum(0) - runs)[rows]
    places = first[rows] + within
    shares = level.share.new_zeros(len(context), vocab)
    return shares.index_put((rows, level.grams[places] % vocab), level.share[places])
