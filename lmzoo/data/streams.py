"""Contiguous text by character: `stream:PATH`, and the base class of published texts.

    train   <start> c_i .. c_{i+L}     random blocks
    valid   windows with context       every character is scored once

No line or document boundary is marked but by its own characters. The first 90 % of the characters
train, the next 5 % validate, the last 5 % test. The vocabulary is that of the training split; other
characters become `<unk>`. `blocks.py` defines blocks and windows.
"""

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field, model_validator

from lmzoo.config import config
from lmzoo.data.blocks import cut_blocks, cut_windows, require_length
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource
from lmzoo.data.files import read_text
from lmzoo.data.text_size import text_size
from lmzoo.data.vocabulary import build_vocabulary
from lmzoo.errors import UserError

TRAIN, VALID = 0.9, 0.05
"""Shares of the characters, as in nanoGPT; the rest of the held-out part tests."""


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
    """A contiguous text; a subclass returns the texts of the three splits."""

    Config = StreamConfig
    origin: ClassVar[str] = ""
    """Origin and licence of the text."""

    @abstractmethod
    def texts(self) -> tuple[str, str, str]:
        """Return the texts of the training, validation and test splits."""

    def load(self) -> Corpus:
        c, texts = self.config, self.texts()
        vocabulary = build_vocabulary([texts[0]], joiner="")
        streams = [torch.tensor(vocabulary.encode(text), dtype=torch.int64) for text in texts]
        for name, stream in zip(("training", "validation", "test"), streams, strict=True):
            require_length(self.name, name, stream, c.block)
        train, valid, test = streams
        stride = c.stride or c.block
        return Corpus(
            name=self.name,
            vocabulary=vocabulary,
            train=cut_blocks(train, c.block, c.blocks),
            valid=cut_windows(valid, c.block, stride),
            test=cut_windows(test, c.block, stride),
            unit="character",
            source=self.origin,
            test_text=text_size([(texts[2], False)]),
            ends=False,
        )


def split_text(text: str) -> tuple[str, str, str]:
    """Return the first 90 %, the next 5 % and the last 5 % of the characters."""
    first, second = int(TRAIN * len(text)), int((TRAIN + VALID) * len(text))
    return text[:first], text[first:second], text[second:]


@config
class StreamFileConfig(StreamConfig):
    """The file, the blocks of training and the windows of evaluation."""

    path: str = ""


@CORPORA("stream")
class StreamFile(TextStream):
    """A UTF-8 text file, plain or .gz, as one contiguous text."""

    Config = StreamFileConfig

    @property
    def path(self) -> Path:
        """Path of the file, with `~` expanded."""
        if not self.config.path:
            raise UserError("the corpus needs a file; write stream:PATH")
        return Path(self.config.path).expanduser()

    @property
    def origin(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Origin of the data, for `Corpus.source`."""
        return f"{self.path.name}, the user's own file"

    def texts(self) -> tuple[str, str, str]:
        return split_text(read_text(self.path))
