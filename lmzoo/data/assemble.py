"""Token sequences of three splits, and a vocabulary, become a corpus."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lmzoo.data.corpus import Corpus
from lmzoo.data.encode import encode
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.errors import UserError

Sentences = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Split:
    """Token sequences, not yet encoded."""

    train: Sentences
    valid: Sentences
    test: Sentences


def assemble(
    name: str,
    split: Split,
    vocabulary: Vocabulary,
    *,
    length: int,
    end: bool,
    cut_ends: bool = False,
    unit: str,
    source: str,
) -> Corpus:
    """Encode the splits; `length`, `end` and `cut_ends` are those of `encode`.

    Raises:
        UserError: a split holds no sequence, or the vocabulary no token.
    """
    for part, sentences in vars(split).items():
        if not sentences:
            sizes = " + ".join(str(len(other)) for other in vars(split).values())
            raise UserError(
                f"{name}: the {part} split is empty (train + valid + test = {sizes} sequences); "
                "give a longer file"
            )
    if len(vocabulary) == len(SPECIALS):
        raise UserError(f"{name}: no {unit} is frequent enough for the vocabulary; lower min_count")
    ids = partial(encode, vocabulary=vocabulary, length=length, end=end, cut_ends=cut_ends)
    return Corpus(
        name=name,
        vocabulary=vocabulary,
        train=ids(split.train),
        valid=ids(split.valid),
        test=ids(split.test),
        unit=unit,
        source=source,
    )
