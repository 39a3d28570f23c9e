r"""Vocabularies of contiguous texts: learned on the training text, and what encodes all texts.

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Literal, Self

import numpy as np
from jaxtyping import Integer

from lmzoo.base.errors import UserError
from lmzoo.contract import UNKNOWN
from lmzoo.data.vocabulary import SPECIALS, Vocabulary, token_of, word_of

STRETCH = 2**20
"""Bytes that are encoded at a time."""
CODES = 0x110000
"""Code points of Unicode."""
BLANKS = b" \n\t\r"
Unit = Literal["char", "word", "byte", "bpe"]
Ids = Integer[np.ndarray, "n"]


def cut_stretches(text: memoryview, *, at_blanks: bool) -> Iterator[bytes]:
    """Yield stretches of about `STRETCH` bytes that contain whole characters or whole words."""
    begin = 0
    while begin < len(text):
        end = min(len(text), begin + STRETCH)
        if end < len(text):
            # Nothing is lost at either: the next stretch begins where this one ends.
            if at_blanks:
                end = _before_blank(text, begin, end)
            else:
                end = character_start(text, end)
        yield bytes(text[begin:end])
        begin = end


def character_start(text: memoryview, place: int) -> int:
    """Return the last place up to `place` at which a character of UTF-8 begins."""
    # Bytes that continue a character in UTF-8 begin with the bits 10.
    while 0 < place < len(text) and text[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _before_blank(text: memoryview, begin: int, end: int) -> int:
    """Return the last place up to `end`, or else the first after it, where a blank ends a word."""
    window = bytes(text[begin:end])
    # A blank is left to the next stretch, so that a word of byte pairs keeps its blank.
    place = max(window.rfind(bytes([blank])) for blank in BLANKS)
    while place > 0 and window[place - 1] in BLANKS:
        place -= 1
    if place > 0:
        return begin + place
    # No blank in the stretch: it grows until the next one.
    while end < len(text) and (text[end] not in BLANKS or text[end - 1] in BLANKS):
        end += 1
    return end


class TextVocabulary(Vocabulary, ABC):
    """A vocabulary that encodes a contiguous text in stretches."""

    unit: ClassVar[str]
    """The unit of a token in words, for `Corpus.unit`."""
    at_blanks: ClassVar[bool] = False
    """Whether stretches must not end inside a word."""

    @classmethod
    @abstractmethod
    def learn(cls, texts: Iterable[str], limit: int = 0, min_count: int = 1) -> Self:
        """Return the vocabulary of the stretches of a training text."""

    @abstractmethod
    def read(self, text: bytes) -> Ids:
        """Return the ids of a stretch of text."""


class Characters(TextVocabulary):
    """One token per code point; those outside the training split are `<unk>`."""

    unit = "character"

    @classmethod
    def learn(cls, texts: Iterable[str], limit: int = 0, min_count: int = 1) -> Self:
        # Counts of all code points: an array is faster than a counter of characters.
        counts = np.zeros(CODES, dtype=np.int64)
        for text in texts:
            counts += np.bincount(_codes(text), minlength=CODES)
        found = {chr(code): int(counts[code]) for code in np.flatnonzero(counts)}
        return cls.ranked(found, joiner="", limit=limit, min_count=min_count)

    def read(self, text: bytes) -> Ids:
        codes = _codes(text.decode())
        table = np.full(CODES, UNKNOWN, dtype=np.int32)
        for token, i in self.ids.items():
            # Special tokens are longer.
            if len(token) == 1:
                table[ord(token)] = i
        return table[codes]


def _codes(text: str) -> Integer[np.ndarray, "n"]:
    """Return the code points of a text."""
    # Four bytes for each character: its code.
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)


class Words(TextVocabulary):
    """One token per word and per newline."""

    unit = "word"
    at_blanks = True

    @classmethod
    def learn(cls, texts: Iterable[str], limit: int = 0, min_count: int = 1) -> Self:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(split_words(text))
        return cls.ranked(counts, limit=limit, min_count=min_count)

    def read(self, text: bytes) -> Ids:
        return np.array(self.encode(split_words(text.decode())), np.int32)

    def split(self, text: str) -> list[str]:
        return split_words(text)

    def join(self, tokens: Iterable[str]) -> str:
        # `join` puts blanks around a newline, too.
        return re.sub(r" ?\n ?", "\n", super().join(tokens))


def split_words(text: str) -> list[str]:
    """Return the words of a text, with a token for every newline."""
    words = []
    for line in text.split("\n"):
        words += line.split()
        words.append("\n")
    words.pop()  # no newline ends the last line
    return words


NAMES = tuple(map("<0x{:02X}>".format, range(256)))


class Bytes(TextVocabulary):
    """The 256 bytes by their hexadecimal names; decoded text shows broken characters as U+FFFD."""

    unit = "byte"

    @classmethod
    def learn(cls, texts: Iterable[str], limit: int = 0, min_count: int = 1) -> Self:
        # All bytes are known: nothing is learned.
        del texts, limit, min_count
        return cls(SPECIALS + NAMES, joiner="")

    def read(self, text: bytes) -> Ids:
        return np.frombuffer(text, dtype=np.uint8).astype(np.int16) + len(SPECIALS)

    def split(self, text: str) -> list[str]:
        return [NAMES[byte] for byte in text.encode()]

    def join(self, tokens: Iterable[str]) -> str:
        raw = bytearray()
        for token in tokens:
            if token in SPECIALS:
                raw += token.encode()
            else:
                raw += bytes([int(token[3:5], 16)])  # <0xAB>
        return raw.decode(errors="replace")


DEFAULT = 8192
"""Vocabulary size of a trained encoding."""
LEAST = 256 + len(SPECIALS)
"""Size of a vocabulary of bytes alone."""
LONG = re.compile(r"\S{1000}(?=\S)")
"""Where byte pairs are learned, words end here: the time grows with the square of a word."""


@dataclass(frozen=True, repr=False)
class Subwords(TextVocabulary):
    """Merged pairs of bytes: the tokens of a `tokenizer.json`, after the special tokens."""

    json: str = ""
    """Content of the `tokenizer.json`."""
    unit = "subword"
    at_blanks = True

    @classmethod
    def learn(cls, texts: Iterable[str], limit: int = 0, min_count: int = 1) -> Self:
        """Return a vocabulary of at most `limit` byte pairs of training texts; 0: `DEFAULT`.

        A `UserError` says that the limit has no room for the bytes.
        """
        del min_count
        size = DEFAULT
        if limit:
            size = limit
        if size < LEAST:
            raise UserError(
                f"vocab={size} is too small for byte pairs; the bytes and the special "
                f"tokens are {LEAST}"
            )
        # An optional package, imported only where byte pairs are wanted.
        library = _tokenizers()
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size - len(SPECIALS),
            # All bytes: nothing is `<unk>`.
            initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        # Very long words, such as of base64, would take the trainer quadratic time.
        parts = (LONG.sub("\\g<0>\0", text).split("\0") for text in texts)
        tokenizer.train_from_iterator(chain.from_iterable(parts), trainer)
        vocab = tokenizer.get_vocab()
        own = map(token_of, sorted(vocab, key=vocab.__getitem__))
        tokens = [token for token in own if token not in SPECIALS]
        return cls(SPECIALS + tuple(tokens), joiner="", json=tokenizer.to_str())

    @cached_property
    def tokenizer(self) -> Any:
        """The encoder of the package `tokenizers`."""
        return _tokenizers().Tokenizer.from_str(self.json)

    @cached_property
    def own_ids(self) -> Ids:
        """Id in the `tokenizer.json` -> id in this vocabulary."""
        known = self.tokenizer.get_vocab()
        # The library numbers its tokens without the special ones of a corpus.
        return np.array([self.ids[token] for token in sorted(known, key=known.__getitem__)])

    def read(self, text: bytes) -> Ids:
        encoding = self.tokenizer.encode(text.decode(), add_special_tokens=False)
        return self.own_ids[np.array(encoding.ids, dtype=np.int64)]

    def split(self, text: str) -> list[str]:
        return self.tokenizer.encode(text, add_special_tokens=False).tokens

    def join(self, tokens: Iterable[str]) -> str:
        ids = [self.tokenizer.token_to_id(word_of(token)) for token in tokens]
        # A token that the library does not know, such as `<pad>`, has no text.
        return self.tokenizer.decode([i for i in ids if i is not None], skip_special_tokens=False)


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


VOCABULARIES: dict[Unit, type[TextVocabulary]] = {
    "char": Characters,
    "word": Words,
    "byte": Bytes,
    "bpe": Subwords,
}
