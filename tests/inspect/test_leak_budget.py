"""Leak budgets, compared with sums over all sequences."""

import itertools
import math
from collections import defaultdict

import pytest
import torch

from lmzoo.data.corpus import Sequences
from lmzoo.inspect.leak_budget import bag_floor, entropy, leak_budget, uniform_bag_floor
from tests.cases import parametrize, rows

PROBABILITIES = [(0.5, 0.5), (0.7, 0.2, 0.1)]


@parametrize("p", PROBABILITIES)
@parametrize("n", [1, 2, 5])
def test_gain_is_the_entropy_bag_entropy(p, n):
    """H(unigram) − floor = H(bag) / n for independent tokens, by enumeration."""
    bags = defaultdict(float)
    tokens = range(len(p))
    for sequence in itertools.product(tokens, repeat=n):
        # A bag has no order.
        bag = tuple(sorted(sequence))
        bags[bag] += math.prod(p[v] for v in sequence)
    probabilities = list(bags.values())
    masses = torch.tensor(probabilities).double()
    frequencies = torch.tensor(p).double()
    gain = entropy(frequencies) - bag_floor(frequencies, n)
    expected = entropy(masses) / n
    assert gain == pytest.approx(expected)


def test_the_floor_of_twenty_uniform_symbols():
    """A simulation with 20 symbols and n = 20 gave 1.822."""
    twenty = uniform_bag_floor(20, 20)
    nineteen = uniform_bag_floor(20, 19)
    assert twenty == pytest.approx(1.822, abs=0.003)
    assert nineteen == pytest.approx(1.791, abs=0.001)


BAGS = rows("inspect/cases.toml", "bags")


def test_the_budget_of_a_corpus_counts_the_orders_of_each_bag():
    """{4,4,5} has 3 orders, {5} has 1, {4,5} has 2; `<start>` and padding do not count."""
    tokens = torch.tensor(BAGS["tokens"])
    part = Sequences(tokens, torch.tensor(BAGS["lengths"]))
    budget = leak_budget(part, vocab=6)
    orders = math.log(3) + math.log(2)
    # Of six scored tokens, half is each word.
    assert budget.floor == pytest.approx(orders / 6)
    assert budget.unigram == pytest.approx(math.log(2))
    assert budget.tokens_per_sequence == 2
    gain = budget.unigram - budget.floor
    assert budget.gain == pytest.approx(gain)
