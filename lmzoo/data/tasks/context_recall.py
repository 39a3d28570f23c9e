"""In-context recall: keys whose values are fixed within a sequence, with and without noise.

    k v k' v' k v ...        a value is scored where its key occurred before

Each sequence maps every key to a value. Keys are drawn with replacement. In `noisy_recall`, a share
of the pairs is two noise symbols. The input determines every scored value: accuracy 1, entropy 0.
The last pair repeats an earlier key, so every sequence has a scored value.

Difference from mad-lab: it trains on all tokens (`train_on=all`) and tests recall; by default both
count recall alone. Its defaults are the same: 16 symbols, of noise another 16, 128 symbols a
sequence, 12,800 training and 1,280 test sequences.

Source: Poli et al. 2024 (arXiv:2403.17844); athms/mad-lab `mad/data/instances.py`.
"""

import numpy as np
from pydantic import Field

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.base import GeneratedTask, MadConfig, Scored, Symbols, names


@CORPORA("in_context_recall")
class InContextRecall(GeneratedTask):
    """Recall the values of keys that occurred before."""

    citation = "Poli et al. 2024"

    @config
    class Config(MadConfig):
        """Length and vocabulary."""

        length: int = Field(128, ge=4, multiple_of=2)
        """Symbols of a sequence."""
        keys: int = Field(8, ge=1)
        """Number of different keys, and of different values."""

    @property
    def noise(self) -> tuple[int, float]:
        """Number of noise symbols, and the share of pairs that are noise."""
        return 0, 0.0

    @property
    def symbols(self) -> tuple[str, ...]:
        keys = self.config.keys
        return (*names("k", keys), *names("v", keys), *names("n", self.noise[0]))

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        c = self.config
        noise_symbols, share = self.noise
        rows, pairs = np.arange(count), c.length // 2
        values = random.integers(c.keys, 2 * c.keys, (count, c.keys))
        keys = random.integers(0, c.keys, (count, pairs))
        noise = random.random((count, pairs)) < share
        noise[rows, random.integers(0, pairs - 1, count)] = noise[:, -1] = False
        # The last key is that of a random earlier pair.
        earlier = np.where(noise[:, :-1], -1.0, random.random((count, pairs - 1))).argmax(1)
        keys[:, -1] = keys[rows, earlier]
        known, seen = np.zeros((count, c.keys), dtype=bool), np.zeros_like(noise)
        for pair, key in enumerate(keys.T):
            seen[:, pair] = known[rows, key] & ~noise[:, pair]
            known[rows, key] |= ~noise[:, pair]
        tokens = np.stack([keys, np.take_along_axis(values, keys, axis=1)], axis=-1)
        if noise_symbols:
            drawn = random.integers(2 * c.keys, 2 * c.keys + noise_symbols, tokens.shape)
            tokens = np.where(noise[..., None], drawn, tokens)
        scored = np.stack([np.zeros_like(seen), seen], axis=-1)
        return tokens.reshape(count, -1), scored.reshape(count, -1)


@CORPORA("noisy_recall")
class NoisyRecall(InContextRecall):
    """In-context recall with pairs of noise in between."""

    @config
    class Config(InContextRecall.Config):
        """Length, vocabulary and noise."""

        noise: float = Field(0.2, ge=0, lt=1)
        """Share of the pairs that are noise."""
        noise_symbols: int = Field(16, ge=1)

    @property
    def noise(self) -> tuple[int, float]:
        return self.config.noise_symbols, self.config.noise
