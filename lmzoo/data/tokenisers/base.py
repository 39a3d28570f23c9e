"""A tokeniser: fits a vocabulary to a training text and encodes texts with it.

Texts are UTF-8. They are encoded in stretches of about one megabyte, so that a text of gigabytes
needs little more memory than its ids. Words are never cut: a stretch of words or of byte pairs ends
before a blank or a newline. The byte pairs of GPT-2's pattern are the same in stretches as in the
whole text.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Integer
from pydantic import Field, model_validator
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.data.files import sha256_of
from lmzoo.data.vocabulary import Vocabulary

STRETCH = 2**20
"""Bytes that are encoded at a time."""
BLANKS = b" \n\t\r"
Unit = Literal["char", "word", "byte", "bpe"]
Ids = Integer[np.ndarray, "n"]


@config
class TokeniserConfig:
    """The unit of a token, and the vocabulary.

    Defaults are not written into configs: texts by character keep their identity.
    """

    unit: Annotated[Unit, Field(exclude_if=lambda unit: unit == "char")] = "char"
    """The unit of a token: char, word, byte or bpe."""
    vocab: Annotated[int, Field(ge=0, exclude_if=lambda size: size == 0)] = 0
    """Vocabulary size V, the four special tokens included. By word, at most V; 0 is no limit. Byte
    pairs are merged until there are V tokens or no more pairs; 0 is 8192."""
    min_count: Annotated[int, Field(ge=1, exclude_if=lambda count: count == 1)] = 1
    """By word, words that are rarer in the training split become `<unk>`."""
    tokenizer: Annotated[str, Field(exclude_if=lambda path: not path)] = ""
    """With `unit=bpe`, a `tokenizer.json` of Hugging Face's `tokenizers`; empty: train one."""
    tokenizer_sha256: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """SHA-256 of the `tokenizer.json`, a part of the identity of a run; empty: compute it."""
    separator: Annotated[str, Field(exclude_if=lambda text: not text)] = ""
    """A text that trained byte pairs have as one token, such as `<|endoftext|>`. Other tokens
    ignore it."""

    @model_validator(mode="after")
    def _check_unit(self) -> "TokeniserConfig":
        if self.tokenizer and self.unit != "bpe":
            raise UserError(f"tokenizer={self.tokenizer} needs unit=bpe, not {self.unit}")
        if self.vocab and self.unit not in ("word", "bpe"):
            raise UserError(f"vocab={self.vocab} needs unit=word or unit=bpe, not {self.unit}")
        if self.min_count > 1 and self.unit != "word":
            raise UserError(f"min_count={self.min_count} needs unit=word, not {self.unit}")
        if self.tokenizer and self.vocab:
            raise UserError(f"vocab={self.vocab} and tokenizer={self.tokenizer} exclude each other")
        if self.separator and (self.unit != "bpe" or self.tokenizer):  # equal tokens, equal configs
            object.__setattr__(self, "separator", "")
        if self.tokenizer and not self.tokenizer_sha256:
            object.__setattr__(self, "tokenizer_sha256", sha256_of(self.tokenizer))
        return self


class Tokeniser(ABC):
    """Encodes a text; `fit` comes first."""

    name: ClassVar[str]
    """The unit of a token in words, for `Corpus.unit`."""
    at_blanks: ClassVar[bool] = False
    """Whether stretches must not end inside a word."""
    vocabulary: Vocabulary

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def fit(self, text: memoryview) -> None:
        """Set `vocabulary` to that of a training text."""

    @abstractmethod
    def encode(self, text: bytes) -> Ids:
        """Return the ids of a stretch of text."""

    def facts(self) -> dict[str, Any]:
        """Return the vocabulary as plain JSON types, for `restore`."""
        return {"tokens": self.vocabulary.tokens, "left_out": self.vocabulary.left_out}

    @abstractmethod
    def restore(self, facts: Mapping[str, Any]) -> None:
        """Set `vocabulary` from its `facts`."""

    def check(self, name: str, test: memoryview) -> None:
        """Raise a UserError if losses on the test text of corpus `name` would be wrong."""
        del name, test

    def prepare(self, train: Tensor, valid: Tensor, test: Tensor) -> Tensor:
        """Return the ids that train, given those of all splits (n), (m) and (k)."""
        del valid, test
        return train

    def stretches(self, text: memoryview) -> Iterator[bytes]:
        """Yield the text in stretches that `encode` can encode one by one."""
        return cut_stretches(text, at_blanks=self.at_blanks)


def cut_stretches(text: memoryview, *, at_blanks: bool) -> Iterator[bytes]:
    """Yield stretches of about `STRETCH` bytes that contain whole characters or whole words."""
    begin = 0
    while begin < len(text):
        end = min(len(text), begin + STRETCH)
        if end < len(text):
            end = _before_blank(text, begin, end) if at_blanks else character_start(text, end)
        yield bytes(text[begin:end])
        begin = end


def character_start(text: memoryview, place: int) -> int:
    """Return the last place up to `place` at which a character of UTF-8 begins."""
    while 0 < place < len(text) and text[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _before_blank(text: memoryview, begin: int, end: int) -> int:
    """Return the last place up to `end`, or else the first after it, where a blank ends a word."""
    window = bytes(text[begin:end])
    place = max(window.rfind(bytes([blank])) for blank in BLANKS)
    while place > 0 and window[place - 1] in BLANKS:
        place -= 1
    if place > 0:
        return begin + place
    while end < len(text) and not (text[end] in BLANKS and text[end - 1] not in BLANKS):
        end += 1
    return end
