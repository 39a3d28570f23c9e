"""The user's own file: `text:PATH`, a sequence a line, and `fasta:PATH`, a sequence a record.

Sequences are dealt 8:1:1 in the order of the file; the vocabulary is that of the training
part, and `<end>` stands where a sequence was not cut.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt, field_validator

from lmzoo.config import config
from lmzoo.data.assemble import Split, assemble
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource
from lmzoo.data.fasta import read_fasta
from lmzoo.data.lines import read_lines
from lmzoo.data.splits import interleave
from lmzoo.data.vocabulary import by_frequency
from lmzoo.errors import UserError


@config
class FastaConfig:
    """The file, and how much of each sequence is kept."""

    path: str = ""
    length: int = Field(64, ge=2)
    """Padded length T, `<start>` included."""
    min_count: PositiveInt = 1
    """Rarer tokens of the training part become `<unk>`."""

    @field_validator("path")
    @classmethod
    def _given(cls, path: str) -> str:
        if not path:
            raise UserError("no file is given; write text:PATH or fasta:PATH")
        return path


@config
class TextConfig(FastaConfig):
    """The file, and what a token is."""

    unit: Literal["word", "char"] = "word"
    lower: bool = False


class _OwnFile(CorpusSource):
    @property
    def path(self) -> Path:
        """Where the file lies."""
        return Path(self.config.path).expanduser()

    def corpus(self, sequences: Sequence[Sequence[str]], *, unit: str, joiner: str) -> Corpus:
        """The corpus of these sequences."""
        split = Split(*interleave(sequences, (8, 1, 1)))
        vocabulary = by_frequency(split.train, joiner=joiner, min_count=self.config.min_count)
        return assemble(
            self.name, split, vocabulary, length=self.config.length, end=True, unit=unit,
            source=f"{self.path.name}, the user's own file",
        )  # fmt: skip


@CORPORA("text")
class TextFile(_OwnFile):
    """A UTF-8 text, plain or .gz; blank lines are dropped."""

    Config = TextConfig

    def load(self) -> Corpus:
        lines = [line for line in read_lines(self.path) if line.strip()]
        if self.config.lower:
            lines = [line.lower() for line in lines]
        if self.config.unit == "char":
            return self.corpus(lines, unit="character", joiner="")
        return self.corpus([line.split() for line in lines], unit="word", joiner=" ")


@CORPORA("fasta")
class FastaFile(_OwnFile):
    """A FASTA file, plain or .gz."""

    Config = FastaConfig

    def load(self) -> Corpus:
        return self.corpus(read_fasta(self.path), unit="residue", joiner="")
