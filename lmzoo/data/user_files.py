"""The user's own files: `text:PATH`, `fasta:PATH` and `pairs:PATH`.

A text has one sequence per line, a FASTA file one per record, and a file of pairs has a source, a
tab and its target on each line. Sequences are dealt to the training, validation and test splits
8:1:1 by a hash, and equal ones are in one split (`splits.deal`). A text of documents is cut at ends
of documents near 80 % and 90 % instead. Vocabularies are those of the training split. `<end>`
follows every sequence that is not cut; in pairs, it follows cut sequences too. By word, some rare
training words are `<unk>` if validation or test has unknown words (`train_unk`).

A long text is encoded once: its ids, padded to length T, are mapped into memory afterwards
(`id_cache.py`).
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from jaxtyping import Integer
from pydantic import Field, PositiveInt, field_validator
from torch import Tensor

from lmzoo.base.config import config, to_dict
from lmzoo.base.errors import UserError, user_path
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, Sequences
from lmzoo.data.files import Reading, read_fasta, read_lines, split_lines
from lmzoo.data.id_cache import CACHED_FROM, cached_ids
from lmzoo.data.sequences import Pair, Split, assemble, assemble_pairs
from lmzoo.data.splits import Documents, DocumentText, deal, read_documents
from lmzoo.data.text_facts import TextFacts, TextSize, read_facts
from lmzoo.data.unknown import TrainUnk
from lmzoo.data.vocabulary import Vocabulary, build_vocabulary

T = TypeVar("T")
Limit = Annotated[int, Field(ge=0, exclude_if=lambda limit: limit == 0)]
"""Most tokens of a vocabulary, the four special tokens included; 0: no limit. 0 is not written into
configs."""


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
    vocab: Limit = 0
    """Most tokens of each vocabulary, the four special tokens included; 0: no limit."""
    train_unk: TrainUnk = True
    """Replace some rare training words by `<unk>` on a side where validation or test has unknown
    words (`unknown.py`)."""


class UserFile(CorpusSource):
    """A corpus of one file, `config.path`."""

    sequence: ClassVar[str] = "line"
    """What a sequence is in the file."""

    @property
    def path(self) -> Path:
        """Path of the file, with `~` expanded."""
        return user_path(self.config.path)

    @property
    def origin(self) -> str:
        """Origin of the data, for `Corpus.source`."""
        return f"{self.path.name}, the user's own file"

    def deal(
        self, items: Sequence[T], keys: Sequence[str], reading: Reading
    ) -> tuple[list[list[T]], TextFacts]:
        """Return the items that train, validate and test, and the facts; equal keys are equal."""
        *places, together = deal(keys)
        dealt = "hash" if together else "single"
        train, test = (
            [] if dealt == "hash" else [keys[i] for i in part] for part in (places[0], places[2])
        )
        facts = self.facts_of(train, test, dealt, reading)
        return [[items[i] for i in part] for part in places], facts

    def facts_of(
        self, train: Sequence[str], test: Sequence[str], dealt: str, reading: Reading
    ) -> TextFacts:
        """Return the facts of sequences that are given by keys, of which equal ones are equal."""
        known = set(train)
        seen = sum(key in known for key in test)
        share = seen / max(1, len(test))
        return TextFacts(self.sequence, dealt, seen, share, reading.blank, reading.shown_notes)


@CORPORA("fasta")
class FastaFile(UserFile):
    """A FASTA file of the user, plain or .gz, one token per residue.

    Of ten records, eight are for training, one for validation and one for testing, and equal
    records are in one split. Longer ones are cut, not dropped.
    """

    Config = FastaConfig
    sequence = "record"

    def load(self) -> Corpus:
        reading = Reading()
        records = read_fasta(self.path, reading)
        parts, facts = self.deal(records, records, reading)
        split = Split(*parts)
        vocabulary = build_vocabulary(split.train, joiner="", min_count=self.config.min_count)
        return assemble(
            self.name, split, vocabulary, length=self.config.length, end=True, unit="residue",
            source=self.origin, facts=facts,
        )  # fmt: skip


@CORPORA("pairs")
class PairsFile(UserFile):
    """A text file of tab-separated pairs, plain or compressed; blank lines are dropped."""

    Config = PairsConfig
    sequence = "pair"

    def load(self) -> Corpus:
        reading = Reading()
        lines = read_lines(self.path, reading)
        numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        reading.blank = len(lines) - len(numbered)
        pairs = [_parse_pair(self.path, number, line) for number, line in numbered]
        keys = ["\t".join(map(" ".join, pair)) for pair in pairs]
        parts, facts = self.deal(pairs, keys, reading)
        return assemble_pairs(
            self.name, parts, length=self.config.length, limit=self.config.vocab,
            min_count=self.config.min_count, unit="word", source=self.origin,
            train_unk=self.config.train_unk, facts=facts,
        )  # fmt: skip


def _parse_pair(path: Path, number: int, line: str) -> Pair:
    source, *targets = (part.split() for part in line.split("\t"))
    if len(targets) != 1 or not source or not targets[0]:
        raise UserError(
            f"{path} line {number}: {line!r} is not a source, one tab and a target; fix the line"
        )
    return source, targets[0]


SHARES = (0.8, 0.9)
"""Where training and validation end in a text of documents."""


@config
class TextConfig(FastaConfig):
    """The file, and the unit of a token."""

    unit: Literal["word", "char"] = "word"
    vocab: Limit = 0
    """Most tokens of the vocabulary, the four special tokens included; 0: no limit."""
    lower: bool = False
    """Convert the text to lower case."""
    train_unk: TrainUnk = True
    """Replace some rare training words by `<unk>` if `unit` is word and validation or test has
    unknown words, so that its probability is learned (`unknown.py`)."""
    documents: Documents = False
    """Blank lines end documents, and no document is in two splits; in a folder, files end, too."""


@CORPORA("text")
class TextFile(UserFile):
    """Text of the user in UTF-8, plain or .gz: a file or a folder, one sequence per line.

    Blank lines are dropped. Of ten lines, eight are for training, one for validation and one for
    testing, and equal lines are in one split; the files of a folder are not divided. Longer lines
    are cut, not dropped, and tokens that the training split lacks become `<unk>`.
    """

    Config = TextConfig

    def load(self) -> Corpus:
        reading = Reading()
        text = read_documents(self.path, blank_lines=self.config.documents, reading=reading)
        if len(text.text) < CACHED_FROM:
            return self._encode(text, reading)
        fields = {name: value for name, value in to_dict(self.config).items() if name != "path"}
        parts = {
            "corpus": "text",
            **fields,
            "ends": list(text.ends),
            "notes": reading.notes,
            "text": text.text,
        }

        def encode() -> tuple[Tensor, dict[str, Any]]:
            return pack_corpus(self._encode(text, reading))

        return self._unpack(*cached_ids(parts, encode))

    def _encode(self, text: DocumentText, reading: Reading) -> Corpus:
        by_word = self.config.unit == "word"
        parts, facts = self._lines(text, reading)
        split = Split(*(Words(part) if by_word else part for part in parts))
        vocabulary = build_vocabulary(
            split.train, joiner=" " if by_word else "",
            limit=self.config.vocab, min_count=self.config.min_count,
        )  # fmt: skip
        return assemble(
            self.name, split, vocabulary, length=self.config.length, end=True, unit=self._unit,
            source=self.origin, train_unk=by_word and self.config.train_unk, facts=facts,
        )  # fmt: skip

    def _lines(self, text: DocumentText, reading: Reading) -> tuple[Sequence[list[str]], TextFacts]:
        """Return the lines of the three splits, and the facts of the text."""
        if text.ends:
            parts = [self._lines_of(part, reading) for part in text.split(self.path, SHARES)]
            train, test = (self._keys(part) for part in (parts[0], parts[2]))
            return parts, self.facts_of(train, test, "documents", reading)
        lines = self._lines_of(memoryview(text.text), reading)
        return self.deal(lines, self._keys(lines), reading)

    def _keys(self, lines: list[str]) -> list[str]:
        """Return the lines, by word with single blanks, so that equal sequences are equal."""
        return [" ".join(line.split()) for line in lines] if self.config.unit == "word" else lines

    def _lines_of(self, text: memoryview, reading: Reading) -> list[str]:
        lines = split_lines(str(text, "utf-8"))
        kept = [line for line in lines if line.strip()]
        reading.blank += len(lines) - len(kept)
        return [line.lower() for line in kept] if self.config.lower else kept

    def _unpack(self, flat: Tensor, stored: Any) -> Corpus:
        """Return the corpus that `pack_corpus` packed."""
        train, valid, test = unpack_sequences(flat, stored["rows"])
        corpus = Corpus(
            name=self.name,
            vocabulary=Vocabulary(tuple(stored["vocabulary"]), stored["joiner"]),
            train=train,
            valid=valid,
            test=test,
            unit=self._unit,
            source=self.origin,
            test_text=TextSize(*stored["test"]),
            facts=read_facts(stored["facts"]),
        )
        # The checksum of the cache has verified what the fingerprint is a hash of.
        corpus.__dict__["fingerprint"] = stored["fingerprint"]
        return corpus

    @property
    def _unit(self) -> str:
        return "word" if self.config.unit == "word" else "character"


class Words(Sequence[Sequence[str]]):
    """The words of lines. Lines are split when they are read, because words need much memory."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[Sequence[str]]:
        return map(str.split, self._lines)

    def __getitem__(self, index: Any) -> Any:
        lines = self._lines[index]
        return lines.split() if isinstance(lines, str) else Words(lines)


def pack_corpus(corpus: Corpus) -> tuple[Integer[Tensor, "n"], dict[str, Any]]:
    """Return all numbers of a corpus in one tensor, the lengths first, and the other facts."""
    parts = corpus.train, corpus.valid, corpus.test
    dtype = corpus.train.ids.dtype
    lengths = torch.cat([part.lengths for part in parts]).view(dtype)
    facts = {
        "rows": [len(part) for part in parts],
        "vocabulary": list(corpus.vocabulary.tokens),
        "joiner": corpus.vocabulary.joiner,
        "test": corpus.test_text,
        "fingerprint": corpus.fingerprint,
        "facts": corpus.facts and dataclasses.asdict(corpus.facts),
    }
    return torch.cat([lengths, *(part.ids.flatten() for part in parts)]), facts


def unpack_sequences(flat: Integer[Tensor, "n"], rows: Sequence[int]) -> list[Sequences]:
    """Return the sequences of each split from the tensor of `pack_corpus`, without a copy."""
    count, width = sum(rows), torch.int64.itemsize // flat.dtype.itemsize
    lengths = flat[: count * width].view(torch.int64).split(list(rows))
    ids = flat[count * width :].view(count, -1).split(list(rows))
    return [Sequences(*pair) for pair in zip(ids, lengths, strict=True)]
