"""A finite weighted grammar: sampling, and the exact distribution of lengths and entropy.

    P(derivation) = Π P(rule used)        = P(string) where no string has two derivations
    p_A[n] = P(A derives a string of length n)
    h_A[n] = E[ −log P(derivation of A);  its length is n ]
    A → B C            p = p_B ∗ p_C,     h = h_B ∗ p_C + p_B ∗ h_C     (∗ convolves over n)
    A → w₁ α₁ | ...    p_A = Σ_i w_i p_i, h_A = Σ_i w_i (h_i − log w_i · p_i)

A symbol that begins with a capital letter is a nonterminal, every other symbol is a word. No
nonterminal may derive itself, so every string is finite.

Source: Soule 1974, "Entropies of probabilistic grammars".
"""

from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from itertools import accumulate
from math import fsum, log
from random import Random

import numpy as np
from jaxtyping import Float

Weights = Mapping[str, int | float]
"""Right-hand side, as symbols separated by blanks -> weight of this choice."""


@dataclass(frozen=True)
class Rule:
    """One choice of a nonterminal: its probability and the symbols that replace the nonterminal."""

    probability: float
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class LengthTable:
    """Probability and surprise of strings by their length n = 0, 1, ..."""

    mass: Float[np.ndarray, "N"]
    """P(length = n)."""
    surprise: Float[np.ndarray, "N"]
    """E[ −log P;  length = n ]."""

    @property
    def longest(self) -> int:
        """The greatest length with positive probability."""
        return int(np.flatnonzero(self.mass)[-1])

    @property
    def entropy(self) -> float:
        """E[ −log P ] in nats per string."""
        return float(self.surprise.sum())

    @property
    def mean(self) -> float:
        """E[ length ]."""
        return float(self.mass @ np.arange(len(self.mass)))

    @property
    def entropy_per_unit(self) -> float:
        """E[ −log P / length ], for tables without length 0."""
        assert self.mass[0] == 0, "an empty string has no surprise per unit"
        lengths = np.arange(1, len(self.mass))
        per_unit = self.surprise[1:] / lengths
        return float(per_unit.sum())

    def followed_by(self, other: "LengthTable") -> "LengthTable":
        """Return the table of this string followed by an independent string of the other table."""
        # E[−log P] of both: the surprise of each string times the mass of the other.
        own = np.convolve(self.surprise, other.mass)
        others = np.convolve(self.mass, other.surprise)
        return LengthTable(np.convolve(self.mass, other.mass), own + others)

    def shifted(self, length: int) -> "LengthTable":
        """Return the table of this string followed by a fixed string of that length."""
        zeros = np.zeros(length)
        return LengthTable(
            np.concatenate([zeros, self.mass]),
            np.concatenate([zeros, self.surprise]),
        )


EMPTY_STRING = LengthTable(np.ones(1), np.zeros(1))


def is_nonterminal(symbol: str) -> bool:
    """Return whether the symbol is a nonterminal."""
    return symbol[0].isupper()


class Grammar:
    """A weighted grammar without recursion.

    Args:
        start: The start symbol.
        choices: Maps each nonterminal to its right-hand sides and their weights, such as
            {"a Colour Thing": 2.0}. Weights need not sum to one. "" is the empty string.
    """

    def __init__(self, start: str, choices: Mapping[str, Weights]):
        self.start = start
        self.rules = {head: _normalise(texts) for head, texts in choices.items()}
        inner: dict[str, set[str]] = {}
        used = {start}
        for head, rules in self.rules.items():
            symbols = {symbol for rule in rules for symbol in rule.symbols}
            inner[head] = set(filter(is_nonterminal, symbols))
            used |= inner[head]
        missing = used - set(self.rules)
        assert not missing, f"nonterminals without a rule: {sorted(missing)}"
        self._bottom_up = tuple(TopologicalSorter(inner).static_order())  # raises on a cycle
        self._cumulative = {}
        for head, rules in self.rules.items():
            sums = list(accumulate(rule.probability for rule in rules))
            # Rounding may leave the last sum below 1, and a random number above it.
            sums[-1] = 1.0
            self._cumulative[head] = sums

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Every word once, in the order of its first use in the rules."""
        found = {}
        for rules in self.rules.values():
            for rule in rules:
                found |= dict.fromkeys(rule.symbols)
        return tuple(symbol for symbol in found if not is_nonterminal(symbol))

    def sample(self, random: Random) -> tuple[list[str], float]:
        """Return a random string and the log-probability of its derivation."""
        words = []
        log_prob = 0.0
        stack = [self.start]
        while stack:
            symbol = stack.pop()
            if symbol not in self.rules:
                words.append(symbol)
                continue
            choice = bisect(self._cumulative[symbol], random.random())
            rule = self.rules[symbol][choice]
            log_prob += log(rule.probability)
            # Reversed, so that the leftmost symbol is expanded first.
            stack.extend(reversed(rule.symbols))
        return words, log_prob

    def lengths(self, cost: Callable[[str], int]) -> LengthTable:
        """Return the length table of the language; the length of a word is `cost(word)`."""
        tables: dict[str, LengthTable] = {}
        # What a rule names has its table already.
        for head in self._bottom_up:
            choices = [
                (rule.probability, _rule_lengths(rule, tables, cost)) for rule in self.rules[head]
            ]
            longest = max(len(table.mass) for _, table in choices)
            mass = np.zeros(longest)
            surprise = np.zeros_like(mass)
            for weight, table in choices:
                n = len(table.mass)
                mass[:n] += weight * table.mass
                surprise[:n] += weight * (table.surprise - log(weight) * table.mass)
            tables[head] = LengthTable(mass, surprise)
        return tables[self.start]


def _rule_lengths(
    rule: Rule, tables: Mapping[str, LengthTable], cost: Callable[[str], int]
) -> LengthTable:
    table = EMPTY_STRING
    length = 0
    for symbol in rule.symbols:
        if symbol in tables:
            table = table.followed_by(tables[symbol])
        else:
            length += cost(symbol)
    # Words have fixed lengths, which add up whatever their places are.
    return table.shifted(length)


def _normalise(texts: Weights) -> tuple[Rule, ...]:
    assert texts, "a nonterminal has no choices"
    assert min(texts.values()) > 0, f"a weight is not positive: {dict(texts)}"
    total = fsum(texts.values())
    return tuple(Rule(weight / total, tuple(text.split())) for text, weight in texts.items())
