r"""`<unk>` in the training split: some occurrences of rare words are replaced by it.

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
from itertools import chain
from math import fsum
from random import Random
from typing import Annotated, Any

import torch
from jaxtyping import Integer
from pydantic import Field
from torch import Tensor

from lmzoo.base.seeds import derive_seed
from lmzoo.contract import UNKNOWN
from lmzoo.data.vocabulary import SPECIALS, Vocabulary

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
