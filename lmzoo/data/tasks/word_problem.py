"""Word problems of groups: the product of permutations of S5, A5, S4 and S3, and sums of Z60.

    g_1 g_2 .. g_n =  p          p = g_n ∘ .. ∘ g_2 ∘ g_1; the last symbol is scored

S5 has the 120 permutations of five things, A5 the 60 even ones. Neither is solvable, so the word
problem is complete for NC¹, and no transformer or diagonal linear recurrence of fixed depth solves
all lengths unless TC⁰ = NC¹. The permutations of four and of three things, S4 and S3, are solvable
groups, and Z60, the numbers modulo 60, is commutative. With `generators`, the g_t are two
generators of the group only: a 3-cycle for A5 or a swap, and a cycle of all things; 1 and 59 for
Z60. Long words are as hard as before, and a step is learned from few examples. The input determines
the answer: accuracy 1, entropy 0.

Differences from jopetty/word-problem: it labels every prefix with its product, here the product of
the whole word is asked for; words of several lengths, and a longer test.

Source: Merrill, Petty & Sabharwal 2024 (arXiv:2404.08819), jopetty/word-problem
`src/generate_data.py`; Barrington 1989.
"""

from functools import cache
from itertools import permutations

import numpy as np
from pydantic import Field

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.answers import AnswerTask, LengthConfig
from lmzoo.data.tasks.base import Symbols

Permutation = tuple[int, ...]


@cache
def elements(things: int, *, even: bool) -> tuple[Permutation, ...]:
    """Return the permutations of so many things, or the even ones, in lexicographic order."""
    return tuple(p for p in permutations(range(things)) if not even or _is_even(p))


@cache
def products(things: int, *, even: bool) -> Symbols:
    """Return the table [g, p] -> g ∘ p of the group: first p, then g."""
    group = elements(things, even=even)
    number = {p: i for i, p in enumerate(group)}
    return np.array([[number[tuple(g[i] for i in p)] for p in group] for g in group])


class _WordProblem(AnswerTask):
    citation = "Merrill et al. 2024"
    things, even = 5, False
    generators: tuple[Permutation, ...]

    @property
    def letters(self) -> tuple[str, ...]:  # type: ignore[override]
        group = elements(self.things, even=self.even)
        return tuple("".join(str(1 + i) for i in p) for p in group)

    def table(self) -> Symbols:
        """Return the products [g, p] -> g ∘ p, by number."""
        return products(self.things, even=self.even)

    def generator_numbers(self) -> list[int]:
        """Return the numbers of two elements that generate the group."""
        group = elements(self.things, even=self.even)
        return [group.index(g) for g in self.generators]

    def question(self, random: np.random.Generator, count: int, length: int) -> Symbols:
        if not self.config.generators:
            return random.integers(0, len(self.letters), (count, length))
        used = np.array(self.generator_numbers())
        return used[random.integers(0, len(used), (count, length))]

    def answers(self, question: Symbols) -> Symbols:
        table, values = self.table(), [question[:, 0]]
        for g in question[:, 1:].T:
            values.append(table[g, values[-1]])
        return np.stack(values, axis=1)


@config
class WordConfig(LengthConfig):
    """Letters, lengths, sequences per split, and the random seed."""

    length: int = Field(20, ge=1)
    """Most letters n of a training or validation word."""
    test_length: int = Field(40, ge=1)
    """Letters of a test word."""
    generators: bool = False
    """Words of two generators only."""


@CORPORA("s5")
class S5(_WordProblem):
    """The product of permutations of five things."""

    generators = ((1, 0, 2, 3, 4), (1, 2, 3, 4, 0))

    @config
    class Config(WordConfig):
        """Letters, lengths, sequences per split, and the random seed."""


@CORPORA("a5")
class A5(_WordProblem):
    """The product of even permutations of five things."""

    even = True
    generators = ((1, 2, 0, 3, 4), (1, 2, 3, 4, 0))

    @config
    class Config(WordConfig):
        """Letters, lengths, sequences per split, and the random seed."""


@CORPORA("s4")
class S4(_WordProblem):
    """The product of permutations of four things."""

    things = 4
    generators = ((1, 0, 2, 3), (1, 2, 3, 0))

    @config
    class Config(WordConfig):
        """Letters, lengths, sequences per split, and the random seed."""


@CORPORA("s3")
class S3(_WordProblem):
    """The product of permutations of three things."""

    things = 3
    generators = ((1, 0, 2), (1, 2, 0))

    @config
    class Config(WordConfig):
        """Letters, lengths, sequences per split, and the random seed."""


@CORPORA("z60")
class Z60(_WordProblem):
    """The sum of numbers modulo 60: a commutative group as large as A5."""

    @property
    def letters(self) -> tuple[str, ...]:
        return tuple(map(str, range(60)))

    def table(self) -> Symbols:
        return np.add.outer(np.arange(60), np.arange(60)) % 60

    def generator_numbers(self) -> list[int]:
        return [1, 59]

    @config
    class Config(WordConfig):
        """Letters, lengths, sequences per split, and the random seed."""


def _is_even(p: Permutation) -> bool:
    return sum(p[i] > p[j] for j in range(len(p)) for i in range(j)) % 2 == 0
