r"""Dyck-k words of bounded depth: brackets of k kinds that are closed in order.

    ( [ ] ( ) )  ...          every symbol is scored

    depth 0      each opening bracket 1/k
    0 < d < m    the right closing bracket 1/2, each opening bracket 1/2k
    depth m      the right closing bracket 1

A word is the first n symbols of this process. π_t(d) is the distribution of the depth before
symbol t:

    entropy     (1/n) Σ_t Σ_d π_t(d) H_d        H_0 = log k,  H_d = log 2 + ½ log k,  H_m = 0
    accuracy    (1/n) Σ_t Σ_d π_t(d) A_d        A_0 = 1/k,    A_d = 1/2,              A_m = 1

At 0 < d < m the closing bracket is the most probable symbol; with k = 1 it is as probable as the
opening one. A model needs to keep m symbols of log₂ k bits.

Difference from Hewitt et al.: words are cut at n instead of ending at depth 0, so that all
positions have a known distribution; all symbols count, not closing brackets alone.

Source: Hewitt et al. 2020 (arXiv:2010.07515), "RNNs can generate bounded hierarchical languages".
"""

from math import log

import numpy as np
from pydantic import Field

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.base import GeneratedTask, Scored, Symbols, TaskConfig, names


@CORPORA("dyck")
class Dyck(GeneratedTask):
    """Brackets of several kinds, with a bounded depth."""

    citation = "Hewitt et al. 2020"

    @config
    class Config(TaskConfig):
        """Length, kinds of brackets and depth."""

        length: int = Field(40, ge=1)
        """Symbols n of a training or validation sequence."""
        test_length: int = Field(80, ge=1)
        """Symbols of a test sequence."""
        kinds: int = Field(2, ge=1)
        """Number k of kinds of brackets."""
        depth: int = Field(4, ge=1)
        """Greatest depth m."""

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*names("open", self.config.kinds), *names("close", self.config.kinds))

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        c, rows = self.config, np.arange(count)
        stack, depth = np.zeros((count, c.depth + 1), np.int64), np.zeros(count, np.int64)
        columns = []
        for _ in range(self._length(split)):
            kind = random.integers(0, c.kinds, count)
            opens = (depth == 0) | ((depth < c.depth) & (random.random(count) < 0.5))
            columns.append(np.where(opens, kind, c.kinds + stack[rows, depth]))
            depth = np.where(opens, depth + 1, depth - 1)
            stack[rows[opens], depth[opens]] = kind[opens]
        tokens = np.stack(columns, axis=1)
        return tokens, np.ones(tokens.shape, dtype=bool)

    def accuracy_ceiling(self, split: str) -> float:
        return self._mean(1 / self.config.kinds, 0.5, 1.0, self._length(split))

    def entropy(self, split: str) -> float:
        k = self.config.kinds
        return self._mean(log(k), log(2) + log(k) / 2, 0.0, self._length(split))

    def _length(self, split: str) -> int:
        return self.config.test_length if split == "test" else self.config.length

    def _mean(self, empty: float, inside: float, full: float, length: int) -> float:
        """Return (1/n) Σ_t Σ_d π_t(d) f(d) for the values of f at depth 0, between, and m."""
        m = self.config.depth
        f = np.array([empty, *[inside] * (m - 1), full])
        occupied, total = np.eye(m + 1)[0], 0.0
        for _ in range(length):
            total += float(occupied @ f)
            up = occupied * np.array([1.0, *[0.5] * (m - 1), 0.0])
            down = occupied - up
            occupied = np.concatenate([[0.0], up[:-1]]) + np.concatenate([down[1:], [0.0]])
        return total / length
