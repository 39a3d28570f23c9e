"""State tracking: one question about a whole string, at several lengths.

    x_1 .. x_n =  y          the last symbol is scored

    parity               0 1 1 0 1 =  1          Σ_t x_t mod 2
    modular_arithmetic   1 + 2 * 3 =  2          mod 5; a product is computed before a sum
    s5, s3               g_1 g_2 .. g_n =  p     p = g_n ∘ .. ∘ g_2 ∘ g_1

The length of a training or validation string is uniform in 1..n; every test string has
`test_length` symbols, so the test measures generalisation to longer strings. Short strings teach a
model what one symbol does; without them, gradient descent rarely finds the rule from the answers of
long strings. The input determines the answer: accuracy 1, entropy 0.

A recurrence h_t = a h_{t-1} + b(x_t) with a > 0 fixed, as in most linear diagonal cells, cannot
represent parity at all lengths; a tanh RNN or an LSTM can.

S5 has the 120 permutations of five things. It is not solvable, so the word problem is complete for
NC¹, and no transformer or diagonal linear recurrence of fixed depth solves all lengths unless
TC⁰ = NC¹. S3, of three things, is solvable. With `generators`, the g_t are two generators of the
group only: a swap, and a cycle of all things. Long words are as hard as before, and a step is
learned from few examples.

Differences from the Chomsky benchmark: a finite training split, where it draws new strings at every
step; a test at one length, where it tests lengths 41 to 500. From jopetty/word-problem: it labels
every prefix with its product, here the product of the whole word is asked for.

Source: Delétang et al. 2023 (arXiv:2207.02098), google-deepmind/neural_networks_chomsky_hierarchy
`tasks/regular/`; Sarrof et al. 2024 (arXiv:2405.17394); Grazzi et al. 2025 (arXiv:2411.12537);
Merrill, Petty & Sabharwal 2024 (arXiv:2404.08819), jopetty/word-problem `src/generate_data.py`;
Barrington 1989.
"""

from abc import abstractmethod
from functools import cache
from itertools import permutations
from typing import ClassVar

import numpy as np
from pydantic import Field, field_validator

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Texts
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks import BLANK, GeneratedTask, Scored, Symbols, TaskConfig


@config
class LengthConfig(TaskConfig):
    """Lengths, sequences per split, and the random seed."""

    length: int = Field(40, ge=1)
    """Most symbols n of a training or validation string."""
    test_length: int = Field(100, ge=1)
    """Symbols of a test string."""


class AnswerTask(GeneratedTask):
    """A string and one answer; a subclass draws strings and answers all their prefixes."""

    Config = LengthConfig
    letters: ClassVar[Texts]
    """Names of the symbols of strings and answers; the sign `=` comes after them."""
    step = 1
    """Lengths of strings are 1, 1 + step, ..."""

    @property
    def symbols(self) -> Texts:
        return self.letters + ("=",)

    @abstractmethod
    def question(self, random: np.random.Generator, count: int, length: int) -> Symbols:
        """Draw strings (count, length)."""

    @abstractmethod
    def answers(self, question: Symbols) -> Symbols:
        """Return the answer of every prefix (count, length)."""

    def draw(self, random: np.random.Generator, count: int, split: str) -> tuple[Symbols, Scored]:
        c = self.config
        longest = c.length
        if split == "test":
            longest = c.test_length
        steps = (longest - 1) // self.step
        drawn = steps
        if split != "test":
            drawn = random.integers(0, steps + 1, count)
        lengths = np.full(count, 1) + self.step * drawn
        longest = 1 + self.step * steps
        question = self.question(random, count, longest)
        tokens = np.full((count, longest + 2), BLANK)
        inside = np.arange(longest) < lengths[:, None]
        tokens[:, :-2] = np.where(inside, question, BLANK)
        rows = np.arange(count)
        tokens[rows, lengths] = len(self.symbols) - 1  # the sign =
        # The answer to the whole string is that of its last prefix.
        tokens[rows, lengths + 1] = self.answers(question)[rows, lengths - 1]
        scored = np.zeros(tokens.shape, dtype=bool)
        scored[rows, lengths + 1] = True
        return tokens, scored


@CORPORA("parity")
class Parity(AnswerTask):
    """Whether a bit string has an odd number of ones."""

    citation = "Delétang et al. 2023"
    letters = ("0", "1")

    def question(self, random: np.random.Generator, count: int, length: int) -> Symbols:
        return random.integers(0, 2, (count, length))

    def answers(self, question: Symbols) -> Symbols:
        return question.cumsum(1) % 2


@CORPORA("modular_arithmetic")
class ModularArithmetic(AnswerTask):
    """The value of an expression modulo m."""

    citation = "Delétang et al. 2023"
    step = 2

    @config
    class Config(LengthConfig):
        """Modulus, operators, lengths, sequences per split, and the random seed."""

        modulus: int = Field(5, ge=2)
        operators: str = "+-*"
        """The operators that occur."""

        @field_validator("operators")
        @classmethod
        def _known(cls, operators: str) -> str:
            if not operators or set(operators) - set("+-*"):
                raise UserError(f"operators={operators!r} are not some of + - *; give one or more")
            return operators

    @property
    def letters(self) -> Texts:  # type: ignore[override]
        numbers = map(str, range(self.config.modulus))
        return tuple(numbers) + tuple(self.config.operators)

    def question(self, random: np.random.Generator, count: int, length: int) -> Symbols:
        m = self.config.modulus
        tokens = random.integers(0, m, (count, length))
        operators = tokens[:, 1::2]  # a view: numbers and operators alternate
        last = m + len(self.config.operators)
        operators[...] = random.integers(m, last, operators.shape)
        return tokens

    def answers(self, question: Symbols) -> Symbols:
        m = self.config.modulus
        letters = np.array(self.letters)
        # A product is open until a sum follows: the value so far is total + product.
        total = np.zeros(len(question), np.int64)
        product = question[:, 0]
        values = [product % m]
        operators = question[:, 1::2].T
        numbers = question[:, 2::2].T
        for operator, number in zip(operators, numbers, strict=True):
            times = letters[operator] == "*"
            minus = letters[operator] == "-"
            signed = np.where(minus, -number, number)
            total = np.where(times, total, total + product) % m
            product = np.where(times, product * number, signed) % m
            # After an operator the prefix has no value: that before it is repeated.
            values += [values[-1], (total + product) % m]
        return np.stack(values, axis=1)


Permutation = tuple[int, ...]


@cache
def elements(things: int) -> tuple[Permutation, ...]:
    """Return the permutations of so many things in lexicographic order."""
    return tuple(permutations(range(things)))


@cache
def products(group: tuple[Permutation, ...]) -> Symbols:
    """Return the table [g, p] -> g ∘ p of the group: first p, then g."""
    number = {p: i for i, p in enumerate(group)}
    table = []
    for g in group:
        # Composition reads from the right: p acts first.
        products_of_g = [tuple(g[i] for i in p) for p in group]
        table.append([number[product] for product in products_of_g])
    return np.array(table)


@config
class WordConfig(LengthConfig):
    """Letters, lengths, sequences per split, and the random seed."""

    length: int = Field(20, ge=1)
    """Most letters n of a training or validation word."""
    test_length: int = Field(40, ge=1)
    """Letters of a test word."""
    generators: bool = False
    """Words of two generators only."""


class _WordProblem(AnswerTask):
    Config = WordConfig
    citation = "Merrill et al. 2024"
    generators: tuple[Permutation, ...]

    @property
    def group(self) -> tuple[Permutation, ...]:
        return elements(len(self.generators[0]))

    @property
    def letters(self) -> Texts:  # type: ignore[override]
        return tuple("".join(str(1 + i) for i in p) for p in self.group)

    def question(self, random: np.random.Generator, count: int, length: int) -> Symbols:
        size = (count, length)
        if not self.config.generators:
            return random.integers(0, len(self.group), size)
        used = np.array([self.group.index(g) for g in self.generators])
        return used[random.integers(0, len(used), size)]

    def answers(self, question: Symbols) -> Symbols:
        table = products(self.group)
        values = [question[:, 0]]
        for g in question[:, 1:].T:
            values.append(table[g, values[-1]])
        return np.stack(values, axis=1)


@CORPORA("s5")
class S5(_WordProblem):
    """The product of permutations of five things."""

    generators = ((1, 0, 2, 3, 4), (1, 2, 3, 4, 0))


@CORPORA("s3")
class S3(_WordProblem):
    """The product of permutations of three things."""

    generators = ((1, 0, 2), (1, 2, 0))
