r"""Pairs of sequences: what a conditional model is given, and what it then predicts.

    given    x_1 .. x_m <end>               a vocabulary of its own, no `<start>`
    scored   <start> y_1 .. y_n <end>

`pairs:PATH` is the user's own file: a source, a tab and its target on each line. The pairs
are dealt 8:1:1 in the order of the file, and both vocabularies are those of the training part.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, PositiveInt, field_validator

from lmzoo.config import config
from lmzoo.data.assemble import Split, assemble
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, Sequences
from lmzoo.data.lines import read_lines
from lmzoo.data.splits import interleave
from lmzoo.data.vocabulary import by_frequency
from lmzoo.errors import UserError

Pair = tuple[Sequence[str], Sequence[str]]
"""The tokens of a source and of its target."""


def assemble_pairs(
    name: str,
    parts: Sequence[Sequence[Pair]],
    *,
    length: int,
    min_count: int,
    unit: str,
    source: str,
) -> Corpus:
    """The corpus of these training, validation and test pairs; both sides are cut to `length`.

    Raises:
        UserError: a split holds no pair.
    """

    def side(which: int) -> Corpus:
        split = Split(*([pair[which] for pair in part] for part in parts))
        vocabulary = by_frequency(split.train, min_count=min_count)
        return assemble(
            name, split, vocabulary, length=length, end=True, cut_ends=True, unit=unit,
            source=source,
        )  # fmt: skip

    given, corpus = side(0), side(1)
    return dataclasses.replace(
        corpus,
        train=paired(given.train, corpus.train),
        valid=paired(given.valid, corpus.valid),
        test=paired(given.test, corpus.test),
        source_vocabulary=given.vocabulary,
    )


def paired(given: Sequences, scored: Sequences) -> Sequences:
    """`scored`, each sequence beside the tokens of its source without their `<start>`."""
    return Sequences(scored.tokens, scored.lengths, (given.tokens[:, 1:], given.lengths - 1))


@CORPORA("pairs")
class PairsFile(CorpusSource):
    """A UTF-8 text of tab-separated pairs, plain or .gz; blank lines are dropped."""

    @config
    class Config:
        """The file, and how much of each sequence is kept."""

        path: str = ""
        length: int = Field(64, ge=3)
        """Padded length T, `<start>` and `<end>` included."""
        min_count: PositiveInt = 1
        """Rarer tokens of the training part become `<unk>`."""

        @field_validator("path")
        @classmethod
        def _given(cls, path: str) -> str:
            if not path:
                raise UserError("no file is given; write pairs:PATH")
            return path

    def load(self) -> Corpus:
        path = Path(self.config.path).expanduser()
        lines = enumerate(read_lines(path), 1)
        pairs = [_pair(path, number, line) for number, line in lines if line.strip()]
        return assemble_pairs(
            self.name, interleave(pairs, (8, 1, 1)), length=self.config.length,
            min_count=self.config.min_count, unit="word",
            source=f"{path.name}, the user's own file",
        )  # fmt: skip


def _pair(path: Path, number: int, line: str) -> Pair:
    source, *targets = (part.split() for part in line.split("\t"))
    if len(targets) != 1 or not source or not targets[0]:
        raise UserError(
            f"{path} line {number}: {line!r} is not a source, one tab and a target; mend the line"
        )
    return source, targets[0]
