"""Contiguous texts: what `stream:PATH` and the published texts share.

    train   <start> c_i .. c_{i+L}     random blocks
    valid   windows with context       every token is scored once

A token is a character, a word, a byte or a byte pair (`tokenisers.py`). No line or document
boundary is marked but by its own characters. The vocabulary is that of the training split.
`blocks.py` defines blocks and windows. Long texts are encoded once and then read from the cache
(`id_cache.py`); texts below `CACHED_FROM` bytes are encoded in less time than the cache would save.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field, model_validator

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.streams import said
from lmzoo.contract import UNKNOWN
from lmzoo.data.blocks import cut_blocks, cut_windows
from lmzoo.data.corpus import Corpus, CorpusSource, token_dtype
from lmzoo.data.id_cache import CACHED_FROM, Encoded, cached_ids
from lmzoo.data.splits import Shares
from lmzoo.data.text_facts import TextFacts, TextSize, text_size
from lmzoo.data.tokenisers import VOCABULARIES, Unit, cut_stretches
from lmzoo.data.vocabulary import replace_rare_ids

PARTS = ("training", "validation", "test")
"""Names of the splits in messages and in the key of the cache."""
STANDARD: Shares = ((0.0, 0.9), (0.9, 0.95), (0.95, 1.0))
"""The parts that train, validate and test."""


@config
class StreamConfig:
    """The tokens, the blocks of training and the windows of evaluation.

    Defaults of the tokens are not written into configs: texts by character keep their identity.
    """

    unit: Annotated[Unit, Field(exclude_if=lambda unit: unit == "char")] = "char"
    """The unit of a token: char, word, byte or bpe."""
    vocab: Annotated[int, Field(ge=0, exclude_if=lambda size: size == 0)] = 0
    """Vocabulary size V, the four special tokens included. By word, at most V; 0 is no limit. Byte
    pairs are merged until there are V tokens or no more pairs; 0 is 8192."""
    min_count: Annotated[int, Field(ge=1, exclude_if=lambda count: count == 1)] = 1
    """By word, words that are rarer in the training split become `<unk>`."""
    block: int = Field(64, ge=1)
    """Block length L. A block has L + 1 tokens; T is L + 2."""
    stride: int = Field(0, ge=0)
    """Tokens that an evaluation window scores; 0: L. Fewer give each more context."""
    blocks: int = Field(0, ge=0)
    """Blocks of a training epoch, at random places; 0: one pass over the text."""

    @model_validator(mode="after")
    def _check(self) -> "StreamConfig":
        if self.vocab and self.unit not in ("word", "bpe"):
            raise UserError(f"vocab={self.vocab} needs unit=word or unit=bpe, not {self.unit}")
        if self.min_count > 1 and self.unit != "word":
            raise UserError(f"min_count={self.min_count} needs unit=word, not {self.unit}")
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

        A `UserError` says which data are missing or unreadable, and what to do.
        """

    def facts_of(self, texts: Sequence[memoryview]) -> TextFacts | None:
        """Return what reading these splits gave; None for a published text."""
        del texts

    @property
    def by_word(self) -> bool:
        """Whether the tokens are words, which a split must not divide."""
        return self.config.unit == "word"

    def load(self) -> Corpus:
        c = self.config
        kind = VOCABULARIES[c.unit]
        texts = list(map(memoryview, self.texts()))
        if sum(map(len, texts)) < CACHED_FROM:
            # Encoding takes less time than the cache would save.
            ids, facts = self._encode(texts)
        else:
            parts = {"unit": c.unit, "vocab": c.vocab, "min_count": c.min_count}
            if c.unit == "bpe":  # another version of the package may merge other pairs
                parts["version"] = metadata.version("tokenizers")
            parts |= zip(PARTS, texts, strict=True)
            ids, facts = cached_ids(parts, lambda: self._encode(texts))
            parts.clear()
        texts.clear()  # the blocks are as large again
        streams = ids.split(facts["sizes"])
        train, valid, test = streams
        for part, stream in zip(PARTS, streams, strict=True):
            if len(stream) <= c.block:
                raise UserError(
                    f"{self.name}: the {part} split has {len(stream)} {kind.unit}s, and a block "
                    f"needs {c.block + 1}; lower corpus.block or use a longer text"
                )
        fields = dict(facts["vocabulary"])
        fields["tokens"] = tuple(fields["tokens"])  # JSON has lists only
        text_facts = None
        if facts["text"]:
            text_facts = TextFacts.from_json(facts["text"])
        stride = c.block
        if c.stride:
            stride = c.stride
        return Corpus(
            name=self.name,
            vocabulary=kind(**fields),
            train=cut_blocks(train, c.block, c.blocks),
            valid=cut_windows(valid, c.block, stride),
            test=cut_windows(test, c.block, stride),
            unit=kind.unit,
            source=self.origin,
            test_text=TextSize._make(facts["test"]),
            facts=text_facts,
            ends=False,
        )

    def _encode(self, texts: Sequence[memoryview]) -> Encoded:
        c = self.config
        kind = VOCABULARIES[c.unit]
        megabytes = sum(map(len, texts)) / 1e6

        def stretches(text: memoryview) -> Iterator[bytes]:
            return cut_stretches(text, at_blanks=kind.at_blanks)

        try:
            with said(f"{self.name}: encoding a text of {megabytes:,.0f} MB"):
                learned = map(bytes.decode, stretches(texts[0]))
                # From the training split alone: held-out text must not decide the tokens.
                vocabulary = kind.learn(learned, c.vocab, c.min_count)
                dtype = torch.empty(0, dtype=token_dtype(len(vocabulary))).numpy().dtype
                # A token has at least a byte. Pages that no id reaches take no memory.
                encoded = np.empty(sum(map(len, texts)), dtype)
                sizes = []
                end = 0
                for text in texts:
                    begin = end
                    for own in stretches(text):
                        read = vocabulary.read(own)
                        encoded[end : end + len(read)] = read
                        end += len(read)
                    sizes.append(end - begin)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{self.name}: the text is not UTF-8 ({error}); fetch it again, or set "
                "corpus.unit=byte"
            ) from None
        encoded.resize(end, refcheck=False)  # in place
        ids = torch.from_numpy(encoded)
        train, valid, test = ids.split(sizes)
        if self.by_word:
            train.copy_(replace_rare_ids(train, valid, test))
        unknown = round(float((test == UNKNOWN).float().mean()), 6)
        found = self.facts_of(texts)
        facts = None
        if found:
            facts = dataclasses.asdict(found)
            facts |= {
                "tokens": len(ids),
                "left_out": vocabulary.left_out,
                "unknown": unknown,
            }
        fields = [field.name for field in dataclasses.fields(vocabulary) if field.init]
        return ids, {
            "vocabulary": {name: getattr(vocabulary, name) for name in fields},
            "sizes": sizes,
            "test": _text_size(texts[2]),
            "text": facts,
        }


def _text_size(text: memoryview) -> TextSize:
    """Return the size of the raw text, whatever its tokens are."""
    parts = cut_stretches(text, at_blanks=True)
    size = text_size((part.decode(errors="replace"), False) for part in parts)
    # What is no UTF-8 counts as it is in the file.
    return size._replace(bytes=len(text))
