"""A weighted grammar, compared with sums over all derivations and with the inside algorithm."""

from collections.abc import Iterator
from graphlib import CycleError
from itertools import product
from math import exp, isclose, log
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.data.grammar import Grammar
from tests.cases import cases
from tests.tiny import quick

WORDS = ("a", "bb", "ccc")
HEADS = ("Top", "Mid", "Low")


@st.composite
def rules(draw: st.DrawFn) -> dict[str, dict[str, float]]:
    """Draw rules of three levels with up to three choices of up to two symbols, possibly empty."""
    choices = {}
    for level, head in enumerate(HEADS):
        # Only levels below, so that there is no circle.
        symbol = st.sampled_from(WORDS + HEADS[level + 1 :])
        text = st.lists(symbol, max_size=2).map(" ".join)
        weight = st.floats(0.1, 10)
        weights = st.dictionaries(text, weight, min_size=1, max_size=3)
        choices[head] = draw(weights, label=head)
    return choices


def derivations(grammar: Grammar, symbol: str) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield every derivation of the symbol as its words and its probability."""
    if symbol not in grammar.rules:
        yield (symbol,), 1.0
        return
    for rule in grammar.rules[symbol]:
        each = [list(derivations(grammar, part)) for part in rule.symbols]
        for parts in product(*each):
            words: tuple[str, ...] = ()
            probability = rule.probability
            for part, chance in parts:
                words += part
                probability *= chance
            yield words, probability


@quick
@given(rules())
def test_length_tables_equal_sums_over_all_derivations(choices):
    grammar = Grammar("Top", choices)
    for cost in (len, lambda _: 1):
        table = grammar.lengths(cost)
        mass = np.zeros_like(table.mass)
        surprise = np.zeros_like(table.mass)
        for words, p in derivations(grammar, "Top"):
            length = sum(map(cost, words))
            mass[length] += p
            surprise[length] -= p * log(p)
        np.testing.assert_allclose(table.mass, mass, atol=1e-12)
        np.testing.assert_allclose(table.surprise, surprise, atol=1e-12)
        lengths = np.arange(len(mass))
        assert table.longest == lengths[mass > 0].max()
        assert isclose(table.mean, mass @ lengths, abs_tol=1e-12)


@quick
@given(rules(), st.integers(0, 2**32))
def test_a_sample_has_the_probability_of_one_of_its_derivations(choices, seed):
    grammar = Grammar("Top", choices)
    words, log_prob = grammar.sample(Random(seed))
    sample = tuple(words)
    probabilities = [p for other, p in derivations(grammar, "Top") if other == sample]
    assert pytest.approx(exp(log_prob), rel=1e-9) in probabilities


@cases("data/cases.toml", "grammars", "choices, error")
def test_an_invalid_grammar_is_rejected(choices, error):
    with pytest.raises((CycleError, AssertionError)) as caught:
        Grammar("S", choices)
    assert caught.typename == error
