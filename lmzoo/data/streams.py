"""Contiguous text by character: `stream:PATH`, and the base class of published texts.

    train   <start> c_i .. c_{i+L}     random blocks
    valid   windows with context       every character is scored once

No line or document boundary is marked but by its own characters. The first 90 % of the characters
train, the next 5 % validate, the last 5 % test. The vocabulary is that of the training split; other
characters become `<unk>`. With the file of text8, this is its standard split of 90, 5 and 5 million
characters (Mikolov et al. 2012). `blocks.py` defines blocks and windows.
"""

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from lmzoo.config import config
from lmzoo.data.blocks import cut_blocks, cut_windows, require_length
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource
from lmzoo.data.text_size import TextSize
from lmzoo.data.token_cache import Parts, encode_file
from lmzoo.errors import UserError

STANDARD = Parts(((0.0, 0.9), (0.9, 0.95), (0.95, 1.0)))
"""The parts that train, validate and test."""


@config
class StreamConfig:
    """The blocks of training and the windows of evaluation."""

    block: int = Field(64, ge=1)
    """Block length L. A block has L + 1 characters; T is L + 2."""
    stride: int = Field(0, ge=0)
    """Characters that an evaluation window scores; 0: L. Fewer give each more context."""
    blocks: int = Field(0, ge=0)
    """Blocks of a training epoch, at random places; 0: one pass over the text."""

    @model_validator(mode="after")
    def _check_stride(self) -> "StreamConfig":
        if self.stride > self.block:
            raise UserError(
                f"stride={self.stride} is greater than block={self.block}, so windows would leave "
                "characters out; set at most the block length"
            )
        return self


class TextStream(CorpusSource):
    """A contiguous text; a subclass returns its file."""

    Config = StreamConfig
    origin: ClassVar[str] = ""
    """Origin and licence of the text."""

    @abstractmethod
    def file(self) -> Path:
        """Return the path of the text."""

    @property
    def parts(self) -> Parts:
        """The parts of the text that train, validate and test."""
        return STANDARD

    def load(self) -> Corpus:
        c, text = self.config, encode_file(self.file(), self.parts)
        streams = [text.ids[begin:end] for begin, end in self.parts.bounds(len(text.ids))]
        for name, stream in zip(("training", "validation", "test"), streams, strict=True):
            require_length(self.name, name, stream, c.block)
        train, valid, test = streams
        stride = c.stride or c.block
        return Corpus(
            name=self.name,
            vocabulary=text.vocabulary,
            train=cut_blocks(train, c.block, c.blocks),
            valid=cut_windows(valid, c.block, stride),
            test=cut_windows(test, c.block, stride),
            unit="character",
            source=self.origin,
            test_text=TextSize(len(test), text.bytes[2]),
            ends=False,
        )


@config
class StreamFileConfig(StreamConfig):
    """The file, the blocks of training and the windows of evaluation."""

    path: str = ""


@CORPORA("stream")
class StreamFile(TextStream):
    """A UTF-8 text file, plain or .gz, as one contiguous text."""

    Config = StreamFileConfig

    def file(self) -> Path:
        if not self.config.path:
            raise UserError("the corpus needs a file; write stream:PATH")
        return Path(self.config.path).expanduser()

    @property
    def origin(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Origin of the data, for `Corpus.source`."""
        return f"{self.file().name}, the user's own file"
