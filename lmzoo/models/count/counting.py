r"""Raw and continuation counts of all n-grams of all orders, and their sorted tables.

    raw(g)           number of occurrences of g
    continuation(g)  number of different tokens that occur before g

n-grams are sorted integer keys. continuation(g) is the number of different n-grams of the next
order that end in g. The key of a context of k tokens contains the index of the context that is one
token shorter, so that all its suffixes are looked up on the way and every key fits 64 bits:

    context key   index(s_{t-k+1..t-1}) · V + s_{t-k}
    n-gram key    index(s_{t-k..t-1}) · V + s_t

A `Level` stores the sorted keys of one k, the back-off weight γ of each context and the share f of
each n-gram, as used in P_k(w | h) = f(h w) + γ(h) P_{k-1}(w | h').
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmzoo.contract import START
from lmzoo.functional.token_scores import scored_mask


class Level(nn.Module):
    """Contexts of one length and the n-grams that extend them by one token."""

    contexts: Tensor
    grams: Tensor
    backoff: Tensor
    share: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("contexts", "grams"):
            self.register_buffer(name, torch.empty(0, dtype=torch.int64))
        for name in ("backoff", "share"):
            self.register_buffer(name, torch.empty(0, dtype=torch.float64))
        self.register_load_state_dict_pre_hook(_resize_buffers)

    def set_tables(self, contexts: Tensor, grams: Tensor, backoff: Tensor, share: Tensor) -> None:
        """Replace the level's tables."""
        self.contexts, self.grams, self.backoff, self.share = contexts, grams, backoff, share


def _resize_buffers(level: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Resize the buffers to a checkpoint's sizes, which depend on the training data."""
    for name, old in list(level.named_buffers()):
        if prefix + name in state:
            setattr(level, name, old.new_empty(state[prefix + name].shape))


def lookup(table: Int[Tensor, "K"], keys: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
    """Return the index of each key in a sorted table, −1 for keys that are not in it."""
    if len(table) == 0:
        return torch.full_like(keys, -1)
    index = torch.searchsorted(table, keys).clamp_max(len(table) - 1)
    return index.where(table[index] == keys, -1)


def shift(tokens: Int[Tensor, "B T"], back: int) -> Int[Tensor, "B T"]:
    """Return s_{t-back} at each t, −1 before the sequence: no n-gram extends beyond `<start>`."""
    return nn.functional.pad(tokens, (back, 0), value=-1)[:, : tokens.shape[1]]


def extend_keys(
    shorter: Int[Tensor, "*N"], token: Int[Tensor, "*N"], vocab: int
) -> Int[Tensor, "*N"]:
    """Return the keys of contexts or n-grams; −1 where either part is missing."""
    return torch.where((shorter < 0) | (token < 0), -1, shorter * vocab + token)


def take(
    values: Float[Tensor, "K"], index: Int[Tensor, "*N"], missing: float
) -> Float[Tensor, "*N"]:
    """Return the value at each index, `missing` at index −1."""
    if len(values) == 0:
        return torch.full(index.shape, missing, dtype=values.dtype, device=index.device)
    return values[index.clamp_min(0)].where(index >= 0, missing)


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
        return values.new_zeros(len(self.contexts)).index_add(0, self.context, values)


def count_ngrams(
    tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"], order: int, vocab: int
) -> list[Counts]:
    """Count the n-grams of orders 1..order that end in a scored token."""
    return [*islice(count_orders(tokens, lengths, vocab), order)]


def count_orders(
    tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"], vocab: int
) -> Iterator[Counts]:
    """Yield the n-grams of orders 1, 2, ..."""
    scored = scored_mask(tokens, lengths)
    number = torch.zeros_like(tokens)
    last: Counts | None = None
    for k in count():
        token = shift(tokens, k) if k else torch.zeros_like(tokens)
        key = extend_keys(number, token, vocab).masked_fill(~scored, -1)
        known = key >= 0
        contexts = key[known].unique()
        number = lookup(contexts, key)
        grams, raw = extend_keys(number, tokens, vocab)[known].unique(return_counts=True)
        context = grams // vocab
        parent, first = contexts[context] // vocab, contexts[context] % vocab
        word = grams % vocab
        suffix = lookup(last.grams, parent * vocab + word) if last else torch.zeros_like(grams)
        has_start = (first if k else word) == START
        last = Counts(contexts, grams, context, raw, suffix, has_start)
        yield last


def adjusted_counts(levels: list[Counts]) -> list[Tensor]:
    """Return raw counts for the highest order and continuation counts for the lower ones.

    An n-gram that begins with `<start>` has no predecessor and keeps its raw count (Heafield et al.
    2013).
    """
    lower = []
    for level, above in pairwise(levels):
        continuation = torch.bincount(above.suffix, minlength=len(level.raw))
        lower.append(torch.where(level.has_start, level.raw, continuation))
    return [*lower, levels[-1].raw]
