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
from itertools import chain, repeat, takewhile
from math import fsum
from random import Random
from typing import Annotated, Any, Self, TypeVar

import torch
from jaxtyping import Integer
from pydantic import Field
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.base.seeds import derive_seed
from lmzoo.contract import END, PAD, START, UNKNOWN

K = TypeVar("K")
AT_ONCE = 2**20
"""Tokens that are converted at a time."""
SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")
RESERVED = SPECIALS[:UNKNOWN]
"""Special tokens that no word of a text becomes."""
UNK = SPECIALS[UNKNOWN]


def token_of(word: str) -> str:
    """Return the token of a word: the word, marked if it is spelled like a special token."""
    # A word of the text that is spelled like a special token is not that token.
    if word.rstrip("'") in RESERVED:
        return f"{word}'"
    return word


def word_of(token: str) -> str:
    """Return the word of a token that is not special; the inverse of `token_of`."""
    if token.endswith("'") and token.rstrip("'") in RESERVED:
        return token[:-1]
    return token


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

    def __post_init__(self):
        assert self.tokens[: len(SPECIALS)] == SPECIALS
        assert len(set(self.tokens)) == len(self.tokens)
        words = map(word_of, self.tokens[UNKNOWN:])
        for i, word in enumerate(words, UNKNOWN):
            self.ids[word] = i

    @classmethod
    def ranked(
        cls,
        counts: Mapping[str, int],
        *,
        joiner: str = " ",
        limit: int = 0,
        min_count: int = 1,
    ) -> Self:
        """Build a vocabulary of at most `limit` tokens by falling count, ties by the alphabet.

        The special tokens come first and count towards `limit`; 0 is no limit. Tokens that occur
        fewer than `min_count` times are left out. A `UserError` says that the limit leaves special
        tokens only.
        """
        if 0 < limit <= len(SPECIALS):
            raise UserError(
                f"vocab={limit} has room for special tokens only ({' '.join(SPECIALS)}); set at "
                f"least {len(SPECIALS) + 1}, or 0 for no limit"
            )
        # A text may have `<unk>` in it: it is the special token.
        words = [word for word in counts if word != UNK]
        frequent = [word for word in words if counts[word] >= min_count]
        # The alphabet decides among equal counts: the order of a file must not.
        kept = sorted(frequent, key=lambda word: (-counts[word], word))
        if limit:
            kept = kept[: max(0, limit - len(SPECIALS))]
        tokens = SPECIALS + tuple(map(token_of, kept))
        return cls(tokens, joiner, left_out=len(words) - len(kept))

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
        read = takewhile(lambda i: i not in (PAD, END), ids)
        return self.join(self.tokens[i] for i in read if i != START)

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text: its words, or its characters if the joiner is empty."""
        if self.joiner:
            return text.split()
        return list(text)

    def join(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens, which are not `<start>`, `<end>` or `<pad>`."""
        return self.joiner.join(map(word_of, tokens))


def build_vocabulary(sentences: Iterable[Sequence[str]], **options: Any) -> Vocabulary:
    """Build the vocabulary of sentences; `options` are those of `Vocabulary.ranked`."""
    return Vocabulary.ranked(Counter(chain.from_iterable(sentences)), **options)


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
    # Words outside the vocabulary are `<unk>` anyway.
    known = {
        word: count for word, count in counts.items() if word != UNK and word in vocabulary.ids
    }
    unknown = counts.total() - sum(known.values())
    singletons = sum(count == 1 for count in counts.values())
    chance = _chances(known, singletons, unknown)
    if not chance:
        return sentences

    # A word that is not in the vocabulary becomes `<unk>` in any case.
    def read() -> Iterator[Sequence[str]]:
        # A new generator at each reading: the sentences are the same every time.
        draw = Random(derive_seed(0, "unknown words")).random
        for sentence in sentences:
            shown = []
            for word in sentence:
                # Drawn for each word, whatever its chance: so the draws stay the same.
                if draw() < chance.get(word, 0.0):
                    word = UNK
                shown.append(word)
            yield shown

    return Reread(len(sentences), read)


class Reread(Sequence[Sequence[str]]):
    """Sentences that are made again whenever they are read, because words need much memory."""

    def __init__(self, count: int, read: Callable[[], Iterable[Sequence[str]]]):
        self._count = count
        self._read = read

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence[str]]:
        # Read again each time: the sentences are not held in memory.
        return iter(self._read())

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


class Lines(Reread):
    """The words of lines."""

    def __init__(self, lines: list[str]):
        super().__init__(len(lines), self._words)
        self._lines = lines
        self._is_last = False
        """Whether the next reading is the last one."""

    def give_up(self, *, read: bool):
        """Give up the lines; those that are `read` once more, each as it is read."""
        self._is_last = True
        if not read:
            self._lines.clear()

    def _words(self) -> Iterator[list[str]]:
        for place, line in enumerate(self._lines):
            if self._is_last:
                self._lines[place] = ""
            yield line.split()


def replace_rare_ids(
    train: Integer[Tensor, "n"],
    valid: Integer[Tensor, "m"],
    test: Integer[Tensor, "k"],
) -> Integer[Tensor, "n"]:
    """Return the ids of a training text with a share of n_1 / N of its words as `<unk>`.

    The ids are returned as they are if validation and test have no `<unk>`, or if training has as
    many `<unk>` as words that occur once.
    """
    has_unknown = any((part == UNKNOWN).any() for part in (valid, test))
    if not len(train) or not has_unknown:
        return train
    counts = token_counts(train, int(train.max()) + 1).tolist()
    known = {i: count for i, count in enumerate(counts) if count and i > UNKNOWN}
    singletons = sum(count == 1 for count in known.values())
    found = _chances(known, singletons, len(train) - sum(known.values()))
    if not found:
        return train
    chances = [found.get(i, 0.0) for i in range(len(counts))]
    chance = torch.tensor(chances)
    generator = torch.Generator().manual_seed(derive_seed(0, "unknown words"))
    replaced = train.clone()
    # In parts: random numbers of a large text would need eight times its memory.
    for part in replaced.split(AT_ONCE):
        drawn = torch.rand(len(part), generator=generator, device="cpu")
        part.masked_fill_(drawn < chance[part.int()], UNKNOWN)
    return replaced


def token_counts(ids: Integer[Tensor, "n"], vocab: int) -> Integer[Tensor, "V"]:
    """Return how often each id occurs; `bincount` alone needs eight bytes a token."""
    parts = (part.int().bincount(minlength=vocab) for part in ids.split(AT_ONCE))
    return sum(parts, start=torch.zeros(vocab, dtype=torch.int64))


def _chances(known: Mapping[K, int], singletons: int, unknown: int) -> dict[K, float]:
    """Return p_w of each known word; {} if so many words are unknown already."""
    # As many as a text of this size would have new words (Good-Turing), at most half.
    wanted = min(singletons, (sum(known.values()) + unknown) // 2) - unknown
    z = 0.0
    if wanted > 0:
        z = replacement_constant(known, float(wanted))
    if z:
        return {word: z / (z + count) for word, count in known.items()}
    return {}


def replacement_constant(counts: Mapping[Any, int], wanted: float) -> float:
    """Return z so that Σ_w c_w z / (z + c_w) = `wanted`, which must be below Σ_w c_w.

    The sum increases with z, so z is found by bisection. `fsum` makes it independent of the order.
    """
    repeated = Counter(counts.values())

    def expected(z: float) -> float:
        return fsum(n * c * z / (z + c) for c, n in repeated.items())

    low = 0.0
    high = 1.0
    # Doubled until it is large enough, then halved between.
    while expected(high) < wanted:
        low = high
        high = 2 * high
    while True:
        middle = (low + high) / 2
        if not low < middle < high:  # no number is between them
            return high
        if expected(middle) < wanted:
            low = middle
        else:
            high = middle
