"""Induction heads: repeat what followed a special symbol.

    x x x ! y x x x x !  y          the last y is scored

The sequence has n − 2 random symbols, one of which, `!`, is special and is followed by y. The input
determines the answer: accuracy 1, entropy 0.

Source: Olsson et al. 2022 (arXiv:2209.11895); Fu et al. 2022 (arXiv:2212.14052), table 1, which has
20 symbols and length 30.
"""

import numpy as np
from pydantic import Field

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.base import GeneratedTask, Scored, Symbols, TaskConfig, names


@CORPORA("induction")
class InductionHeads(GeneratedTask):
    """Repeat the symbol that followed the special one."""

    citation = "Fu et al. 2022"

    @config
    class Config(TaskConfig):
        """Length and vocabulary."""

        length: int = Field(30, ge=4)
        """Symbols n of a sequence, the answer included."""
        values: int = Field(20, ge=2)
        """Number of ordinary symbols."""

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("!", *names("x", self.config.values))

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        c, rows = self.config, np.arange(count)
        tokens = random.integers(1, 1 + c.values, (count, c.length))
        place = random.integers(0, c.length - 3, count)
        tokens[rows, place] = 0
        tokens[:, -2] = 0
        tokens[:, -1] = tokens[rows, place + 1]
        scored = np.zeros(tokens.shape, dtype=bool)
        scored[:, -1] = True
        return tokens, scored
