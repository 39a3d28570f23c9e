"""Token strings and their ids. The first ids are always `<pad> <start> <end> <unk>`.

A word of a text that is spelled like one of the first three is an ordinary word: its token has an
apostrophe, `<pad>'`, and so have `<pad>'`, `<pad>''` and so on, so that no two words share a token.
`<unk>` in a text is the unknown word, as in PTB and WikiText.

`<unk>` in the training split: some occurrences of rare words are replaced by it.

    c_w       occurrences of the word w in the training split, N = Σ_w c_w
    n_1       number of words that occur once
    p_w = z / (z + c_w)           probability that an occurrence of w becomes `<unk>`
    Σ_w c_w p_w = n_1 − u         determines z; u is the number of `<unk>` before

n_1 / N is the estimate of Good and Turing of the probability that the next word is new. So a model
learns how probable `<unk>` is and where it occurs. On the words of Multi30k z = 0.62, so 38 % of
the words that occur once are replaced, and the others are trained as before. Without the
replacement, a vocabulary of all training words leaves `<unk>` out of the training split, and every
unknown word of the test split costs the loss of an event that was never seen.

The draw depends on the sentences alone: runs with different seeds have the same corpus. At most
half of the words are replaced, which matters only for texts of words that hardly ever occur twice.

Source: Good 1953; Gale & Sampson 1995; replacement: Kiperwasser & Goldberg 2016 (arXiv:1603.04351),
where z = 0.25; Dyer et al. 2015 (arXiv:1505.08075).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from math import fsum
from random import Random
from typing import Annotated, Any

import torch
from jaxtyping import Integer
from pydantic import Field
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.base.seeds import derive_seed
from lmzoo.contract import UNKNOWN

SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")
RESERVED = SPECIALS[:UNKNOWN]
"""Special tokens that no word of a text becomes."""


def token_of(word: str) -> str:
    """Return the token of a word: the word, marked if it is spelled like a special token."""
    return f"{word}'" if word.rstrip("'") in RESERVED else word


def word_of(token: str) -> str:
    """Return the word of a token that is not special; the inverse of `token_of`."""
    return token[:-1] if token.endswith("'") and token.rstrip("'") in RESERVED else token


@dataclass(frozen=True)
class Vocabulary:
    """A one-to-one map from token strings to ids 0..V-1."""

    tokens: tuple[str, ...]
    joiner: str = " "
    """Separates tokens in decoded text: a blank for words, empty for characters."""
    left_out: int = field(default=0, compare=False)
    """Words of the training text that have no token, because they are rare or beyond the limit."""
    ids: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)
    """Word -> id, and `<unk>`."""

    def __post_init__(self) -> None:
        assert self.tokens[: len(SPECIALS)] == SPECIALS
        assert len(set(self.tokens)) == len(self.tokens)
        first = self.tokens[: len(RESERVED)]
        self.ids.update({token: i for i, token in enumerate(self.tokens)})
        for token in first:
            del self.ids[token]
        for token in [token for token in self.ids if word_of(token) != token]:
            self.ids[word_of(token)] = self.ids.pop(token)

    def __repr__(self) -> str:
        shown = " ".join(self.tokens[len(SPECIALS) :][:8])
        return f"vocabulary of {len(self):,}: {shown} ..."

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of the tokens; unknown tokens become `<unk>`."""
        return list(map(self.ids.get, tokens, repeat(UNKNOWN)))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text up to `<end>` or the first `<pad>`, without `<start>`."""
        tokens = []
        for i in ids:
            if self.tokens[i] in ("<end>", "<pad>"):
                break
            if self.tokens[i] != "<start>":
                tokens.append(self.tokens[i])
        return self.join(tokens)

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text: its words, or its characters if the joiner is empty."""
        return text.split() if self.joiner else list(text)

    def join(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens, which are not `<start>`, `<end>` or `<pad>`."""
        return self.joiner.join(map(word_of, tokens))


def build_vocabulary(
    sentences: Iterable[Sequence[str]], *, joiner: str = " ", limit: int = 0, min_count: int = 1
) -> Vocabulary:
    """Build a vocabulary of at most `limit` tokens by falling count, ties in alphabetical order.

    The special tokens come first and count towards `limit`; 0 is no limit. Tokens that occur fewer
    than `min_count` times are left out.
    """
    counts = Counter(chain.from_iterable(sentences))
    return rank_tokens(counts, joiner=joiner, limit=limit, min_count=min_count)


def rank_tokens(
    counts: Mapping[str, int], *, joiner: str = " ", limit: int = 0, min_count: int = 1
) -> Vocabulary:
    """Build the vocabulary of counted words; see `build_vocabulary`.

    Raises:
        UserError: The limit leaves no token but the special ones.
    """
    if 0 < limit <= len(SPECIALS):
        raise UserError(
            f"vocab={limit} has room for special tokens only ({' '.join(SPECIALS)}); set at least "
            f"{len(SPECIALS) + 1}, or 0 for no limit"
        )
    words = [word for word in counts if word != SPECIALS[UNKNOWN]]
    ranked = sorted((w for w in words if counts[w] >= min_count), key=lambda w: (-counts[w], w))
    kept = ranked[: max(0, limit - len(SPECIALS))] if limit else ranked
    tokens = (*SPECIALS, *map(token_of, kept))
    return Vocabulary(tokens, joiner, left_out=len(words) - len(kept))


UNK = SPECIALS[UNKNOWN]
TrainUnk = Annotated[bool, Field(exclude_if=bool)]
"""A config field for `replace_rare_words`.

True is not written into configs: corpora without unknown words keep their identity, and those with
unknown words have another fingerprint.
"""


def replace_rare_words(
    sentences: Sequence[Sequence[str]], vocabulary: Vocabulary
) -> Sequence[Sequence[str]]:
    """Return the training sentences with a share of n_1 / N of their words as `<unk>`.

    The sentences are returned as they are if so many words are not in the vocabulary already.
    """
    counts = Counter(chain.from_iterable(sentences))
    unknown = sum(c for w, c in counts.items() if w == UNK or w not in vocabulary.ids)
    singletons = sum(c == 1 for c in counts.values())
    known = {w: c for w, c in counts.items() if w != UNK and w in vocabulary.ids}
    wanted = min(singletons, counts.total() // 2) - unknown
    if wanted <= 0:
        return sentences
    z = replacement_constant(known, float(wanted))
    # A word that is not in the vocabulary becomes `<unk>` in any case.
    chance = {word: z / (z + count) for word, count in known.items()}

    def read() -> Iterator[Sequence[str]]:
        draw = Random(derive_seed(0, "unknown words")).random
        for sentence in sentences:
            yield [UNK if draw() < chance.get(word, 0.0) else word for word in sentence]

    return Reread(len(sentences), read)


class Reread(Sequence[Sequence[str]]):
    """Sentences that are made again whenever they are read, because words need much memory."""

    def __init__(self, count: int, read: Callable[[], Iterable[Sequence[str]]]) -> None:
        self._count, self._read = count, read

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence[str]]:
        return iter(self._read())

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


def replace_rare_ids(
    train: Integer[Tensor, "n"], valid: Integer[Tensor, "m"], test: Integer[Tensor, "k"]
) -> Integer[Tensor, "n"]:
    """Return the ids of a training text with a share of n_1 / N of its words as `<unk>`.

    The ids are returned as they are if validation and test have no `<unk>`, or if training has as
    many `<unk>` as words that occur once.
    """
    if not any(bool((part == UNKNOWN).any()) for part in (valid, test)):
        return train
    counts = torch.bincount(train.int()).tolist()
    singletons = sum(count == 1 for count in counts[UNKNOWN + 1 :])
    wanted = min(singletons, len(train) // 2) - sum(counts[UNKNOWN : UNKNOWN + 1])
    if wanted <= 0:
        return train
    known = {str(i): count for i, count in enumerate(counts) if count and i > UNKNOWN}
    z = replacement_constant(known, float(wanted))
    chance = torch.tensor([z / (z + count) if i > UNKNOWN else 0 for i, count in enumerate(counts)])
    generator = torch.Generator().manual_seed(derive_seed(0, "unknown words"))
    drawn = torch.rand(len(train), generator=generator, device="cpu")
    return train.masked_fill(drawn < chance[train.int()], UNKNOWN)


def replacement_constant(counts: Mapping[str, int], wanted: float) -> float:
    """Return z so that Σ_w c_w z / (z + c_w) = `wanted`, which must be below Σ_w c_w.

    The sum increases with z, so z is found by bisection. `fsum` makes it independent of the order.
    """
    repeated = Counter(counts.values())

    def expected(z: float) -> float:
        return fsum(n * c * z / (z + c) for c, n in repeated.items())

    low, high = 0.0, 1.0
    while expected(high) < wanted:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if expected(middle) < wanted else (low, middle)
    return high
