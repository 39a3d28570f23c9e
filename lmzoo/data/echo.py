r"""Pairs of random symbols: the target repeats the source (`copy`) or reverses it (`reverse`).

    x_i ~ U(symbols)      y = x (`copy`) or y = x_n .. x_1 (`reverse`)      no `<end>`

    H(y | x) = 0                        entropy floor: the source determines the target
    H(y)     = n log symbols            best loss of a model that does not read the source

The loss of a model between these two values measures how much it carries from source to target.
The data are pseudo-random, so there is no licence.

Source: S3.
"""

import torch
from pydantic import Field

from lmzoo.config import config
from lmzoo.contract import START
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource, EntropyFloor, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.seeding import derive_seed


@CORPORA("copy")
class CopyTask(CorpusSource):
    """The target is the source."""

    @config
    class Config:
        """Number of symbols, symbols per sequence, sequences per split, and the random seed."""

        symbols: int = Field(20, ge=2)
        length: int = Field(10, ge=1)
        """n. T is n + 1, as `<start>` is added."""
        train: int = Field(4000, ge=1)
        valid: int = Field(500, ge=1)
        test: int = Field(1000, ge=1)
        seed: int = Field(0, ge=0)

    reverse = False

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
        """Draw sources and targets from the random stream of (seed, split)."""
        count, n = getattr(self.config, split), self.config.length
        # `copy` and `reverse` draw the same sources and differ in the order of the target only.
        generator = torch.Generator().manual_seed(derive_seed(self.config.seed, "echo", split))
        first = len(SPECIALS)
        source = torch.randint(first, first + self.config.symbols, (count, n), generator=generator)
        target = source.flip(1) if self.reverse else source
        tokens = torch.cat([torch.full((count, 1), START), target], dim=1)
        return Sequences(tokens, torch.full((count,), n + 1), (source, torch.full((count,), n)))


@CORPORA("reverse")
class ReverseTask(CopyTask):
    """The target is the source in reverse order."""

    @config
    class Config(CopyTask.Config):
        """The same fields as `copy`."""

    reverse = True
