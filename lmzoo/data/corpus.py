"""What a corpus is: encoded sequences in three splits, and the facts known of them.

A corpus is a file in this folder: a class with a `Config` and a `load`. Its token ids
follow `contract.PAD, START, END, UNKNOWN`; every sequence begins with `<start>`.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from lmzoo.contract import Task
from lmzoo.data.vocabulary import Vocabulary
from lmzoo.registry import Registry


@dataclass(frozen=True)
class Sequences:
    """Encoded sequences: tokens (N, T) int64, padded; lengths (N,), `<start>` counted."""

    tokens: Tensor
    lengths: Tensor

    def __post_init__(self) -> None:
        assert self.tokens.dtype == self.lengths.dtype == torch.int64
        assert len(self.tokens) == len(self.lengths)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def scored(self) -> int:
        """Number of tokens that have a score."""
        return int((self.lengths - 1).sum())


@dataclass(frozen=True)
class Floor:
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
    floor: Floor | None = None

    @property
    def task(self) -> Task:
        """The sizes a model needs."""
        return Task(vocab=len(self.vocabulary), length=self.train.tokens.shape[1])

    @property
    def fingerprint(self) -> str:
        """A hash of vocabulary and all tokens: two corpora of one name are not one corpus."""
        digest = hashlib.sha256("\n".join(self.vocabulary.tokens).encode())
        for part in (self.train, self.valid, self.test):
            digest.update(part.tokens.numpy().tobytes())
            digest.update(part.lengths.numpy().tobytes())
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
