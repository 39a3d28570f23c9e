"""Base class of tasks that ask one question of a whole string, at several lengths.

    x_1 .. x_n =  y          the last symbol is scored

The length of a training or validation string is uniform in 1..n; every test string has
`test_length` symbols. Short strings teach a model what one symbol does; without them, gradient
descent rarely finds the rule from the answers of long strings.
"""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from pydantic import Field

from lmzoo.base.config import config
from lmzoo.data.tasks.base import BLANK, GeneratedTask, Scored, Symbols, TaskConfig


@config
class LengthConfig(TaskConfig):
    """Lengths, sequences per split, and the random seed."""

    length: int = Field(40, ge=1)
    """Most symbols n of a training or validation string."""
    test_length: int = Field(100, ge=1)
    """Symbols of a test string."""


class AnswerTask(GeneratedTask):
    """A string and one answer; a subclass draws strings and answers all their prefixes."""

    letters: ClassVar[tuple[str, ...]]
    """Names of the symbols of strings and answers; the sign `=` comes after them."""
    step = 1
    """Lengths of strings are 1, 1 + step, ..."""

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*self.letters, "=")

    @abstractmethod
    def question(self, random: np.random.Generator, count: int, length: int) -> Symbols:
        """Draw strings (count, length)."""

    @abstractmethod
    def answers(self, question: Symbols) -> Symbols:
        """Return the answer of every prefix (count, length)."""

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        c = self.config
        steps = ((c.test_length if split == "test" else c.length) - 1) // self.step
        drawn = steps if split == "test" else random.integers(0, steps + 1, count)
        lengths = np.full(count, 1) + self.step * drawn
        longest = 1 + self.step * steps
        question = self.question(random, count, longest)
        tokens = np.full((count, longest + 2), BLANK)
        inside = np.arange(longest) < lengths[:, None]
        tokens[:, :-2] = np.where(inside, question, BLANK)
        rows = np.arange(count)
        tokens[rows, lengths] = len(self.symbols) - 1
        tokens[rows, lengths + 1] = self.answers(question)[rows, lengths - 1]
        scored = np.zeros(tokens.shape, dtype=bool)
        scored[rows, lengths + 1] = True
        return tokens, scored
