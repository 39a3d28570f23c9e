"""Independent, uniform tokens: the past says nothing, so no causal model can beat the floor.

    P(s_t = v | s_<t) = 1 / symbols        −log P = log symbols, at every t ≥ 1

Whoever scores below log(symbols) on held-out sequences has seen the answer. There is no
`<end>`: all sequences have the same length, and both floors coincide.

zoo.md 1.7, contract C3.
"""

from math import log

import torch
from pydantic import Field

from lmzoo.config import config
from lmzoo.contract import START, stream
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, EntropyFloor, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary


@CORPORA("iid")
class UniformTokens(CorpusSource):
    """Uniform noise of known entropy."""

    @config
    class Config:
        """How many symbols, how long (`<start>` counted), how many sequences, which seed."""

        symbols: int = Field(20, ge=2)
        length: int = Field(20, ge=2)
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
        """`<start>` and then symbols, from the split's own stream of the seed."""
        count, length = getattr(self.config, split), self.config.length
        generator = torch.Generator().manual_seed(stream(self.config.seed, "iid", split))
        first = len(SPECIALS)
        tokens = torch.randint(
            first, first + self.config.symbols, (count, length), generator=generator
        )
        tokens[:, 0] = START
        return Sequences(tokens, torch.full((count,), length))
