r"""Say it again: random symbols to be copied or said backwards.

    x_i ~ U(symbols)      y = x (`copy`) or y = x_n .. x_1 (`reverse`)      no `<end>`

    H(y | x) = 0                        the floor: the source says it all
    H(y)     = n log symbols            what a model that does not read the source can reach

Between the two lies what a model carries from the source to the target.

S3; zoo.md 4.3.
"""

import torch
from pydantic import Field

from lmzoo.config import config
from lmzoo.contract import START, stream
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, EntropyFloor, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary


@CORPORA("copy")
class CopyToy(CorpusSource):
    """The source once more."""

    @config
    class Config:
        """How many symbols, how many in a sequence, how many sequences, which seed."""

        symbols: int = Field(20, ge=2)
        length: int = Field(10, ge=1)
        """n; T is one more, for `<start>`."""
        train: int = Field(4000, ge=1)
        valid: int = Field(500, ge=1)
        test: int = Field(1000, ge=1)
        seed: int = Field(0, ge=0)

    backwards = False

    def load(self) -> Corpus:
        vocabulary = Vocabulary((*SPECIALS, *(f"s{i}" for i in range(self.config.symbols))))
        return Corpus(
            name=self.name,
            vocabulary=vocabulary,
            train=self._draw("train"),
            valid=self._draw("valid"),
            test=self._draw("test"),
            unit="symbol",
            source="uniform pseudo-random tokens; nothing to license",
            floor=EntropyFloor(token=0.0, sentence=0.0),
            source_vocabulary=vocabulary,
        )

    def _draw(self, split: str) -> Sequences:
        """Sources and targets, from the split's own stream of the seed."""
        count, n = getattr(self.config, split), self.config.length
        # Both toys draw the same sources: they differ in the order of the target only.
        generator = torch.Generator().manual_seed(stream(self.config.seed, "echo", split))
        first = len(SPECIALS)
        source = torch.randint(first, first + self.config.symbols, (count, n), generator=generator)
        target = source.flip(1) if self.backwards else source
        tokens = torch.cat([torch.full((count, 1), START), target], dim=1)
        return Sequences(tokens, torch.full((count,), n + 1), (source, torch.full((count,), n)))


@CORPORA("reverse")
class ReverseToy(CopyToy):
    """The source from its end to its beginning."""

    @config
    class Config(CopyToy.Config):
        """As in `copy`."""

    backwards = True
