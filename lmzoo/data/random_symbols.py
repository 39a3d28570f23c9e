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

from math import log
from typing import ClassVar

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.seeds import derive_seed
from lmzoo.contract import START
from lmzoo.data.corpus import (
    CORPORA,
    SPLITS,
    Corpus,
    CorpusSource,
    DrawnConfig,
    EntropyFloor,
    Sequences,
)
from lmzoo.data.vocabulary import SPECIALS, Vocabulary


@CORPORA("iid")
class UniformTokens(CorpusSource):
    """Independent uniform symbols."""

    stream: ClassVar[str] = "iid"
    """Name of the random streams."""

    @config
    class Config(DrawnConfig):
        """Number of symbols, padded length, sequences per split, and the random seed."""

        symbols: int = Field(20, ge=2)
        length: int = Field(20, ge=2)
        """Padded length T, `<start>` included."""

    def load(self) -> Corpus:
        names = [f"s{i}" for i in range(self.config.symbols)]
        vocabulary = Vocabulary(SPECIALS + tuple(names))
        train, valid, test = (self.encode(self.draw(split)) for split in SPLITS)
        floor = 0.0
        source_vocabulary = vocabulary
        # With a source the target is known: its entropy is 0.
        if not train.sources:
            floor = log(self.config.symbols)
            source_vocabulary = None
        return Corpus(
            self.name,
            vocabulary,
            train,
            valid,
            test,
            unit="symbol",
            source="uniform pseudo-random tokens; nothing to license",
            floor=EntropyFloor(token=floor, sentence=floor),
            source_vocabulary=source_vocabulary,
        )

    def draw(self, split: str) -> Int[Tensor, "N length"]:
        """Draw symbols from the random stream of (seed, split)."""
        seed = derive_seed(self.config.seed, self.stream, split)
        generator = torch.Generator().manual_seed(seed)
        size = (getattr(self.config, split), self.config.length)
        first = len(SPECIALS)
        end = first + self.config.symbols
        return torch.randint(first, end, size, generator=generator)

    def encode(self, symbols: Int[Tensor, "N length"]) -> Sequences:
        # The first symbol is drawn, too, and replaced: it keeps the numbers of the others.
        symbols[:, 0] = START
        lengths = torch.full((len(symbols),), self.config.length)
        return Sequences(symbols, lengths)


@CORPORA("copy")
class CopyTask(UniformTokens):
    """The target is the source."""

    stream = "echo"  # also that of `reverse`, so both have the same sources
    reverse = False

    @config
    class Config(UniformTokens.Config):
        """Number of symbols, symbols per sequence, sequences per split, and the random seed."""

        length: int = Field(10, ge=1)
        """n. T is n + 1, as `<start>` is added."""

    def encode(self, symbols: Int[Tensor, "N length"]) -> Sequences:
        lengths = torch.full((len(symbols),), symbols.shape[1])
        target = symbols
        if self.reverse:
            target = symbols.flip(1)
        tokens = torch.nn.functional.pad(target, (1, 0), value=START)
        return Sequences(tokens, lengths + 1, (symbols, lengths))


@CORPORA("reverse")
class ReverseTask(CopyTask):
    """The target is the source in reverse order."""

    reverse = True
