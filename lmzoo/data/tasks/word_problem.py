"""Word problems of the groups S5 and A5: the product of permutations.

    g_1 g_2 .. g_n =  p          p = g_n ∘ .. ∘ g_2 ∘ g_1; the last symbol is scored

S5 has the 120 permutations of five things, A5 the 60 even ones. Neither is solvable, so the word
problem is complete for NC¹, and no transformer or diagonal linear recurrence of fixed depth solves
all lengths unless TC⁰ = NC¹. With `generators`, the g_t are the two generators of the group only: a
3-cycle for A5 or a swap for S5, and a 5-cycle. Long words are as hard as before, and a step is
learned from few examples. The input determines the answer: accuracy 1, entropy 0.

Differences from jopetty/word-problem: it labels every prefix with its product, here the product of
the whole word is asked for; words of several lengths, and a longer test.

Source: Merrill, Petty & Sabharwal 2024 (arXiv:2404.08819), jopetty/word-problem
`src/generate_data.py`; Barrington 1989.
"""

from functools import cache
from itertools import permutations

import numpy as np
from pydantic import Field

from lmzoo.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.answers import AnswerTask, LengthConfig
from lmzoo.data.tasks.base import Symbols

Permutation = tuple[int, ...]


@cache
def elements(*, even: bool) -> tuple[Permutation, ...]:
    """Return the permutations of five things, or the even ones, in lexicographic order."""
    return tuple(p for p in permutations(range(5)) if not even or _is_even(p))


@cache
def products(*, even: bool) -> Symbols:
    """Return the table [g, p] -> g ∘ p of the group: first p, then g."""
    group = elements(even=even)
    number = {p: i for i, p in enumerate(group)}
    return np.array([[number[tuple(g[i] for i in p)] for p in group] for g in group])


class _WordProblem(AnswerTask):
    citation = "Merrill et al. 2024"
    even = False
    generators: tuple[Permutation, ...]

    @property
    def letters(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple("".join(str(1 + i) for i in p) for p in elements(even=self.even))

    def question(self, random: np.random.Generator, count: int, length: int) -> Symbols:
        group = elements(even=self.even)
        if not self.config.generators:
            return random.integers(0, len(group), (count, length))
        used = np.array([group.index(g) for g in self.generators])
        return used[random.integers(0, len(used), (count, length))]

    def answers(self, question: Symbols) -> Symbols:
        table, values = products(even=self.even), [question[:, 0]]
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


def _is_even(p: Permutation) -> bool:
    return sum(p[i] > p[j] for j in range(5) for i in range(j)) % 2 == 0
