"""Contiguous text: `stream:PATH`, and the base class of published texts.

    train   <start> c_i .. c_{i+L}     random blocks
    valid   windows with context       every token is scored once

A token is a character, a word, a byte or a byte pair (`tokenisers.py`). No line or document
boundary is marked but by its own characters. The first 90 % of the characters train, the next 5 %
validate, the last 5 % test, whatever the tokens are; no word is divided if they are words. The
vocabulary is that of the training split. `blocks.py` defines blocks and windows. Long texts are
encoded once and then read from the cache (`id_cache.py`); texts below `CACHED_FROM` bytes are
encoded in less time than the cache would save.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Integer
from pydantic import Field, model_validator
from torch import Tensor

from lmzoo.base.config import config, to_dict
from lmzoo.base.errors import UserError, user_path
from lmzoo.contract import UNKNOWN
from lmzoo.data.blocks import cut_blocks, cut_windows, require_length
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, token_dtype
from lmzoo.data.files import Reading, read_text
from lmzoo.data.id_cache import CACHED_FROM, Encoded, cached_ids
from lmzoo.data.splits import Shares, split_characters
from lmzoo.data.text_facts import TextFacts, TextSize, count_words, read_facts
from lmzoo.data.tokenisers import (
    TOKENISERS,
    Tokeniser,
    TokeniserConfig,
    cut_stretches,
    new_tokeniser,
)
from lmzoo.data.vocabulary import Vocabulary

SPLITS = ("training", "validation", "test")

Texts = tuple[memoryview, memoryview, memoryview]
"""The bytes that train, validate and test, in UTF-8."""


@dataclass(frozen=True)
class EncodedSplits:
    """The ids of the three splits, their vocabulary and the size of the test text."""

    train: Integer[Tensor, "n"]
    valid: Integer[Tensor, "m"]
    test: Integer[Tensor, "k"]
    vocabulary: Vocabulary
    test_text: TextSize
    facts: TextFacts | None


def encode_splits(
    name: str, texts: Texts, config: Any, facts_of: Callable[[], TextFacts | None]
) -> EncodedSplits:
    """Encode the splits of corpus `name`; `config` has the fields of a `TokeniserConfig`.

    `facts_of` returns the facts of a user's text, which are cached with its ids.

    Raises:
        UserError: A text is not UTF-8, or the tokeniser does not keep it.
    """
    tokeniser = new_tokeniser(config)

    def encode() -> Encoded:
        try:
            ids, facts = _encode(name, texts, tokeniser)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}: the text is not UTF-8 ({error}); fetch it again, or set corpus.unit=byte"
            ) from None
        found = facts_of()
        return ids, {**facts, "text": found and dataclasses.asdict(found)}

    if sum(map(len, texts)) < CACHED_FROM:
        ids, facts = encode()
    else:
        ids, facts = cached_ids(
            {**_settings(config), **dict(zip(SPLITS, texts, strict=True))}, encode
        )
    tokeniser.restore(facts["tokeniser"])
    train, valid, test = ids.split(facts["sizes"])
    vocabulary = tokeniser.vocabulary
    found = read_facts(facts["text"])
    if found is not None:
        found = dataclasses.replace(found, tokens=len(ids), left_out=vocabulary.left_out)
    return EncodedSplits(train, valid, test, vocabulary, TextSize(*facts["test"]), found)


def _encode(name: str, texts: Texts, tokeniser: Tokeniser) -> Encoded:
    train, _, test = texts
    tokeniser.fit(train)
    dtype = token_dtype(len(tokeniser.vocabulary))
    parts = [_ids(tokeniser, text, dtype) for text in texts]
    parts[0] = tokeniser.prepare(*parts)
    facts = {
        "tokeniser": tokeniser.facts(),
        "sizes": [len(part) for part in parts],
        "test": _text_size(test),
    }
    return torch.cat(parts), facts


def _ids(tokeniser: Tokeniser, text: memoryview, dtype: torch.dtype) -> Integer[Tensor, "n"]:
    stretches = [
        torch.from_numpy(tokeniser.encode(part)).to(dtype) for part in tokeniser.stretches(text)
    ]
    return torch.cat(stretches) if stretches else torch.empty(0, dtype=dtype)


def _text_size(text: memoryview) -> tuple[int, int, int]:
    """Return the characters, bytes and words of the raw text, whatever its tokens are."""
    characters = words = 0
    for part in cut_stretches(text, at_blanks=True):
        decoded = part.decode(errors="replace")
        characters, words = characters + len(decoded), words + count_words(decoded)
    return characters, len(text), words


def _settings(config: Any) -> dict[str, Any]:
    fields = set(TokeniserConfig.__dataclass_fields__)
    settings: Mapping[str, Any] = {k: v for k, v in to_dict(config).items() if k in fields}
    # Another version of the package may merge other pairs.
    version = {"version": metadata.version("tokenizers")} if config.unit == "bpe" else {}
    return {**settings, **version}


STANDARD: Shares = ((0.0, 0.9), (0.9, 0.95), (0.95, 1.0))
"""The parts that train, validate and test."""


@config
class StreamConfig(TokeniserConfig):
    """The tokens, the blocks of training and the windows of evaluation."""

    block: int = Field(64, ge=1)
    """Block length L. A block has L + 1 tokens; T is L + 2."""
    stride: int = Field(0, ge=0)
    """Tokens that an evaluation window scores; 0: L. Fewer give each more context."""
    blocks: int = Field(0, ge=0)
    """Blocks of a training epoch, at random places; 0: one pass over the text."""

    @model_validator(mode="after")
    def _check_stride(self) -> "StreamConfig":
        if self.stride > self.block:
            raise UserError(
                f"stride={self.stride} is greater than block={self.block}, so windows would leave "
                "tokens out; set at most the block length"
            )
        return self


class TextStream(CorpusSource):
    """A contiguous text; a subclass returns its splits."""

    Config = StreamConfig
    origin: ClassVar[str] = ""
    """Origin and licence of the text."""

    @abstractmethod
    def texts(self) -> Sequence[memoryview | bytes]:
        """Return the bytes that train, validate and test.

        Raises:
            UserError: The data is missing or unreadable; the message says what to do.
        """

    def facts_of(self, texts: Texts) -> TextFacts | None:
        """Return what reading these splits gave; None for a published text."""
        del texts

    @property
    def by_word(self) -> bool:
        """Whether the tokens are words, which a split must not divide."""
        return self.config.unit == "word"

    def load(self) -> Corpus:
        c = self.config
        train, valid, test = map(memoryview, self.texts())
        texts = train, valid, test
        text = encode_splits(self.name, texts, c, lambda: self.facts_of(texts))
        unit = TOKENISERS[c.unit].name
        for part, stream in zip(SPLITS, (text.train, text.valid, text.test), strict=True):
            require_length(self.name, part, stream, c.block, unit)
        stride = c.stride or c.block
        unknown = round(float((text.test == UNKNOWN).float().mean()), 6)
        facts = text.facts and dataclasses.replace(text.facts, unknown=unknown)
        return Corpus(
            name=self.name,
            vocabulary=text.vocabulary,
            train=cut_blocks(text.train, c.block, c.blocks),
            valid=cut_windows(text.valid, c.block, stride),
            test=cut_windows(text.test, c.block, stride),
            unit=unit,
            source=self.origin,
            test_text=text.test_text,
            facts=facts,
            ends=False,
        )


@config
class StreamFileConfig(StreamConfig):
    """The file, the tokens, the blocks of training and the windows of evaluation."""

    path: str = ""


@CORPORA("stream")
class StreamFile(TextStream):
    """A UTF-8 text file, plain or .gz, or a folder of such files, as one contiguous text."""

    Config = StreamFileConfig

    def texts(self) -> Sequence[memoryview]:
        if not self.config.path:
            raise UserError("the corpus needs a file; write stream:PATH")
        self._reading = Reading(binary=self.config.unit == "byte")
        text = read_text(self.path, self._reading)
        return split_characters(text, STANDARD, words=self.by_word)

    def facts_of(self, texts: Texts) -> TextFacts:
        """Return the lines of the splits, and which of them stand in test and training."""
        train, valid, test = (bytes(text).removesuffix(b"\n").split(b"\n") for text in texts)
        known = set(train)
        lines = [line for line in test if line.strip()]
        seen = [line for line in lines if line in known]
        return TextFacts(
            "line",
            "place",
            len(seen),
            sum(map(len, seen)) / max(1, sum(map(len, lines))),
            notes=self._reading.shown_notes,
            splits=(len(train), len(valid), len(test)),
        )

    @property
    def path(self) -> Path:
        """Path of the file, with `~` expanded."""
        return user_path(self.config.path)

    @property
    def origin(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Origin of the data, for `Corpus.source`."""
        return f"{self.path.name}, the user's own file"
