"""Modular arithmetic: the value of an expression without brackets.

    1 + 2 * 3 =  2          mod 5; the last symbol is scored

Numbers are 0..m−1, operators +, − and *; a product is computed before a sum. Strings have an odd
length. The input determines the answer: accuracy 1, entropy 0.

Differences from the Chomsky benchmark: a finite training split, and a test at one length.

Source: Delétang et al. 2023 (arXiv:2207.02098), google-deepmind/neural_networks_chomsky_hierarchy
`tasks/regular/modular_arithmetic.py`.
"""

import numpy as np
from pydantic import Field, field_validator

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.answers import AnswerTask, LengthConfig
from lmzoo.data.tasks.base import Symbols


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
    def letters(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*map(str, range(self.config.modulus)), *self.config.operators)

    def question(self, random: np.random.Generator, count: int, length: int) -> Symbols:
        m = self.config.modulus
        tokens = random.integers(0, m, (count, length))
        operators = tokens[:, 1::2]
        operators[...] = random.integers(m, m + len(self.config.operators), operators.shape)
        return tokens

    def answers(self, question: Symbols) -> Symbols:
        m, letters = self.config.modulus, np.array(self.letters)
        total, product = np.zeros(len(question), np.int64), question[:, 0]
        values = [product % m]
        for operator, number in zip(question[:, 1::2].T, question[:, 2::2].T, strict=True):
            times, minus = letters[operator] == "*", letters[operator] == "-"
            total = np.where(times, total, total + product) % m
            product = np.where(times, product * number, np.where(minus, -number, number)) % m
            values += [values[-1], (total + product) % m]
        return np.stack(values, axis=1)
