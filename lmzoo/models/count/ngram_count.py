r"""Count-based n-gram model with smoothing.

    P(s_t | s_<t) = P_k(s_t | s_{t-k..t-1}),    k = min(order − 1, t)
    P_k(w | h)    = f(h w) + γ(h) P_{k-1}(w | h'),    h' = h without its first token

f and γ depend on the smoothing rule: see `smoothing.py`. A context that does not occur in the
training data has f = 0 and γ = 1. The recursion ends at P_{-1} = 1/V, so all V ids have a total
probability of 1. No context extends beyond `<start>`. The weights of Jelinek-Mercer smoothing, one
per order, are estimated on every tenth training sequence from the counts of the other sequences,
and then used with the counts of all. An unfitted model is uniform.

`order=0` takes the order with the least validation loss: 1 to 5, then more while the loss falls,
at most MAX_ORDER. With `stream=true` the n-grams of a contiguous text are counted across the edges
of blocks, and every token is scored with the order − 1 tokens before it (`train/closed_form.py`).

Source: Shannon 1948; Chen & Goodman 1998; S4.
"""

from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.contract import LanguageModel, Task, model
from lmzoo.errors import UserError
from lmzoo.functional.token_scores import scored_mask
from lmzoo.models.count import smoothing
from lmzoo.models.count.counting import (
    Counts,
    Level,
    count_ngrams,
    count_orders,
    extend_keys,
    lookup,
    shift,
    take,
)
from lmzoo.models.count.smoothing import Smoothing, Weights
from lmzoo.search_space import Choice, FloatRange, IntRange

LEAST_ORDERS, MAX_ORDER = 5, 10
"""Number of orders that `order=0` tries."""
HELD_OUT = 10
"""One in HELD_OUT training sequences is used to estimate the Jelinek-Mercer weights."""


@model("ngram_count", family="count", document="S4", source="Shannon 1948; Chen & Goodman 1998")
class NgramCount(LanguageModel):
    """Count-based n-gram model, by default with modified Kneser-Ney smoothing."""

    closed_form = True

    @config
    class Config:
        """Order and smoothing."""

        order: Annotated[int, IntRange(1, 6)] = Field(3, ge=0)
        """Length of the n-grams: order − 1 context tokens; 0: chosen on the validation split."""
        smoothing: Annotated[Smoothing, Choice(tuple(Smoothing))] = Smoothing.KNESER_NEY
        alpha: Annotated[float, FloatRange(1e-4, 1.0, log=True)] = Field(0.1, ge=0)
        """Pseudo-count of every token in every context (`add_alpha`)."""
        stream: bool = Field(default=False, exclude_if=lambda on: not on)
        """Read a contiguous text as one sequence, in training and evaluation."""

        @model_validator(mode="after")
        def _can_choose(self) -> Any:
            if not self.order and self.smoothing is not Smoothing.KNESER_NEY:
                raise UserError(
                    f"order=0 chooses the order of kneser_ney, not of {self.smoothing}; give one"
                )
            return self

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        order = config.order or MAX_ORDER
        self.levels = nn.ModuleList(Level() for _ in range(order))
        self.context_length = order - 1

    def fit_closed_form(
        self, tokens: Tensor, lengths: Tensor, valid_loss: Callable[[], float] | None = None
    ) -> None:
        if not self.config.order:
            self._choose_order(tokens, lengths, valid_loss)
            return
        if self.config.smoothing is Smoothing.JELINEK_MERCER and len(tokens) > 1:
            held_out = torch.arange(len(tokens), device=tokens.device) % HELD_OUT == 0
            self._fit_levels(tokens[~held_out], lengths[~held_out], [1.0] * self.config.order)
            lambdas = self._estimate_lambdas(tokens[held_out], lengths[held_out])
        else:
            lambdas = [0.5] * self.config.order
        self._fit_levels(tokens, lengths, lambdas)

    def _fit_levels(self, tokens: Tensor, lengths: Tensor, lambdas: list[float]) -> None:
        """Count the n-grams and store f and γ of every order."""
        self._set_levels(count_ngrams(tokens, lengths, self.config.order, self.task.vocab), lambdas)

    def _set_levels(self, counts: list[Counts], lambdas: list[float]) -> None:
        """Store f and γ of the orders counted; a level without n-grams changes nothing."""
        weights = self._weights(counts, lambdas)
        for level, found, (share, backoff) in zip(self.levels, counts, weights, strict=False):
            assert isinstance(level, Level)
            level.set_tables(found.contexts, found.grams, backoff, share)

    def _choose_order(
        self, tokens: Tensor, lengths: Tensor, valid_loss: Callable[[], float] | None
    ) -> None:
        if valid_loss is None:  # no data but these: the order that is usual
            self._set_levels(count_ngrams(tokens, lengths, LEAST_ORDERS, self.task.vocab), [])
            return
        counts, losses = list[Counts](), list[float]()
        for found in islice(count_orders(tokens, lengths, self.task.vocab), MAX_ORDER):
            counts.append(found)
            self._set_levels(counts, [])
            losses.append(valid_loss())
            if len(losses) >= LEAST_ORDERS and losses[-1] > min(losses):
                break
        empty = Level()
        for level in self.levels:
            assert isinstance(level, Level)
            level.set_tables(empty.contexts, empty.grams, empty.backoff, empty.share)
        self._set_levels(counts[: 1 + losses.index(min(losses))], [])

    def report(self, tokens: Tensor, lengths: Tensor, *sources: Tensor) -> dict[str, float]:
        if self.config.order:
            return {}
        used = [level for level in self.levels if isinstance(level, Level) and len(level.grams)]
        return {"order": float(len(used))}

    def _weights(self, counts: list[Counts], lambdas: list[float]) -> list[Weights]:
        match self.config.smoothing:
            case Smoothing.KNESER_NEY:
                return smoothing.kneser_ney(counts)
            case Smoothing.JELINEK_MERCER:
                return [smoothing.jelinek_mercer(*p) for p in zip(counts, lambdas, strict=True)]
            case Smoothing.ADD_ALPHA:
                return [smoothing.add_alpha(c, self.config.alpha, self.task.vocab) for c in counts]
            case _:
                return [smoothing.add_alpha(c, 0.0, self.task.vocab) for c in counts]

    def _estimate_lambdas(self, tokens: Tensor, lengths: Tensor) -> list[float]:
        """Estimate λ of each order on tokens that are not in the present counts."""
        scored = scored_mask(tokens, lengths)
        pairs = [(share[scored], context[scored]) for _, share, context in self._lookup(tokens)]
        frequencies = torch.stack([share for share, _ in pairs])
        known = torch.stack([context >= 0 for _, context in pairs]).double()
        return smoothing.estimate_weights(frequencies, known, self.task.vocab)

    def _lookup(
        self, tokens: Int[Tensor, "B T"]
    ) -> list[tuple[Level, Float[Tensor, "B T"], Int[Tensor, "B T"]]]:
        """Return for each order the level, f of each position's n-gram, and its context index."""
        vocab, number, found = self.task.vocab, torch.zeros_like(tokens), []
        for k, level in enumerate(self.levels):
            assert isinstance(level, Level)
            token = shift(tokens, k) if k else torch.zeros_like(tokens)
            number = lookup(level.contexts, extend_keys(number, token, vocab))
            gram = lookup(level.grams, extend_keys(number, tokens, vocab))
            found.append((level, take(level.share, gram, 0.0), number))
        return found

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        t = torch.arange(tokens.shape[1], device=tokens.device)
        uniform = torch.full_like(tokens, 1, dtype=torch.float64) / self.task.vocab
        p = uniform
        for k, (level, share, context) in enumerate(self._lookup(tokens)):
            below = p if self.config.smoothing.interpolates else uniform
            p = torch.where(t < k, p, share + take(level.backoff, context, 1.0) * below)
        return p[:, 1:].log().to(torch.get_default_dtype())

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        batch, vocab = len(prefix), self.task.vocab
        uniform = torch.full((batch, vocab), 1 / vocab, dtype=torch.float64, device=prefix.device)
        # Contexts are read at the position after the prefix; the token there is not used.
        extended = nn.functional.pad(prefix, (0, 1))
        p = uniform
        for level, _, contexts in self._lookup(extended)[: prefix.shape[1] + 1]:
            below = p if self.config.smoothing.interpolates else uniform
            backoff = take(level.backoff, contexts[:, -1], 1.0)
            p = _dense_shares(level, contexts[:, -1], vocab) + backoff[:, None] * below
        return p.log().to(torch.get_default_dtype())


def _dense_shares(level: Level, context: Int[Tensor, "B"], vocab: int) -> Float[Tensor, "B V"]:
    """Return f of every token after each context, 0 for n-grams that do not occur."""
    first = torch.searchsorted(level.grams, context * vocab)
    counts = (torch.searchsorted(level.grams, (context + 1) * vocab) - first) * (context >= 0)
    rows = torch.arange(len(context), device=context.device).repeat_interleave(counts)
    within = torch.arange(len(rows), device=context.device) - (counts.cumsum(0) - counts)[rows]
    grams = first[rows] + within
    shares = level.share.new_zeros(len(context), vocab)
    return shares.index_put((rows, level.grams[grams] % vocab), level.share[grams])
