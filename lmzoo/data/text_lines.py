"""A text of one sequence per line: `text:PATH`.

Lines are dealt to the training, validation and test splits 8:1:1 by a hash, and equal lines are in
one split (`text_splits.deal`). A text of documents is cut at ends of documents near 80 % and 90 %
instead (`documents.py`). The vocabulary is that of the training split. `<end>` follows every line
that is not cut. By word, some rare training words are `<unk>` if validation or test has unknown
words (`train_unk`).

A long text is encoded once: its ids, padded to length T, are mapped into memory afterwards
(`id_cache.py`).
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Integer
from torch import Tensor

from lmzoo.base.config import config, to_dict
from lmzoo.data.assemble import Split, assemble
from lmzoo.data.corpus import CORPORA, Corpus, Sequences
from lmzoo.data.documents import Documents, DocumentText, decode, read_documents
from lmzoo.data.files import Reading
from lmzoo.data.id_cache import CACHED_FROM, cached_ids
from lmzoo.data.text_facts import TextFacts, read_facts
from lmzoo.data.text_size import TextSize
from lmzoo.data.unknown import TrainUnk
from lmzoo.data.user_files import FastaConfig, Limit, UserFile
from lmzoo.data.vocabulary import Vocabulary, build_vocabulary

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
        # str.splitlines would also split at form feeds and other separators inside a line.
        lines = decode(text, self.path).removesuffix("\n").split("\n")
        kept = [line.removesuffix("\r") for line in lines if line.strip()]
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
