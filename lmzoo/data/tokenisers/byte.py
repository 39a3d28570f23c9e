"""Bytes of UTF-8: a vocabulary that no text leaves, as in byte-level models of enwik8.

Source: Al-Rfou et al. 2019 (arXiv:1808.04444).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lmzoo.data.tokenisers.base import Ids, Tokeniser
from lmzoo.data.vocabulary import SPECIALS, Vocabulary

NAMES = tuple(f"<0x{byte:02X}>" for byte in range(256))


class ByteVocabulary(Vocabulary):
    """The 256 bytes by their hexadecimal names; decoded text shows broken characters as U+FFFD."""

    def split(self, text: str) -> list[str]:
        return [NAMES[byte] for byte in text.encode()]

    def join(self, tokens: Iterable[str]) -> str:
        raw = (
            token.encode() if token in SPECIALS else bytes([int(token[3:5], 16)])
            for token in tokens
        )
        return b"".join(raw).decode(errors="replace")


class Bytes(Tokeniser):
    """One token per byte."""

    name = "byte"

    def fit(self, text: memoryview) -> None:
        del text
        self.restore({})

    def encode(self, text: bytes) -> Ids:
        return np.frombuffer(text, dtype=np.uint8).astype(np.int16) + len(SPECIALS)

    def restore(self, facts: Mapping[str, Any]) -> None:
        del facts
        self.vocabulary = ByteVocabulary((*SPECIALS, *NAMES), joiner="")
