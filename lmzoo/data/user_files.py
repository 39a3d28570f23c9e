"""The user's own files: `text:PATH`, `fasta:PATH`, `pairs:PATH` and `stream:PATH`.

A text has one sequence per line, a FASTA file one per record, and a file of pairs has a source, a
tab and its target on each line. Sequences are dealt to the training, validation and test splits
8:1:1 by a hash, and equal ones are in one split (`splits.deal`). Vocabularies are those of the
training split. `<end>` follows every sequence that is not cut; in pairs, it follows cut sequences
too. By word, some rare training words are `<unk>` if validation or test has unknown words
(`train_unk`).

A stream is one contiguous text (`streams.py`). The first 90 % of the characters train, the next 5 %
validate, the last 5 % test, whatever the tokens are; no word is divided if they are words.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar
from unicodedata import normalize

from pydantic import Field, PositiveInt

from lmzoo.base.config import config
from lmzoo.base.errors import UserError, user_path
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource
from lmzoo.data.files import Reading, read_fasta, read_lines, read_text, split_lines
from lmzoo.data.sequences import Pair, assemble, assemble_pairs, subwords
from lmzoo.data.splits import deal, split_text
from lmzoo.data.streams import STANDARD, StreamConfig, TextStream
from lmzoo.data.text_facts import TextFacts
from lmzoo.data.tokenisers import STRETCH, VOCABULARIES, Subwords
from lmzoo.data.vocabulary import Lines, TrainUnk, build_vocabulary

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


@config
class PairsConfig(FastaConfig):
    """The file, the maximal sequence length and the vocabulary limit."""

    length: int = Field(64, ge=3)
    """Padded length T, `<start>` and `<end>` included."""
    vocab: Limit = 0
    """Most tokens of each vocabulary, the four special tokens included; 0: no limit."""
    unit: Annotated[Literal["word", "bpe"], Field(exclude_if=lambda unit: unit == "word")] = "word"
    """The unit of a token: words, or byte pairs of the training words of each side."""
    train_unk: TrainUnk = True
    """Replace some rare training words by `<unk>` on a side where validation or test has unknown
    words (`vocabulary.py`)."""


class UserFile(CorpusSource):
    """A corpus of one file, `config.path`."""

    sequence: ClassVar[str] = "line"
    """What a sequence is in the file."""

    @property
    def path(self) -> Path:
        """Path of the file, with `~` expanded."""
        if not self.config.path:
            raise UserError(f"the corpus needs a file; write {self.name}:PATH")
        return user_path(self.config.path)

    @property
    def origin(self) -> str:
        """Origin of the data, for `Corpus.source`."""
        return f"{self.path.name}, the user's own file"

    def deal(
        self, items: Sequence[T], keys: Sequence[str], reading: Reading
    ) -> tuple[list[list[T]], TextFacts]:
        """Return the items that train, validate and test, and the facts; equal keys are equal."""
        found = deal([normalize("NFC", key) for key in keys])  # é has two spellings
        dealt = "hash"
        known = set()
        # Equal keys are in one split, unless there are too few different ones.
        if not found.together:
            dealt = "single"
            known = {keys[i] for i in found.train}
        seen = sum(keys[i] in known for i in found.test)
        facts = TextFacts(
            self.sequence,
            dealt,
            seen,
            seen / max(1, len(found.test)),
            reading.blank,
            reading.shown_notes,
        )
        places = (found.train, found.valid, found.test)
        return [[items[i] for i in part] for part in places], facts


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
        residues = build_vocabulary(parts[0], joiner="", min_count=self.config.min_count)
        return assemble(
            self.name,
            parts,
            residues,
            length=self.config.length,
            end=True,
            unit="residue",
            source=self.origin,
            facts=facts,
        )


@CORPORA("pairs")
class PairsFile(UserFile):
    """A text file of tab-separated pairs, plain or compressed; blank lines are dropped."""

    Config = PairsConfig
    sequence = "pair"

    def load(self) -> Corpus:
        reading = Reading()
        lines = read_lines(self.path, reading)
        if self.config.unit == "word":
            note_unspaced(lines, reading)
        # Numbered before blank lines are dropped: an error names the line of the file.
        pairs = [
            _parse_pair(self.path, number, line)
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
        reading.blank = len(lines) - len(pairs)
        keys = ["\t".join(map(" ".join, pair)) for pair in pairs]
        parts, facts = self.deal(pairs, keys, reading)
        train, _, test = parts
        known = {" ".join(source) for source, _ in train}
        # Sources alone: a model could copy the target of training.
        shared = sum(" ".join(source) in known for source, _ in test)
        again = shared - facts.seen
        if again > 0:
            said = (
                f"{again:,} test pairs have a source that stands in training, with another target"
            )
            facts = replace(facts, notes=facts.notes + (said,))
        return assemble_pairs(
            self.name,
            parts,
            length=self.config.length,
            limit=self.config.vocab,
            min_count=self.config.min_count,
            unit=_unit(self.config),
            source=self.origin,
            train_unk=self.config.train_unk,
            facts=facts,
        )


def _parse_pair(path: Path, number: int, line: str) -> Pair:
    sides = [part.split() for part in line.split("\t")]
    if len(sides) != 2 or not all(sides):
        raise UserError(
            f"{path} line {number}: {line!r} is not a source, one tab and a target; fix the line"
        )
    source, target = sides
    return source, target


@config
class TextConfig(FastaConfig):
    """The file, and the unit of a token."""

    unit: Literal["word", "char", "bpe"] = "word"
    """The unit of a token; bpe: byte pairs of the training lines."""
    vocab: Limit = 0
    """Most tokens of the vocabulary, the four special tokens included; 0: no limit, or 8192 byte
    pairs."""
    lower: bool = False
    """Convert the text to lower case."""
    train_unk: TrainUnk = True
    """Replace some rare training words by `<unk>` if `unit` is word and validation or test has
    unknown words, so that its probability is learned (`vocabulary.py`)."""


@CORPORA("text")
class TextFile(UserFile):
    """Text of the user in UTF-8, plain or .gz: a file or a folder, one sequence per line.

    Blank lines are dropped. Of ten lines, eight are for training, one for validation and one for
    testing, and equal lines are in one split. Longer lines are cut, not dropped, and tokens that
    the training split lacks become `<unk>`.
    """

    Config = TextConfig

    def load(self) -> Corpus:
        c = self.config
        reading = Reading()
        unit = _unit(c)
        lines = split_lines(read_text(self.path, reading).decode())
        kept = [line for line in lines if line.strip()]
        # Before the split: lines that differ in case become equal.
        if c.lower:
            kept = [line.lower() for line in kept]
        reading.blank = len(lines) - len(kept)
        by_char = unit == "character"
        joiner = " "
        if by_char:
            joiner = ""
        if not by_char:
            lines = []  # a copy of a large text is not kept
            kept = list(map(single_spaced, kept))  # equal sequences are equal
        if unit == "word":
            note_unspaced(kept, reading)
        parts, facts = self.deal(kept, kept, reading)
        if not by_char:
            kept = []
            # Lists of words need many times the memory of their line.
            parts = list(map(Lines, parts))
        if unit == Subwords.unit:
            parts, vocabulary = subwords(parts, c.vocab)
        else:
            vocabulary = build_vocabulary(
                parts[0],
                joiner=joiner,
                limit=c.vocab,
                min_count=c.min_count,
            )
        return assemble(
            self.name,
            parts,
            vocabulary,
            length=c.length,
            end=True,
            unit=unit,
            source=self.origin,
            train_unk=unit == "word" and c.train_unk,
            facts=facts,
        )


def single_spaced(line: str) -> str:
    """Return a line with one space between words: itself if it has no others, to save memory."""
    joined = " ".join(line.split())
    if joined == line:
        return line
    return joined


def _unit(config: PairsConfig | TextConfig) -> str:
    """Return the unit of a token in words; byte pairs are all kept, so `min_count` is refused."""
    if config.unit == "bpe" and config.min_count > 1:
        raise UserError(f"min_count={config.min_count} needs unit=word, not bpe; use vocab")
    return VOCABULARIES[config.unit].unit


@config
class StreamFileConfig(StreamConfig):
    """The file, the tokens, the blocks of training and the windows of evaluation."""

    path: str = ""


@CORPORA("stream")
class StreamFile(UserFile, TextStream):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A UTF-8 text file, plain or .gz, or a folder of such files, as one contiguous text."""

    Config = StreamFileConfig

    def texts(self) -> Sequence[memoryview]:
        # Bytes may be anything: no text is expected.
        self._reading = Reading(binary=self.config.unit == "byte")
        text = read_text(self.path, self._reading)
        return split_text(text, STANDARD, words=self.by_word)

    def facts_of(self, texts: Sequence[memoryview]) -> TextFacts:
        """Return the lines of the splits, and which of them stand in test and training."""
        train, valid, test = texts
        lines = [line for line in _lines(test) if line.strip()]
        # The training text is 18 times as long: a set of its lines would need many times its size.
        wanted = set(lines)
        known = wanted.intersection(_lines(train))
        seen = [line for line in lines if line in known]
        characters = sum(map(len, lines))
        # By characters: many short lines are little text.
        share = sum(map(len, seen)) / max(1, characters)
        splits = (_count_lines(train), _count_lines(valid), _count_lines(test))
        return TextFacts(
            "line",
            "place",
            len(seen),
            share,
            notes=self._reading.shown_notes,
            splits=splits,
        )


def _lines(text: memoryview) -> Iterator[bytes]:
    """Yield the lines of a text, of which little is copied at a time."""
    line: list[bytes] = []  # its parts: a line may be as long as the text
    for begin in range(0, len(text), STRETCH):
        stretch = bytes(text[begin : begin + STRETCH])
        for number, piece in enumerate(stretch.split(b"\n")):
            if number:  # a newline is before it
                yield b"".join(line)
                line = []
            line.append(piece)
    if any(line):
        yield b"".join(line)


def _count_lines(text: memoryview) -> int:
    """Return the number of lines, at least one; a newline at the end begins none."""
    return max(1, sum(1 for _ in _lines(text)))


UNSPACED = re.compile(r"[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Letters without blanks between words: Thai, Lao, Tibetan, Burmese, Khmer, Japanese, Chinese."""


def note_unspaced(lines: Sequence[str], reading: Reading):
    """Note that words are no tokens if most letters have no blanks between words."""
    text = "".join(lines)
    found = len(UNSPACED.findall(text))
    words = sum(line.count(" ") + 1 for line in lines)
    # Short lines alone are no sign: a clause has more than four letters.
    if found > len(text) / 2 and found > 4 * words:
        reading.notes.append(
            "the text has no blanks between words, so a token is a whole clause or line; "
            "set corpus.unit=char, or corpus.unit=bpe and a small corpus.vocab, such as 1000"
        )
