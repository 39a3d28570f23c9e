"""Memorisation: a fixed dictionary, the same in all sequences and splits.

    k v k' v' ...        every value is scored

No key occurs twice in a sequence, so the context tells nothing: the weights must hold the
dictionary, log₂ K! bits. A model that knows it has accuracy 1 and entropy 0. The splits differ in
their sequences and share the dictionary, which depends on the seed alone.

Differences from mad-lab: it writes an "insert" symbol where the value would be, and keys may occur
twice. Its defaults are the same: 127 keys, 32 symbols a sequence, 256 training and 1,280 test
sequences.

Source: Poli et al. 2024 (arXiv:2403.17844); athms/mad-lab `mad/data/instances.py`.
"""

from typing import Any

import numpy as np
from pydantic import Field, model_validator

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.seeds import derive_seed
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.base import GeneratedTask, MadConfig, Scored, Symbols, distinct, names


@CORPORA("memorisation")
class Memorisation(GeneratedTask):
    """Learn a fixed map from keys to values by heart."""

    citation = "Poli et al. 2024"

    @config
    class Config(MadConfig):
        """Length and size of the dictionary."""

        train: int = Field(256, ge=1)
        length: int = Field(32, ge=2, multiple_of=2)
        """Symbols of a sequence."""
        keys: int = Field(127, ge=2)
        """Number K of keys, and of values."""

        @model_validator(mode="after")
        def _has_keys(self) -> Any:
            if self.length > 2 * self.keys:
                raise UserError(f"length={self.length} needs {self.length // 2} keys; raise keys")
            return self

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*names("k", self.config.keys), *names("v", self.config.keys))

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        c = self.config
        fixed = np.random.default_rng(derive_seed(c.seed, self.name, "dictionary"))
        values = c.keys + fixed.permutation(c.keys)
        keys = distinct(random, count, c.length // 2, c.keys)
        tokens = np.stack([keys, values[keys]], axis=-1).reshape(count, -1)
        return tokens, np.arange(c.length) % 2 == np.ones((count, 1))
