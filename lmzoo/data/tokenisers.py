r"""Tokenisers of contiguous texts: fit a vocabulary to a training text, and encode texts with it.

    char   a Unicode code point           vocabulary of the training split, others are `<unk>`
    word   a word, or a newline           vocabulary of the training split, others are `<unk>`
    byte   a byte of UTF-8                256 tokens, no `<unk>`
    bpe    a piece of a word              trained on the training split

Texts are UTF-8. They are encoded in stretches of about one megabyte, so that a text of gigabytes
needs little more memory than its ids. Words are never cut: a stretch of words or of byte pairs ends
before a blank or a newline. The byte pairs of GPT-2's pattern are the same in stretches as in the
whole text.

PTB and WikiText count the end of a line as a word, `<eos>`. Here it is the token "\n". Two blanks
are one, so bits per character of models by word are slightly too low beside those by character.
Where validation or test has words that training has not, some rare training words become `<unk>`,
as `vocabulary.py` defines, unless the training text has `<unk>` itself.

Trained byte pairs have GPT-2's pattern and all bytes as first tokens, so they need no `<unk>`; they
are a function of the training text and V. The special tokens of a corpus come first.

Source: Mikolov et al. 2010 and Merity et al. 2017 (arXiv:1609.07843; words); Al-Rfou et al. 2019
(arXiv:1808.04444; bytes); Sennrich et al. 2016 (arXiv:1508.07909) and Radford et al. 2019 (byte
pairs).
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Integer, UInt32
from pydantic import Field, model_validator
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.contract import UNKNOWN
from lmzoo.data.corpus import token_dtype
from lmzoo.data.vocabulary import (
    SPECIALS,
    Vocabulary,
    rank_tokens,
    replace_rare_ids,
    token_of,
    word_of,
)

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

    @model_validator(mode="after")
    def _check_unit(self) -> "TokeniserConfig":
        if self.vocab and self.unit not in ("word", "bpe"):
            raise UserError(f"vocab={self.vocab} needs unit=word or unit=bpe, not {self.unit}")
        if self.min_count > 1 and self.unit != "word":
            raise UserError(f"min_count={self.min_count} needs unit=word, not {self.unit}")
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


SUBWORD = "subword"
"""The unit of byte pairs in words."""
DEFAULT = 8192
"""Vocabulary size of a trained encoding."""
LEAST = 256 + len(SPECIALS)
"""Size of a vocabulary of bytes alone."""


@dataclass(frozen=True)
class SubwordVocabulary(Vocabulary):
    """The tokens of a `tokenizer.json`, after the special tokens."""

    json: str = ""
    """Content of the `tokenizer.json`."""
    tokenizer: Any = field(init=False, repr=False, compare=False, default=None)
    shifted: np.ndarray = field(init=False, repr=False, compare=False, default=None)  # type: ignore[assignment]
    """Id in the `tokenizer.json` -> id in this vocabulary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        tokenizer = _tokenizers().Tokenizer.from_str(self.json)
        object.__setattr__(self, "tokenizer", tokenizer)
        known = tokenizer.get_vocab()
        shifted = np.full(max(known.values()) + 1, UNKNOWN, dtype=np.int32)
        for token, i in known.items():
            shifted[i] = self.ids[token]
        object.__setattr__(self, "shifted", shifted)

    def split(self, text: str) -> list[str]:
        return self.tokenizer.encode(text, add_special_tokens=False).tokens

    def join(self, tokens: Iterable[str]) -> str:
        ids = [self.tokenizer.token_to_id(word_of(token)) for token in tokens]
        return self.tokenizer.decode([i for i in ids if i is not None], skip_special_tokens=False)


class Subwords(Tokeniser):
    """One token per merged pair of bytes."""

    name, at_blanks = SUBWORD, True

    def fit(self, text: memoryview) -> None:
        parts = (part.decode() for part in self.stretches(text))
        self._set(learn_subwords(parts, self.config.vocab))

    def encode(self, text: bytes) -> Ids:
        encoding = self._tokenizer.encode(text.decode(), add_special_tokens=False)
        return self._shifted[np.array(encoding.ids, dtype=np.int64)]

    def facts(self) -> dict[str, Any]:
        return {"json": self._json}

    def restore(self, facts: Mapping[str, Any]) -> None:
        self._set(_subword_vocabulary(facts["json"]))

    def _set(self, vocabulary: SubwordVocabulary) -> None:
        self.vocabulary, self._json = vocabulary, vocabulary.json
        self._tokenizer, self._shifted = vocabulary.tokenizer, vocabulary.shifted


def _subword_vocabulary(content: str) -> SubwordVocabulary:
    tokenizer = _tokenizers().Tokenizer.from_str(content)
    ranked = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    own = [token_of(token) for token, _ in ranked]
    tokens = (*SPECIALS, *(token for token in own if token not in SPECIALS))
    return SubwordVocabulary(tokens, joiner="", json=content)


def learn_subwords(texts: Iterable[str], limit: int) -> SubwordVocabulary:
    """Return a vocabulary of at most `limit` byte pairs of training texts; 0: `DEFAULT`.

    Raises:
        UserError: The limit has no room for the bytes.
    """
    size = limit or DEFAULT
    if size < LEAST:
        raise UserError(
            f"vocab={size} is too small for byte pairs; the bytes and the special "
            f"tokens are {LEAST}"
        )
    library = _tokenizers()
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size - len(SPECIALS),
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _subword_vocabulary(tokenizer.to_str())


def _tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError:
        raise UserError(
            "unit=bpe needs the package tokenizers; run: pip install tokenizers"
        ) from None
    return tokenizers


TOKENISERS: dict[str, type[Tokeniser]] = {
    "char": Characters,
    "word": Words,
    "byte": Bytes,
    "bpe": Subwords,
}


def new_tokeniser(config: TokeniserConfig) -> Tokeniser:
    """Return the tokeniser of a config."""
    return TOKENISERS[config.unit](config)
