"""Characters: Unicode code points."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import UInt32

from lmzoo.contract import UNKNOWN
from lmzoo.data.corpus import token_dtype
from lmzoo.data.tokenisers.base import Ids, Tokeniser
from lmzoo.data.vocabulary import Vocabulary, rank_tokens

CODES = 0x110000


class Characters(Tokeniser):
    """One token per code point; those outside the training split are `<unk>`."""

    name = "character"

    def fit(self, text: memoryview) -> None:
        counts = np.zeros(CODES, dtype=np.int64)
        for part in self.stretches(text):
            found, times = np.unique(_codes(part), return_counts=True)
            counts[found] += times
        present = np.flatnonzero(counts)
        tokens = Counter({chr(code): int(counts[code]) for code in present})
        self._set(rank_tokens(tokens, joiner=""))

    def encode(self, text: bytes) -> Ids:
        return self._table[_codes(text)]

    def restore(self, facts: Mapping[str, Any]) -> None:
        self._set(Vocabulary(tuple(facts["tokens"]), joiner=""))

    def _set(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        dtype = str(token_dtype(len(vocabulary))).removeprefix("torch.")
        self._table = np.full(CODES, UNKNOWN, dtype=dtype)
        for token, i in vocabulary.ids.items():
            if len(token) == 1:
                self._table[ord(token)] = i


def _codes(text: bytes) -> UInt32[np.ndarray, "n"]:
    return np.frombuffer(text.decode().encode("utf-32-le"), dtype=np.uint32)
