r"""Corpora of pairs: a source sequence, and the target sequence that a model predicts from it.

    source   x_1 .. x_m <end>               with its own vocabulary, without `<start>`
    target   <start> y_1 .. y_n <end>       scored

`pairs:PATH` is the user's own file with a source, a tab and its target on each line. Pairs are
dealt to the training, validation and test splits 8:1:1 in file order. Both vocabularies are those
of the training split.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, PositiveInt, field_validator

from lmzoo.config import config
from lmzoo.data.assemble import Split, assemble
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, Sequences
from lmzoo.data.files import read_lines
from lmzoo.data.splits import interleave
from lmzoo.data.vocabulary import build_vocabulary
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
    """Build a corpus from training, validation and test pairs; both sides are cut to `length`.

    Raises:
        UserError: A split has no pair.
    """

    def assemble_side(side: int) -> Corpus:
        split = Split(*([pair[side] for pair in part] for part in parts))
        vocabulary = build_vocabulary(split.train, min_count=min_count)
        return assemble(
            name, split, vocabulary, length=length, end=True, end_after_cut=True, unit=unit,
            source=source,
        )  # fmt: skip

    sources, targets = assemble_side(0), assemble_side(1)
    return dataclasses.replace(
        targets,
        train=with_sources(targets.train, sources.train),
        valid=with_sources(targets.valid, sources.valid),
        test=with_sources(targets.test, sources.test),
        source_vocabulary=sources.vocabulary,
    )


def with_sources(targets: Sequences, sources: Sequences) -> Sequences:
    """Return the targets with their sources, the `<start>` of the sources removed."""
    return Sequences(targets.tokens, targets.lengths, (sources.tokens[:, 1:], sources.lengths - 1))


@CORPORA("pairs")
class PairsFile(CorpusSource):
    """A UTF-8 text file of tab-separated pairs, plain or .gz; blank lines are dropped."""

    @config
    class Config:
        """The file, the maximal sequence length and the vocabulary limit."""

        path: str = ""
        length: int = Field(64, ge=3)
        """Padded length T, `<start>` and `<end>` included."""
        min_count: PositiveInt = 1
        """Tokens that are rarer in the training split become `<unk>`."""

        @field_validator("path")
        @classmethod
        def _require_path(cls, path: str) -> str:
            if not path:
                raise UserError("the corpus needs a file; write pairs:PATH")
            return path

    def load(self) -> Corpus:
        path = Path(self.config.path).expanduser()
        lines = enumerate(read_lines(path), 1)
        pairs = [_parse_pair(path, number, line) for number, line in lines if line.strip()]
        return assemble_pairs(
            self.name, interleave(pairs, (8, 1, 1)), length=self.config.length,
            min_count=self.config.min_count, unit="word",
            source=f"{path.name}, the user's own file",
        )  # fmt: skip


def _parse_pair(path: Path, number: int, line: str) -> Pair:
    source, *targets = (part.split() for part in line.split("\t"))
    if len(targets) != 1 or not source or not targets[0]:
        raise UserError(
            f"{path} line {number}: {line!r} is not a source, one tab and a target; fix the line"
        )
    return source, targets[0]
