"""Count-based n-gram models: counts of all orders, their smoothing, and the model.

    raw(g)           number of occurrences of the n-gram g
    continuation(g)  number of different tokens that occur before g

n-grams are sorted integer keys. continuation(g) is the number of different n-grams of the next
order that end in g. The key of a context of k tokens contains the index of the context that is one
token shorter, so that all its suffixes are looked up on the way and every key fits 64 bits:

    context key   index(s_{t-k+1..t-1}) · V + s_{t-k}
    n-gram key    index(s_{t-k..t-1}) · V + s_t
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice, pairwise
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import pad

from lmzoo.base.config import OptionalName, config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.contract import START, LanguageModel, Task, model
from lmzoo.functional.token_scores import scored_mask
from lmzoo.types import Lengths, NextScores, Tokens, TokenScores

Keys = Int[Tensor, "*N"]
"""Keys of contexts or n-grams, their indices or tokens."""

LEAST_ORDERS = 5
MAX_ORDER = 10
"""Fewest and most orders that `order=0` tries."""
HELD_OUT = 10
"""One in HELD_OUT training sequences is used to estimate the Jelinek-Mercer weights."""
FALLBACK = (0.5, 1.0, 1.5)
"""Discounts used if there are too few n-grams to estimate them, or an estimate is 0 or out of range
(those of KenLM)."""
Weights = tuple[Tensor, Tensor]
"""f of each n-gram and γ of each context."""


class Level(nn.Module):
    """Contexts of one length and the n-grams that extend them by one token, as sorted keys.

    P_k(w | h) = f(h w) + γ(h) P_{k-1}(w | h') with the `share` f of each n-gram and the `backoff` γ
    of each context.
    """

    contexts: Tensor
    grams: Tensor
    backoff: Tensor
    share: Tensor

    def __init__(self):
        super().__init__()
        # A tensor for each: torch lists a buffer with two names once.
        for name in ("contexts", "grams"):
            keys = torch.empty(0, dtype=torch.int64)
            self.register_buffer(name, keys)
        for name in ("backoff", "share"):
            numbers = torch.empty(0, dtype=torch.float64)
            self.register_buffer(name, numbers)
        # Before loading, not after: the shapes are compared while a state is loaded.
        self.register_load_state_dict_pre_hook(_resize_buffers)

    def set_tables(
        self,
        contexts: Tensor,
        grams: Tensor,
        backoff: Tensor,
        share: Tensor,
    ):
        """Replace the level's tables."""
        self.contexts = contexts
        self.grams = grams
        self.backoff = backoff
        self.share = share


def _resize_buffers(
    level: nn.Module,
    state: dict[str, Tensor],
    prefix: str,
    *_: object,
):
    """Resize the buffers to a checkpoint's sizes, which depend on the training data."""
    buffers = list(level.named_buffers())
    for name, old in buffers:
        saved = state.get(prefix + name)
        if saved is not None:
            empty = old.new_empty(saved.shape)
            setattr(level, name, empty)


def lookup(table: Int[Tensor, "K"], keys: Keys) -> Keys:
    """Return the index of each key in a sorted table, −1 for keys that are not in it."""
    if len(table) == 0:
        return torch.full_like(keys, -1)
    # A key larger than all others has the index len(table), which is not in the table.
    index = torch.searchsorted(table, keys)
    last = len(table) - 1
    index = index.clamp_max(last)
    found = table[index] == keys
    return index.where(found, -1)


def shift(tokens: Tokens, back: int) -> Tokens:
    """Return s_{t-back} at each t, −1 before the sequence: no n-gram extends beyond `<start>`."""
    padded = pad(tokens, (back, 0), value=-1)
    count = tokens.shape[1]
    return padded[:, :count]


def extend_keys(shorter: Keys, token: Keys, vocab: int) -> Keys:
    """Return the keys of contexts or n-grams; −1 where either part is missing."""
    missing = (shorter < 0) | (token < 0)
    longer = shorter * vocab + token
    return torch.where(missing, -1, longer)


def take(
    values: Float[Tensor, "K"],
    index: Keys,
    missing: float,
) -> Float[Tensor, "*N"]:
    """Return the value at each index, `missing` at index −1."""
    if len(values) == 0:
        return torch.full(
            index.shape,
            missing,
            dtype=values.dtype,
            device=index.device,
        )
    # Index −1 would read the last value; the clamp keeps it in range until it is replaced.
    index_in_range = index.clamp_min(0)
    found = values[index_in_range]
    return found.where(index >= 0, missing)


@dataclass(frozen=True)
class Counts:
    """The n-grams of one order. All fields but `contexts` have one entry per n-gram."""

    contexts: Tensor
    """Sorted keys of the contexts."""
    grams: Tensor
    """Sorted keys of the n-grams."""
    context: Tensor
    """Index of the n-gram's context."""
    raw: Tensor
    """Number of occurrences."""
    suffix: Tensor
    """Index, one order down, of the n-gram without its first token."""
    has_start: Tensor
    """Whether the n-gram begins with `<start>`."""

    def per_context(self, values: Tensor) -> Tensor:
        """Sum a value of each n-gram over the n-grams of each context."""
        sums = values.new_zeros(len(self.contexts))
        return sums.index_add(0, self.context, values)


def count_orders(tokens: Tokens, lengths: Lengths, vocab: int) -> Iterator[Counts]:
    """Yield the n-grams of orders 1, 2, ... that end in a scored token."""
    scored = scored_mask(tokens, lengths)
    # The empty context has index 0 everywhere.
    number = torch.zeros_like(tokens)
    last: Counts | None = None
    for k in count():
        if k:
            token = shift(tokens, k)
        else:
            token = torch.zeros_like(tokens)
        key = extend_keys(number, token, vocab)
        key = key.masked_fill(~scored, -1)
        known = key >= 0
        contexts = key[known].unique()
        number = lookup(contexts, key)
        # Sorted, as `lookup` needs it: `unique` sorts.
        endings = extend_keys(number, tokens, vocab)
        grams, raw = endings[known].unique(return_counts=True)
        context = grams // vocab
        # A context's key is its parent's index · V + its first token: see the top of this file.
        parent = contexts[context] // vocab
        first = contexts[context] % vocab
        word = grams % vocab
        if last:
            shorter = parent * vocab + word
            suffix = lookup(last.grams, shorter)
        else:
            suffix = torch.zeros_like(grams)
        if k == 0:
            first = word
        has_start = first == START
        last = Counts(contexts, grams, context, raw, suffix, has_start)
        yield last


def adjusted_counts(levels: list[Counts]) -> list[Tensor]:
    """Return raw counts for the highest order and continuation counts for the lower ones.

    An n-gram that begins with `<start>` has no predecessor and keeps its raw count (Heafield et al.
    2013).
    """
    counts = []
    for level, above in pairwise(levels):
        size = len(level.raw)
        # How many tokens are seen before this n-gram, not how often it occurs.
        continuation = torch.bincount(above.suffix, minlength=size)
        adjusted = torch.where(level.has_start, level.raw, continuation)
        counts.append(adjusted)
    counts.append(levels[-1].raw)
    return counts


class Smoothing(OptionalName):
    """Rule that gives probability to n-grams that do not occur in the training data.

        P_k(w | h) = f(h w) + γ(h) P_{k-1}(w | h'),      P_{-1} = 1/V

        none             f = c(hw)/c(h)                    γ = 0
        add_alpha        f = c(hw)/(c(h) + αV)             γ = αV/(c(h) + αV), with P_{k-1} = 1/V
        jelinek_mercer   f = λ_k c(hw)/c(h)                γ = 1 − λ_k
        kneser_ney       f = (a(hw) − D(a(hw)))/a(h)       γ = Σ_w D(a(hw))/a(h)

    h is a context, h' is h without its first token, w a token, c(·) a raw count and a(·) a count of
    `adjusted_counts`. Modified Kneser-Ney has three discounts per order, computed from the numbers
    n_i of n-grams with a = i:

        Y = n_1/(n_1 + 2 n_2)     D_i = i − (i + 1) Y n_{i+1}/n_i     i = 1, 2, 3 or more

    Source: Kneser & Ney 1995; Chen & Goodman 1998; Jelinek & Mercer 1980.
    """

    NONE = "none"
    ADD_ALPHA = "add_alpha"
    JELINEK_MERCER = "jelinek_mercer"
    KNESER_NEY = "kneser_ney"

    @property
    def interpolates(self) -> bool:
        """Whether P_{k-1} is the next lower order; otherwise it is 1/V."""
        return self in (Smoothing.JELINEK_MERCER, Smoothing.KNESER_NEY)


def add_alpha(level: Counts, alpha: float, vocab: int) -> Weights:
    """Add the pseudo-count α to every token; α = 0 is no smoothing."""
    raw = level.raw.double()
    added = alpha * vocab
    total = level.per_context(raw) + added
    share = raw / total[level.context]
    return share, added / total


def jelinek_mercer(level: Counts, weight: float) -> Weights:
    """Interpolate the relative frequencies of this order with a fixed weight λ_k."""
    raw = level.raw.double()
    total = level.per_context(raw)
    share = weight * raw / total[level.context]
    backoff = torch.full_like(total, 1 - weight)
    return share, backoff


def kneser_ney(levels: list[Counts]) -> list[Weights]:
    """Apply interpolated modified Kneser-Ney to all orders."""
    return list(map(_discounted, levels, adjusted_counts(levels)))


def _discounted(level: Counts, counts: Int[Tensor, "G"]) -> Weights:
    by_count = torch.tensor(
        (0.0,) + discounts(counts),
        dtype=torch.float64,
        device=counts.device,
    )
    # Three discounts: n-grams that occur more often share the last one.
    discount = by_count[counts.clamp_max(3)]
    counts = counts.double()
    total = level.per_context(counts)
    share = (counts - discount) / total[level.context]
    backoff = level.per_context(discount) / total
    return share, backoff


def discounts(counts: Int[Tensor, "G"]) -> tuple[float, ...]:
    """Return D_1, D_2 and D_3+ of one order."""
    # n_i: the n-grams that occur i times.
    n = counts.bincount(minlength=5).tolist()
    # n_1 to n_3 are denominators; n_4 may be 0.
    if 0 in n[1:4]:
        return FALLBACK
    y = n[1] / (n[1] + 2 * n[2])
    estimates = []
    for i in (1, 2, 3):
        discount = i - (i + 1) * y * n[i + 1] / n[i]
        # A discount of 0 would leave no probability for tokens that are new in a context.
        if not 0 < discount <= i:
            return FALLBACK
        estimates.append(discount)
    return tuple(estimates)


def estimate_weights(
    frequencies: Float[Tensor, "K N"],
    known: Float[Tensor, "K N"],
    vocab: int,
    rounds: int = 50,
) -> list[float]:
    """Estimate the Jelinek-Mercer weights λ_0..λ_{K-1} on N held-out tokens, by rounds of EM.

    `frequencies` are relative ones at each order; `known` is 1 where the context of the order
    occurs in the counts, else 0, and the order is skipped.
    """
    orders = len(frequencies)
    weights = frequencies.new_full((orders,), 0.5)
    for _ in range(rounds):
        below = torch.full_like(frequencies[0], 1 / vocab)
        # The posterior that order k generated the token, given that no higher order did.
        own = []
        for k in range(orders):
            weight = weights[k] * known[k]
            part = weight * frequencies[k]
            mixed = part + (1 - weight) * below
            own.append(part / mixed)
            below = mixed
        # From the highest order down: `none_above` is the posterior that no higher order
        # generated the token.
        none_above = torch.ones_like(below)
        reached = []
        for k in reversed(range(orders)):
            reached.insert(0, none_above * known[k])
            none_above = none_above * (1 - own[k])
        visits = torch.stack(reached)
        chosen = visits * torch.stack(own)
        visited = visits.sum(1)
        # An order that no token reaches keeps its weight. The clamp is for its quotient, which is
        # computed but not used.
        estimate = chosen.sum(1) / visited.clamp_min(1e-300)
        weights = torch.where(visited > 0, estimate, weights)
    return weights.tolist()


Order = Annotated[int, IntRange(1, 6), Field(ge=0)]
Alpha = Annotated[float, FloatRange(1e-4, 1.0, log=True), Field(ge=0)]


@model(
    "ngram_count",
    family="count",
    document="S4",
    source="Shannon 1948; Chen & Goodman 1998",
)
class NgramCount(LanguageModel):
    """Count-based n-gram model, by default with modified Kneser-Ney smoothing.

        P(s_t | s_<t) = P_k(s_t | s_{t-k..t-1}),    k = min(order − 1, t)
        P_k(w | h)    = f(h w) + γ(h) P_{k-1}(w | h'),    h' = h without its first token

    f and γ depend on the smoothing rule: see `Smoothing`. A context that does not occur in the
    training data has f = 0 and γ = 1. The recursion ends at P_{-1} = 1/V, so all V ids have a total
    probability of 1. No context extends beyond `<start>`. The weights of Jelinek-Mercer smoothing,
    one per order, are estimated on every tenth training sequence from the counts of the other
    sequences, and then used with the counts of all. An unfitted model is uniform.

    `order=0` takes the order with the least validation loss: 1 to 5, then more while the loss
    falls, at most MAX_ORDER. With `stream=true` the n-grams of a contiguous text are counted across
    the edges of blocks, and every token is scored with the order − 1 tokens before it
    (`train/closed_form.py`).
    """

    closed_form = True

    @config
    class Config:
        """Order and smoothing."""

        order: Order = 3
        """Length of the n-grams: order − 1 context tokens; 0: chosen on the validation split."""
        smoothing: Annotated[Smoothing, Choice(tuple(Smoothing))] = Smoothing.KNESER_NEY
        alpha: Alpha = 0.1
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

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        order = config.order
        if not order:
            # Empty levels change no score: there may be more of them than the order chosen.
            order = MAX_ORDER
        levels = [Level() for _ in range(order)]
        self.levels: Any = nn.ModuleList(levels)
        self.context_length = order - 1

    def fit_closed_form(
        self,
        tokens: Tensor,
        lengths: Tensor,
        valid_loss: Callable[[], float] | None = None,
    ):
        order = self.config.order
        if not order:
            if valid_loss is not None:
                self._choose_order(tokens, lengths, valid_loss)
                return
            order = LEAST_ORDERS  # no data but these: the order that is usual
        lambdas = [0.5] * order
        smoothing = self.config.smoothing
        # λ of all n-grams would be 1: each occurs in the data that it was counted on.
        if smoothing is Smoothing.JELINEK_MERCER and len(tokens) > 1:
            number = torch.arange(len(tokens), device=tokens.device)
            held_out = number % HELD_OUT == 0
            rest = ~held_out
            counted = self._count(tokens[rest], lengths[rest])
            counts = list(islice(counted, order))
            self._set_levels(counts, [1.0] * order)
            lambdas = self._estimate_lambdas(tokens[held_out], lengths[held_out])
        counted = self._count(tokens, lengths)
        counts = list(islice(counted, order))
        self._set_levels(counts, lambdas)

    def _count(self, tokens: Tensor, lengths: Tensor) -> Iterator[Counts]:
        return count_orders(tokens, lengths, self.task.vocab)

    def _set_levels(self, counts: list[Counts], lambdas: list[float]):
        """Store f and γ of the orders counted; a level without n-grams changes nothing."""
        weights = self._weights(counts, lambdas)
        tables = zip(self.levels, counts, weights, strict=False)
        for level, found, (share, backoff) in tables:
            level.set_tables(found.contexts, found.grams, backoff, share)

    def _choose_order(
        self,
        tokens: Tensor,
        lengths: Tensor,
        valid_loss: Callable[[], float],
    ):
        counts = list[Counts]()
        losses = []
        counted = self._count(tokens, lengths)
        for found in islice(counted, MAX_ORDER):
            counts.append(found)
            self._set_levels(counts, [])
            losses.append(valid_loss())
            least = min(losses)
            if len(losses) >= LEAST_ORDERS and losses[-1] > least:
                break
        # The levels above the chosen order hold n-grams of orders that were tried.
        empty = Level()
        for level in self.levels:
            level.set_tables(empty.contexts, empty.grams, empty.backoff, empty.share)
        order = losses.index(min(losses)) + 1
        self._set_levels(counts[:order], [])

    def report(
        self,
        tokens: Tensor,
        lengths: Tensor,
        *sources: Tensor,
    ) -> dict[str, float]:
        if self.config.order:
            return {}
        filled = [len(level.grams) > 0 for level in self.levels]
        return {"order": float(sum(filled))}

    def _weights(
        self,
        counts: list[Counts],
        lambdas: list[float],
    ) -> list[Weights]:
        vocab = self.task.vocab
        match self.config.smoothing:
            case Smoothing.KNESER_NEY:
                return kneser_ney(counts)
            case Smoothing.JELINEK_MERCER:
                return list(map(jelinek_mercer, counts, lambdas))
            case Smoothing.ADD_ALPHA:
                alpha = self.config.alpha
            case _:
                alpha = 0.0
        return [add_alpha(level, alpha, vocab) for level in counts]

    def _estimate_lambdas(self, tokens: Tensor, lengths: Tensor) -> list[float]:
        """Estimate λ of each order on tokens that are not in the present counts."""
        scored = scored_mask(tokens, lengths)
        frequencies = []
        known = []
        for _, share, context in self._lookup(tokens):
            frequencies.append(share[scored])
            # −1: the counts do not have this context.
            known.append(context[scored] >= 0)
        shares = torch.stack(frequencies)
        known = torch.stack(known).double()
        return estimate_weights(shares, known, self.task.vocab)

    def _lookup(self, tokens: Tokens) -> list[tuple[Level, TokenScores, Tokens]]:
        """Return for each order the level, f of each position's n-gram, and its context index."""
        vocab = self.task.vocab
        number = torch.zeros_like(tokens)
        found = []
        for k, level in enumerate(self.levels):
            if k:
                token = shift(tokens, k)
            else:
                token = torch.zeros_like(tokens)
            key = extend_keys(number, token, vocab)
            number = lookup(level.contexts, key)
            longer = extend_keys(number, tokens, vocab)
            gram = lookup(level.grams, longer)
            share = take(level.share, gram, 0.0)
            found.append((level, share, number))
        return found

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        t = torch.arange(tokens.shape[1], device=tokens.device)
        # In float64: products of many small shares would lose digits of rare tokens.
        ones = torch.ones_like(tokens, dtype=torch.float64)
        uniform = ones / self.task.vocab
        p = uniform
        for k, (level, share, context) in enumerate(self._lookup(tokens)):
            below = uniform
            if self.config.smoothing.interpolates:
                below = p
            backoff = take(level.backoff, context, 1.0)
            longer = share + backoff * below
            # No context of k tokens ends before position k.
            p = torch.where(t < k, p, longer)
        scores = p[:, 1:].log()
        return scores.to(torch.get_default_dtype())

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        batch = len(prefix)
        vocab = self.task.vocab
        uniform = torch.full(
            (batch, vocab),
            1 / vocab,
            dtype=torch.float64,
            device=prefix.device,
        )
        # Contexts are read at the position after the prefix; the token there is not used.
        extended = pad(prefix, (0, 1))
        p = uniform
        orders = prefix.shape[1] + 1
        usable = self._lookup(extended)[:orders]
        for level, _, contexts in usable:
            below = uniform
            if self.config.smoothing.interpolates:
                below = p
            context = contexts[:, -1]
            backoff = take(level.backoff, context, 1.0)
            shares = _dense_shares(level, context, vocab)
            p = shares + backoff[:, None] * below
        scores = p.log()
        return scores.to(torch.get_default_dtype())


def _dense_shares(level: Level, context: Int[Tensor, "B"], vocab: int) -> NextScores:
    """Return f of every token after each context, 0 for n-grams that do not occur."""
    # The n-grams of a context are consecutive, because keys are sorted. Context −1 has none.
    batch = len(context)
    lowest = context * vocab
    first = torch.searchsorted(level.grams, lowest)
    end = torch.searchsorted(level.grams, lowest + vocab)
    counts = end - first
    rows = torch.arange(batch, device=context.device)
    rows = rows.repeat_interleave(counts)
    row_begins = counts.cumsum(0) - counts
    number = torch.arange(len(rows), device=context.device)
    within = number - row_begins[rows]
    grams = first[rows] + within
    words = level.grams[grams] % vocab
    shares = level.share.new_zeros(batch, vocab)
    return shares.index_put((rows, words), level.share[grams])
