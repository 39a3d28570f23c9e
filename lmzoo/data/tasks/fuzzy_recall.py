"""Fuzzy recall: in-context recall whose keys and values are several symbols long.

    k₁k₂ v₁ | k'₁ v'₁v'₂v'₃ | k₁k₂ v₁ ...        a value is scored where its key occurred before

A key has 1 to `key_size` different symbols in training, and `key_size` in validation and test, so
that it is known where a value begins; a value has 1 to `value_size`. A sequence maps every key to
one value, draws its keys from `distinct_keys` of its own, and has no marks between pairs. The input
determines every scored symbol of validation and test: accuracy 1, entropy 0. In training, the
length of a key is uncertain, so the training loss stays above 0.

Differences from mad-lab: the keys of a sequence are few, where mad-lab relies on chance to repeat
one of hundreds and adds one probe; it pads on the left and trains on all tokens (`train_on=all`).
Its defaults are otherwise the same: 7 symbols for keys and 8 for values, 128 symbols a sequence,
12,800 training and 1,280 test sequences.

Source: Poli et al. 2024 (arXiv:2403.17844); athms/mad-lab `mad/data/instances.py`.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from pydantic import Field, model_validator

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.base import BLANK, GeneratedTask, MadConfig, Scored, Symbols, names


@CORPORA("fuzzy_recall")
class FuzzyRecall(GeneratedTask):
    """Recall values of several symbols by keys of several symbols."""

    citation = "Poli et al. 2024"

    @config
    class Config(MadConfig):
        """Length, vocabulary, and sizes of keys and values."""

        length: int = Field(128, ge=4)
        """Most symbols of a sequence; the last pair is complete."""
        letters: int = Field(7, ge=1)
        """Number of symbols for keys."""
        value_letters: int = Field(8, ge=1)
        """Number of symbols for values."""
        key_size: int = Field(3, ge=1)
        value_size: int = Field(3, ge=1)
        distinct_keys: int = Field(8, ge=1)
        """Keys of one sequence."""

        @model_validator(mode="after")
        def _has_room(self) -> Any:
            values = self.value_letters
            if self.key_size > self.letters or self.value_size > values:
                raise UserError(
                    f"letters={self.letters} or value_letters={values} is less than a key or a "
                    "value has"
                )
            least = (1 + self.distinct_keys) * (self.key_size + self.value_size)
            if self.length < least:
                raise UserError(f"length={self.length} repeats no key; set at least {least}")
            return self

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*names("k", self.config.letters), *names("v", self.config.value_letters))

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        tokens = np.full((count, self.config.length), BLANK)
        scored = np.zeros(tokens.shape, dtype=bool)
        for row, mask in zip(tokens, scored, strict=True):
            self._fill(random, row, mask, varied=split == "train")
        return tokens, scored

    def _fill(
        self,
        random: np.random.Generator,
        row: Int[np.ndarray, "n"],
        mask: Bool[np.ndarray, "n"],
        *,
        varied: bool,
    ) -> None:
        """Write one sequence into `row` and what is scored into `mask`."""
        c, t, seen = self.config, 0, set[int]()
        least = 1 if varied else c.key_size
        sizes = random.integers(least, c.key_size + 1, c.distinct_keys)
        keys = [random.permutation(c.letters)[:size] for size in sizes]
        distinct_keys = list({key.tobytes(): key for key in keys}.values())
        values = [
            c.letters + random.permutation(c.value_letters)[: random.integers(1, c.value_size + 1)]
            for _ in distinct_keys
        ]
        while True:
            chosen = int(random.integers(len(distinct_keys)))
            key, value = distinct_keys[chosen], values[chosen]
            end = t + len(key) + len(value)
            if end > c.length:
                return
            row[t:end] = np.concatenate([key, value])
            mask[t + len(key) : end] = chosen in seen
            seen.add(chosen)
            t = end
