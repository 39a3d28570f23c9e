"""Parity: whether the number of ones in a bit string is odd.

    0 1 1 0 1 =  1          the last symbol is scored: Σ_t x_t mod 2

The length of a training or validation string is uniform in 1..n; every test string has
`test_length` bits, so the test measures generalisation to longer strings. The input determines the
answer: accuracy 1, entropy 0. A constant answer has accuracy 1/2.

A recurrence h_t = a h_{t-1} + b(x_t) with a > 0 fixed, as in most linear diagonal cells, cannot
represent parity at all lengths; a tanh RNN or an LSTM can.

Differences from the Chomsky benchmark: a finite training split; it draws new strings at every step
and tests lengths 41 to 500.

Source: Delétang et al. 2023 (arXiv:2207.02098), google-deepmind/neural_networks_chomsky_hierarchy
`tasks/regular/parity_check.py`; Sarrof et al. 2024 (arXiv:2405.17394); Grazzi et al. 2025
(arXiv:2411.12537).
"""

import numpy as np

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA
from lmzoo.data.tasks.answers import AnswerTask, LengthConfig
from lmzoo.data.tasks.base import Symbols


@CORPORA("parity")
class Parity(AnswerTask):
    """Whether a bit string has an odd number of ones."""

    citation = "Delétang et al. 2023"
    letters = ("0", "1")

    @config
    class Config(LengthConfig):
        """Lengths, sequences per split, and the random seed."""

    def question(self, random: np.random.Generator, count: int, length: int) -> Symbols:
        return random.integers(0, 2, (count, length))

    def answers(self, question: Symbols) -> Symbols:
        return question.cumsum(1) % 2
