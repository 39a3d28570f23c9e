"""Recall: the answer stands earlier in the sequence, or in the weights.

`mqar`, multi-query associative recall: many keys with values, then queries.

    k_1 v_1 .. k_P v_P   · · k_j v_j · · · · k_i v_i · ·        v_i and v_j are scored

Each of the P pairs is asked for once. The second part has (n − 2P) / 2 slots of two symbols; a
query is in slot g with a probability proportional to g^(a−1), without replacement, as gaps between
repeated bigrams of text. Other slots have random symbols, or a blank with `noise=False`.
Differences from zoology: the value follows its query as the next token, where zoology has a label
and any symbol. The blank is a symbol of its own; keys and values are one half of the others each.
The default vocabulary is small, so that a CPU learns the task in minutes; the paper has 8,192 and
`noise=False`.

`induction`: repeat what followed a special symbol, one of n − 2 random symbols.

    x x x ! y x x x x !  y          the last y is scored

`in_context_recall`, and `noisy_recall` with a share of pairs of noise symbols: every sequence maps
keys to values. Keys are drawn with replacement; the last pair repeats an earlier key.

    k v k' v' k v ...               a value is scored where its key occurred before

`fuzzy_recall`: the same with keys and values of several symbols.

    k₁k₂ v₁ | k'₁ v'₁v'₂v'₃ | k₁k₂ v₁ ...

A key has 1 to `key_size` different symbols in training, and `key_size` in validation and test, so
that it is known where a value begins; a value has 1 to `value_size`. A sequence draws its keys from
`distinct_keys` of its own, and has no marks between pairs. In training, the length of a key is
uncertain, so the training loss stays above 0.

`memorisation`: a fixed dictionary, the same in all sequences and splits; it depends on the seed.

    k v k' v' ...                   every value is scored

No key occurs twice in a sequence, so the context tells nothing: the weights must hold the
dictionary, log₂ K! bits.

In all of them the input, or the dictionary, determines the answers: accuracy 1, entropy 0.

The last four have the defaults of mad-lab. Differences: it trains recall on all tokens
(`train_on=all`) and tests recall; by default both count recall alone. In `fuzzy_recall`, the keys
of a sequence are few, where mad-lab relies on chance to repeat one of hundreds and adds one probe;
it pads on the left. In `memorisation`, mad-lab writes an "insert" symbol where the value would be,
and keys may occur twice.

Source: Arora et al. 2023 (arXiv:2312.04927), HazyResearch/zoology `data/multiquery_ar.py`; Olsson
et al. 2022 (arXiv:2209.11895) and Fu et al. 2022 (arXiv:2212.14052, table 1: 20 symbols, length
30); Poli et al. 2024 (arXiv:2403.17844), athms/mad-lab `mad/data/instances.py`.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from pydantic import Field, model_validator

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.seeds import derive_seed
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.base import (
    BLANK,
    GeneratedTask,
    MadConfig,
    Scored,
    Symbols,
    TaskConfig,
    distinct,
    names,
)


@CORPORA("mqar")
class MultiQueryRecall(GeneratedTask):
    """Multi-query associative recall."""

    citation = "Arora et al. 2023"

    @config
    class Config(TaskConfig):
        """Length, pairs, vocabulary and gaps."""

        length: int = Field(64, ge=4)
        """Symbols n of a sequence."""
        pairs: int = Field(8, ge=1)
        keys: int = Field(64, ge=1)
        """Number of different keys, and of different values."""
        power: float = Field(0.01, gt=0)
        """Exponent a of the gaps; 1 makes them uniform."""
        noise: bool = True
        """Random symbols between the queries."""

        @model_validator(mode="after")
        def _has_room(self) -> Any:
            if 4 * self.pairs > self.length or self.length % 2:
                raise UserError(
                    f"length={self.length} has no room for {self.pairs} pairs and their queries; "
                    f"set an even length of at least {4 * self.pairs}"
                )
            if self.pairs > self.keys:
                raise UserError(f"pairs={self.pairs} needs as many keys; keys={self.keys}")
            return self

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("blank", *names("k", self.config.keys), *names("v", self.config.keys))

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        c = self.config
        keys = 1 + distinct(random, count, c.pairs, c.keys)
        values = 1 + c.keys + distinct(random, count, c.pairs, c.keys)
        pairs = np.stack([keys, values], axis=-1)
        slots = (c.length - 2 * c.pairs) // 2
        # The largest of log p + Gumbel noise are a sample without replacement, in its order.
        scores = (c.power - 1) * np.log(np.arange(1, slots + 1)) + random.gumbel(
            size=(count, slots)
        )
        chosen = np.argsort(-scores, axis=1)[:, : c.pairs]
        size = (count, slots, 2)
        rest = random.integers(0, 1 + 2 * c.keys, size) if c.noise else np.zeros(size, np.int64)
        np.put_along_axis(rest, chosen[..., None], pairs, axis=1)
        asked = np.zeros(size, dtype=bool)
        np.put_along_axis(asked[..., 1], chosen, np.True_, axis=1)
        tokens = np.concatenate([pairs, rest], axis=1).reshape(count, -1)
        scored = np.concatenate([np.zeros_like(pairs, dtype=bool), asked], axis=1)
        return tokens, scored.reshape(count, -1)


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
