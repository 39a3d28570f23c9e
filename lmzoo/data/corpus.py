"""What a corpus is: encoded sequences in three splits, and the facts known of them.

A corpus is a file in this folder: a class with a `Config` and a `load`. Its token ids
follow `contract.PAD, START, END, UNKNOWN`; every sequence begins with `<start>`.
"""

import dataclasses
import functools
import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from lmzoo.contract import END, Task
from lmzoo.data.vocabulary import Vocabulary
from lmzoo.registry import Registry


@dataclass(frozen=True)
class Sequences:
    """Encoded sequences: tokens (N, T) int64, padded; lengths (N,), `<start>` counted."""

    tokens: Tensor
    lengths: Tensor
    given: tuple[Tensor, ...] = ()
    """A source beside each sequence: tokens (N, S) without `<start>`, lengths (N,); or nothing."""

    def __post_init__(self) -> None:
        columns = (self.tokens, self.lengths, *self.given)
        assert len(self.given) in (0, 2)
        assert all(column.dtype == torch.int64 for column in columns)
        assert all(len(column) == len(self.tokens) for column in columns)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def scored(self) -> int:
        """Number of tokens that have a score."""
        return int((self.lengths - 1).sum())

    def to(self, device: torch.device) -> "Sequences":
        """The same on a device; itself if it is there."""
        if self.tokens.device == device:
            return self
        given = tuple(column.to(device) for column in self.given)
        return Sequences(self.tokens.to(device), self.lengths.to(device), given)


@dataclass(frozen=True)
class EntropyFloor:
    """The least loss any model can have, in nats per scored token, in expectation."""

    token: float
    """Token-weighted: H(sequence) / E[scored tokens]."""
    sentence: float
    """Sentence mean: E[ −log P(s) / scored tokens of s ]."""


@dataclass(frozen=True)
class Corpus:
    """Three splits under one vocabulary."""

    name: str
    vocabulary: Vocabulary
    train: Sequences
    valid: Sequences
    test: Sequences
    unit: str
    """What a token is: word, character or residue."""
    source: str
    """Where it comes from, and its licence."""
    floor: EntropyFloor | None = None
    source_vocabulary: Vocabulary | None = None
    """Of the sources, in a corpus of pairs."""
    ends: bool | None = None
    """Whether a sequence that is whole has `<end>` as its last token; None looks for one, once."""

    def __post_init__(self) -> None:
        if self.ends is None:
            object.__setattr__(self, "ends", bool((self.train.tokens == END).any()))

    def to(self, device: torch.device) -> "Corpus":
        """The same with its sequences on a device."""
        parts = {name: getattr(self, name).to(device) for name in ("train", "valid", "test")}
        return dataclasses.replace(self, **parts)

    @property
    def task(self) -> Task:
        """The sizes a model needs."""
        vocab, length = len(self.vocabulary), self.train.tokens.shape[1]
        ends = bool(self.ends)
        if self.source_vocabulary is None:
            return Task(vocab=vocab, length=length, ends=ends)
        source_length = self.train.given[0].shape[1]
        return Task(
            vocab=vocab,
            length=length,
            ends=ends,
            source_vocab=len(self.source_vocabulary),
            source_length=source_length,
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of vocabulary and all tokens: two corpora of one name are not one corpus."""
        digest = hashlib.sha256("\n".join(self.vocabulary.tokens).encode())
        if self.source_vocabulary is not None:
            digest.update("\n".join(self.source_vocabulary.tokens).encode())
        for part in (self.train, self.valid, self.test):
            for column in (part.tokens, part.lengths, *part.given):
                digest.update(column.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


class CorpusSource(ABC):
    """How a corpus is found and read."""

    name: ClassVar[str]
    Config: ClassVar[type]

    def __init__(self, config: Any, data_dir: Path | None) -> None:
        self.config = config
        self.data_dir = data_dir

    @abstractmethod
    def load(self) -> Corpus:
        """Read, split and encode it.

        Raises:
            UserError: the data is missing or unreadable; one line says what to do.
        """


CORPORA: Registry[type[CorpusSource]] = Registry("corpus")
