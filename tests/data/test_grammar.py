"""A weighted grammar, compared with sums over all derivations and with the inside algorithm."""

from collections.abc import Iterator
from graphlib import CycleError
from itertools import product
from math import exp, isclose, log, prod
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
        symbol = st.sampled_from((*WORDS, *HEADS[level + 1 :]))
        text = st.lists(symbol, max_size=2).map(" ".join)
        choices[head] = draw(
            st.dictionaries(text, st.floats(0.1, 10), min_size=1, max_size=3), label=head
        )
    return choices


def derivations(grammar: Grammar, symbol: str) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield every derivation of the symbol as its words and its probability."""
    if symbol not in grammar.rules:
        yield (symbol,), 1.0
        return
    for rule in grammar.rules[symbol]:
        for parts in product(*(list(derivations(grammar, s)) for s in rule.symbols)):
            words = tuple(word for part, _ in parts for word in part)
            yield words, rule.probability * prod(p for _, p in parts)


@quick
@given(rules())
def test_length_tables_equal_sums_over_all_derivations(choices):
    grammar = Grammar("Top", choices)
    for cost in (len, lambda _: 1):
        table = grammar.lengths(cost)
        mass = np.zeros_like(table.mass)
        surprise = np.zeros_like(table.mass)
        for words, p in derivations(grammar, "Top"):
            mass[sum(map(cost, words))] += p
            surprise[sum(map(cost, words))] -= p * log(p)
        np.testing.assert_allclose(table.mass, mass, atol=1e-12)
        np.testing.assert_allclose(table.surprise, surprise, atol=1e-12)
        assert table.longest == np.flatnonzero(mass).max()
        assert isclose(table.mean, mass @ np.arange(len(mass)), abs_tol=1e-12)


@quick
@given(rules(), st.integers(0, 2**32))
def test_a_sample_has_the_probability_of_one_of_its_derivations(choices, seed):
    grammar = Grammar("Top", choices)
    words, log_prob = grammar.sample(Random(seed))
    probabilities = [p for other, p in derivations(grammar, "Top") if list(other) == words]
    assert any(isclose(exp(log_prob), p, rel_tol=1e-9) for p in probabilities)


@cases("data/cases.toml", "grammars", "choices, error")
def test_an_invalid_grammar_is_rejected(choices, error):
    with pytest.raises((CycleError, AssertionError)) as caught:
        Grammar("S", choices)
    assert caught.typename == error
