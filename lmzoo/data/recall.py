"""Recall, `mqar`: the answer stands earlier in the sequence.

Multi-query associative recall: many keys with values, then queries.

    k_1 v_1 .. k_P v_P   · · k_j v_j · · · · k_i v_i · ·        v_i and v_j are scored

Each of the P pairs is asked for once. The second part has (n − 2P) / 2 slots of two symbols; a
query is in slot g with a probability proportional to g^(a−1), without replacement, as gaps between
repeated bigrams of text. Other slots have random symbols, or a blank with `noise=False`.
Differences from zoology: the value follows its query as the next token, where zoology has a label
and any symbol. The blank is a symbol of its own; keys and values are one half of the others each.
The default vocabulary is small, so that a CPU learns the task in minutes; the paper has 8,192 and
`noise=False`.

The input determines the answer: accuracy 1, entropy 0.

Source: Arora et al. 2023 (arXiv:2312.04927), HazyResearch/zoology `data/multiquery_ar.py`.
"""

from typing import Any

import numpy as np
from pydantic import Field, model_validator

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks import GeneratedTask, Scored, Symbols, TaskConfig, distinct


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
            odd = self.length % 2  # slots have two symbols
            if 4 * self.pairs > self.length or odd:
                raise UserError(
                    f"length={self.length} has no room for {self.pairs} pairs and their queries; "
                    f"set an even length of at least {4 * self.pairs}"
                )
            if self.pairs > self.keys:
                raise UserError(f"pairs={self.pairs} needs as many keys; keys={self.keys}")
            return self

    @property
    def symbols(self) -> tuple[str, ...]:
        keys = range(self.config.keys)
        return "blank", *(f"{letter}{i}" for letter in "kv" for i in keys)

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        c = self.config
        # Symbol 0 is the blank; keys are 1..k, values k + 1..2k.
        keys = 1 + distinct(random, count, c.pairs, c.keys)
        values = 1 + c.keys + distinct(random, count, c.pairs, c.keys)
        pairs = np.stack([keys, values], axis=-1)
        slots = (c.length - 2 * c.pairs) // 2
        # The largest of log p + Gumbel noise are a sample without replacement, in its order.
        log_p = (c.power - 1) * np.log(np.arange(1, slots + 1))
        scores = log_p + random.gumbel(size=(count, slots))
        chosen = np.argsort(-scores, axis=1)[:, : c.pairs]
        size = (count, slots, 2)
        if c.noise:
            rest = random.integers(0, 1 + 2 * c.keys, size)
        else:
            rest = np.zeros(size, np.int64)
        np.put_along_axis(rest, chosen[..., None], pairs, axis=1)
        # Of a slot (query, answer) the answer is scored; of the first part nothing.
        asked = np.zeros(size, dtype=bool)
        np.put_along_axis(asked[..., 1], chosen, np.True_, axis=1)
        tokens = np.concatenate([pairs, rest], axis=1)
        shown = np.zeros_like(pairs, dtype=bool)
        scored = np.concatenate([shown, asked], axis=1)
        return tokens.reshape(count, -1), scored.reshape(count, -1)
