"""Leak budgets, compared with sums over all sequences."""

import itertools
import math
from collections import defaultdict

import pytest
import torch

from lmzoo.data.corpus import Sequences
from lmzoo.inspect.leak_budget import bag_floor, entropy, leak_budget, uniform_bag_floor


@pytest.mark.parametrize("p", [(0.5, 0.5), (0.7, 0.2, 0.1)])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_gain_is_the_entropy_bag_entropy(p, n):
    """H(unigram) − floor = H(bag) / n for independent tokens, by enumeration."""
    bags: dict[tuple[int, ...], float] = defaultdict(float)
    for sequence in itertools.product(range(len(p)), repeat=n):
        bag = tuple(sorted(sequence))
        bags[bag] += math.prod(p[v] for v in sequence)
    masses = torch.tensor(list(bags.values()), dtype=torch.float64)
    frequencies = torch.tensor(p, dtype=torch.float64)
    gain = entropy(frequencies) - bag_floor(frequencies, n)
    assert gain == pytest.approx(entropy(masses) / n)


def test_the_floor_of_twenty_uniform_symbols():
    """A simulation with 20 symbols and n = 20 gave 1.822."""
    assert uniform_bag_floor(20, 20) == pytest.approx(1.822, abs=0.003)
    assert uniform_bag_floor(20, 19) == pytest.approx(1.791, abs=0.001)


def test_the_budget_of_a_corpus_counts_the_orders_of_each_bag():
    """{4,4,5} has 3 orders, {5} has 1, {4,5} has 2; `<start>` and padding do not count."""
    tokens = torch.tensor([[1, 4, 4, 5, 0, 0], [1, 5, 0, 0, 0, 0], [1, 5, 4, 0, 0, 0]])
    part = Sequences(tokens, torch.tensor([4, 2, 3]))
    budget = leak_budget(part, vocab=6)
    assert budget.floor == pytest.approx((math.log(3) + 0 + math.log(2)) / 6)
    assert budget.unigram == pytest.approx(math.log(2))
    assert budget.tokens_per_sequence == 2
    assert budget.gain == pytest.approx(budget.unigram - budget.floor)
