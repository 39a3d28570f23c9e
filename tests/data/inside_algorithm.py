"""The inside algorithm: the probability of a string as the sum over its derivations.

It shares no code with the sampler.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from lmzoo.data.grammar import Grammar


def string_probability(grammar: Grammar, words: Sequence[str]) -> float:
    """Return P(words), computed top down."""

    @cache
    def ends(symbol: str, begin: int) -> dict[int, float]:
        """Return the possible ends of the symbol that begins at `begin`, with probabilities."""
        if symbol not in grammar.rules:
            return {begin + 1: 1.0} if words[begin : begin + 1] == [symbol] else {}
        total: dict[int, float] = defaultdict(float)
        for rule in grammar.rules[symbol]:
            reached = {begin: rule.probability}
            for part in rule.symbols:
                further: dict[int, float] = defaultdict(float)
                for middle, p in reached.items():
                    for end, q in ends(part, middle).items():
                        further[end] += p * q
                reached = further
            for end, p in reached.items():
                total[end] += p
        return total

    return ends(grammar.start, 0).get(len(words), 0.0)
