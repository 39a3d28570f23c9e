"""Independent uniform tokens, on which no causal model can beat the entropy floor.

    P(s_t = v | s_<t) = 1 / symbols        −log P = log symbols, at every t ≥ 1

A model that scores below log(symbols) on held-out sequences reads the tokens that it predicts.
All sequences have the same length and no `<end>`, so both entropy floors are equal. The data are
pseudo-random, so there is no licence.
"""

from math import log

import torch
from pydantic import Field

from lmzoo.config import config
from lmzoo.contract import START
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, EntropyFloor, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.seeding import derive_seed


@CORPORA("iid")
class UniformTokens(CorpusSource):
    """Independent uniform symbols."""

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

    def load(self) -> Corpus:
        symbols = self.config.symbols
        return Corpus(
            name=self.name,
            vocabulary=Vocabulary((*SPECIALS, *(f"s{i}" for i in range(symbols)))),
            train=self._draw("train"),
            valid=self._draw("valid"),
            test=self._draw("test"),
            unit="symbol",
            source="uniform pseudo-random tokens; nothing to license",
            floor=EntropyFloor(token=log(symbols), sentence=log(symbols)),
        )

    def _draw(self, split: str) -> Sequences:
        """Draw `<start>` and symbols from the random stream of (seed, split)."""
        count, length = getattr(self.config, split), self.config.length
        generator = torch.Generator().manual_seed(derive_seed(self.config.seed, "iid", split))
        first = len(SPECIALS)
        tokens = torch.randint(
            first, first + self.config.symbols, (count, length), generator=generator
        )
        tokens[:, 0] = START
        return Sequences(tokens, torch.full((count,), length))
