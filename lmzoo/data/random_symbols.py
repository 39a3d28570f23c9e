r"""Synthetic corpora of independent uniform symbols: `iid`, `copy` and `reverse`.

    x_i ~ U(symbols)
    iid        <start> x_1 .. x_n                      H(x) = n log symbols
    copy       source x, target y = x                  H(y | x) = 0,  H(y) = n log symbols
    reverse    source x, target y = x_n .. x_1         H(y | x) = 0,  H(y) = n log symbols

All sequences have the same length and no `<end>`, so both entropy floors are equal. In `iid`, a
causal model cannot score below log(symbols) on held-out sequences unless it reads the tokens that
it predicts. In `copy` and `reverse`, log(symbols) is the best loss of a model that does not read
the source and 0 that of a model that does; the loss of a model between the two measures how much it
carries from source to target. The data are pseudo-random, so there is no licence.

Source: S3 (`copy`, `reverse`).
"""

import dataclasses
from abc import abstractmethod
from math import log
from typing import ClassVar

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.seeds import derive_seed
from lmzoo.contract import START
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, EntropyFloor, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary


class RandomSymbols(CorpusSource):
    """Base class of the corpora."""

    stream: ClassVar[str] = "iid"
    """Name of the random streams."""

    @config
    class Config:
        """Number of symbols, padded length, sequences per split, and the random seed."""

        symbols: int = Field(20, ge=2)
        length: int = Field(20, ge=2)
        """Padded length T, `<start>` included."""
        train: int = Field(4000, ge=1)
        valid: int = Field(500, ge=1)
        test: int = Field(1000, ge=1)
        seed: int = Field(0, ge=0)

    def corpus(self, floor: float) -> Corpus:
        """Return the corpus with this entropy floor."""
        return Corpus(
            name=self.name,
            vocabulary=Vocabulary((*SPECIALS, *(f"s{i}" for i in range(self.config.symbols)))),
            train=self.draw("train"),
            valid=self.draw("valid"),
            test=self.draw("test"),
            unit="symbol",
            source="uniform pseudo-random tokens; nothing to license",
            floor=EntropyFloor(token=floor, sentence=floor),
        )

    @abstractmethod
    def draw(self, split: str) -> Sequences:
        """Draw the sequences of a split."""

    def draw_symbols(self, split: str) -> Int[Tensor, "N length"]:
        """Draw symbols from the random stream of (seed, split)."""
        seed = derive_seed(self.config.seed, self.stream, split)
        size = getattr(self.config, split), self.config.length
        first, end = len(SPECIALS), len(SPECIALS) + self.config.symbols
        return torch.randint(first, end, size, generator=torch.Generator().manual_seed(seed))


@CORPORA("iid")
class UniformTokens(RandomSymbols):
    """Independent uniform symbols."""

    def load(self) -> Corpus:
        return self.corpus(floor=log(self.config.symbols))

    def draw(self, split: str) -> Sequences:
        tokens = self.draw_symbols(split)
        tokens[:, 0] = START
        return Sequences(tokens, torch.full((len(tokens),), self.config.length))


@CORPORA("copy")
class CopyTask(RandomSymbols):
    """The target is the source."""

    stream = "echo"  # also that of `reverse`, so both have the same sources
    reverse = False

    @config
    class Config(RandomSymbols.Config):
        """Number of symbols, symbols per sequence, sequences per split, and the random seed."""

        length: int = Field(10, ge=1)
        """n. T is n + 1, as `<start>` is added."""

    def load(self) -> Corpus:
        corpus = self.corpus(floor=0.0)
        return dataclasses.replace(corpus, source_vocabulary=corpus.vocabulary)

    def draw(self, split: str) -> Sequences:
        source = self.draw_symbols(split)
        count, n = source.shape
        target = source.flip(1) if self.reverse else source
        tokens = torch.cat([torch.full((count, 1), START), target], dim=1)
        return Sequences(tokens, torch.full((count,), n + 1), (source, torch.full((count,), n)))


@CORPORA("reverse")
class ReverseTask(CopyTask):
    """The target is the source in reverse order."""

    reverse = True
