r"""Words: what is between blanks, and a token for every newline, as in published results.

PTB and WikiText count the end of a line as a word, `<eos>`. Here it is the token "\n". Two blanks
are one, so bits per character of models by word are slightly too low beside those by character.

Where validation or test has words that training has not, some rare training words become `<unk>`,
as `unknown.py` defines, unless the training text has `<unk>` itself.

Source: Mikolov et al. 2010; Merity et al. 2017 (arXiv:1609.07843).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from lmzoo.contract import UNKNOWN
from lmzoo.data.tokenisers.base import Ids, Tokeniser
from lmzoo.data.unknown import replace_rare_ids
from lmzoo.data.vocabulary import Vocabulary, rank_tokens, word_of

NEWLINE = "\n"


class WordVocabulary(Vocabulary):
    """Words and the newline."""

    def split(self, text: str) -> list[str]:
        return split_words(text)

    def join(self, tokens: Iterable[str]) -> str:
        return re.sub(r" ?\n ?", NEWLINE, " ".join(map(word_of, tokens)))


class Words(Tokeniser):
    """One token per word and per newline."""

    name, at_blanks = "word", True

    def fit(self, text: memoryview) -> None:
        counts: Counter[str] = Counter()
        for part in self.stretches(text):
            counts.update(split_words(part.decode()))
        ranked = rank_tokens(counts, limit=self.config.vocab, min_count=self.config.min_count)
        self.vocabulary = WordVocabulary(ranked.tokens, left_out=ranked.left_out)

    def encode(self, text: bytes) -> Ids:
        known = self.vocabulary.ids.get
        return np.array([known(word, UNKNOWN) for word in split_words(text.decode())], np.int32)

    def prepare(self, train: Tensor, valid: Tensor, test: Tensor) -> Tensor:
        return replace_rare_ids(train, valid, test)

    def restore(self, facts: Mapping[str, Any]) -> None:
        self.vocabulary = WordVocabulary(tuple(facts["tokens"]), left_out=facts["left_out"])


def split_words(text: str) -> list[str]:
    """Return the words of a text, with a token for every newline."""
    lines = [line.split() for line in text.split(NEWLINE)]
    for line in lines[:-1]:
        line.append(NEWLINE)
    return [word for line in lines for word in line]
