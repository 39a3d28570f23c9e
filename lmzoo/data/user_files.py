"""Corpora from the user's own files: `text:PATH` and `fasta:PATH`.

A text file has one sequence per line, a FASTA file one per record. Sequences are dealt to the
training, validation and test splits 8:1:1 in file order. The vocabulary is that of the training
split. `<end>` follows every sequence that is not cut.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt, field_validator

from lmzoo.config import config
from lmzoo.data.assemble import Split, assemble
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource
from lmzoo.data.files import read_fasta, read_lines
from lmzoo.data.splits import interleave
from lmzoo.data.vocabulary import build_vocabulary
from lmzoo.errors import UserError


@config
class FastaConfig:
    """The file, the maximal sequence length and the vocabulary limit."""

    path: str = ""
    length: int = Field(64, ge=2)
    """Padded length T, `<start>` included."""
    min_count: PositiveInt = 1
    """Tokens that are rarer in the training split become `<unk>`."""

    @field_validator("path")
    @classmethod
    def _require_path(cls, path: str) -> str:
        if not path:
            raise UserError("the corpus needs a file; write text:PATH or fasta:PATH")
        return path


@config
class TextConfig(FastaConfig):
    """The file, and the unit of a token."""

    unit: Literal["word", "char"] = "word"
    lower: bool = False
    """Convert the text to lower case."""


class _UserFile(CorpusSource):
    @property
    def path(self) -> Path:
        """Path of the file, with `~` expanded."""
        return Path(self.config.path).expanduser()

    def corpus(self, sequences: Sequence[Sequence[str]], *, unit: str, joiner: str) -> Corpus:
        """Split and encode the sequences."""
        split = Split(*interleave(sequences, (8, 1, 1)))
        vocabulary = build_vocabulary(split.train, joiner=joiner, min_count=self.config.min_count)
        return assemble(
            self.name, split, vocabulary, length=self.config.length, end=True, unit=unit,
            source=f"{self.path.name}, the user's own file",
        )  # fmt: skip


@CORPORA("text")
class TextFile(_UserFile):
    """A UTF-8 text file, plain or .gz, one sequence per line; blank lines are dropped."""

    Config = TextConfig

    def load(self) -> Corpus:
        lines = [line for line in read_lines(self.path) if line.strip()]
        if self.config.lower:
            lines = [line.lower() for line in lines]
        if self.config.unit == "char":
            return self.corpus(lines, unit="character", joiner="")
        return self.corpus([line.split() for line in lines], unit="word", joiner=" ")


@CORPORA("fasta")
class FastaFile(_UserFile):
    """A FASTA file, plain or .gz, one token per residue."""

    Config = FastaConfig

    def load(self) -> Corpus:
        return self.corpus(read_fasta(self.path), unit="residue", joiner="")
