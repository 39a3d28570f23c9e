"""The user's own files: `fasta:PATH` and `pairs:PATH`. `text:PATH` is in `text_lines.py`.

A FASTA file has one sequence per record, a file of pairs has a source, a tab and its target on each
line. Sequences are dealt to the training, validation and test splits 8:1:1 in file order.
Vocabularies are those of the training split. `<end>` follows every sequence that is not cut; in
pairs, it follows cut sequences too. In pairs, some rare training words are `<unk>` if validation or
test has unknown words (`train_unk`).
"""

from pathlib import Path

from pydantic import Field, PositiveInt, field_validator

from lmzoo.config import config
from lmzoo.data.assemble import Pair, Split, assemble, assemble_pairs
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource
from lmzoo.data.files import read_fasta, read_lines
from lmzoo.data.text_splits import interleave
from lmzoo.data.unknown import TrainUnk
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
            raise UserError("the corpus needs a file; write text:PATH, fasta:PATH or pairs:PATH")
        return path


@config
class PairsConfig(FastaConfig):
    """The file, the maximal sequence length and the vocabulary limit."""

    length: int = Field(64, ge=3)
    """Padded length T, `<start>` and `<end>` included."""
    train_unk: TrainUnk = True
    """Replace some rare training words by `<unk>` on a side where validation or test has unknown
    words (`unknown.py`)."""


class UserFile(CorpusSource):
    """A corpus of one file, `config.path`."""

    @property
    def path(self) -> Path:
        """Path of the file, with `~` expanded."""
        return Path(self.config.path).expanduser()

    @property
    def origin(self) -> str:
        """Origin of the data, for `Corpus.source`."""
        return f"{self.path.name}, the user's own file"


@CORPORA("fasta")
class FastaFile(UserFile):
    """A FASTA file of the user, plain or .gz, one token per residue.

    Of ten records, eight are for training, one for validation and one for testing. Longer ones are
    cut, not dropped.
    """

    Config = FastaConfig

    def load(self) -> Corpus:
        split = Split(*interleave(read_fasta(self.path), (8, 1, 1)))
        vocabulary = build_vocabulary(split.train, joiner="", min_count=self.config.min_count)
        return assemble(
            self.name, split, vocabulary, length=self.config.length, end=True, unit="residue",
            source=self.origin,
        )  # fmt: skip


@CORPORA("pairs")
class PairsFile(UserFile):
    """A UTF-8 text file of tab-separated pairs, plain or .gz; blank lines are dropped."""

    Config = PairsConfig

    def load(self) -> Corpus:
        lines = enumerate(read_lines(self.path), 1)
        pairs = [_parse_pair(self.path, number, line) for number, line in lines if line.strip()]
        return assemble_pairs(
            self.name, interleave(pairs, (8, 1, 1)), length=self.config.length,
            min_count=self.config.min_count, unit="word", source=self.origin,
            train_unk=self.config.train_unk,
        )  # fmt: skip


def _parse_pair(path: Path, number: int, line: str) -> Pair:
    source, *targets = (part.split() for part in line.split("\t"))
    if len(targets) != 1 or not source or not targets[0]:
        raise UserError(
            f"{path} line {number}: {line!r} is not a source, one tab and a target; fix the line"
        )
    return source, targets[0]
