"""Selective copying and compression: repeat a sequence, with and without blanks in it.

    selective_copying    x · · y · z · ?  x y z        blanks at random places
    compression          x y z w u       ?  x y z w u

All symbols after `?` are scored. The input determines them: accuracy 1, entropy 0.

Differences from mad-lab: the answer follows as the next tokens, where mad-lab feeds blanks; a model
may use its answers so far. In mad-lab's compression, a network decodes all symbols from the vector
at `?`, so it tests that vector. Here a recurrent model is tested for what its state holds, and
attention may look back. The defaults are mad-lab's, with 12,800 training and 1,280 test sequences.

Each blank is before one of the symbols, all of which have the same chance, so the last symbol is
directly before `?`.

Source: Poli et al. 2024 (arXiv:2403.17844); athms/mad-lab `mad/data/instances.py`.
"""

from typing import Any

import numpy as np
from pydantic import Field, model_validator

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.base import GeneratedTask, MadConfig, Scored, Symbols, names


class _Copying(GeneratedTask):
    citation = "Poli et al. 2024"

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("?", "blank", *names("x", self.config.values))

    def with_blanks(
        self, random: np.random.Generator, values: Symbols, blanks: int
    ) -> tuple[Symbols, Scored]:
        """Return the values with blanks at random places, the sign and the values."""
        count, n = values.shape
        before = random.multinomial(blanks, np.full(n, 1 / n), count)
        places = np.arange(n) + before.cumsum(axis=1)
        tokens = np.ones((count, n + blanks), dtype=np.int64)
        np.put_along_axis(tokens, places, values, axis=1)
        tokens = np.concatenate([tokens, np.zeros((count, 1), np.int64), values], axis=1)
        scored = np.arange(tokens.shape[1]) > n + blanks
        return tokens, np.broadcast_to(scored, tokens.shape)


@CORPORA("selective_copying")
class SelectiveCopying(_Copying):
    """Repeat the symbols that are not blank."""

    @config
    class Config(MadConfig):
        """Length, symbols to copy and vocabulary."""

        length: int = Field(256, ge=4)
        """Symbols of a sequence, the answer included."""
        copied: int = Field(16, ge=1)
        """Number of symbols to copy."""
        values: int = Field(14, ge=2)
        """Number of different symbols."""

        @model_validator(mode="after")
        def _has_room(self) -> Any:
            if self.length < 2 * self.copied + 1:
                raise UserError(
                    f"length={self.length} has no room for {self.copied} symbols and their copy; "
                    f"set at least {2 * self.copied + 1}"
                )
            return self

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        c = self.config
        values = random.integers(2, 2 + c.values, (count, c.copied))
        blanks = c.length - 2 * c.copied - 1
        return self.with_blanks(random, values, blanks)


@CORPORA("compression")
class Compression(_Copying):
    """Repeat the whole sequence."""

    @config
    class Config(MadConfig):
        """Length and vocabulary."""

        length: int = Field(31, ge=1)
        """Symbols before `?`."""
        values: int = Field(15, ge=2)
        """Number of different symbols."""

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        c = self.config
        values = random.integers(2, 2 + c.values, (count, c.length))
        return self.with_blanks(random, values, 0)
