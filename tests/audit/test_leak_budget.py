"""The bag's worth, beside sums over every sequence."""

import itertools
import math

import pytest
import torch

from lmzoo.audit.leak_budget import bag_floor, entropy, leak_budget, uniform_bag_floor
from lmzoo.data.corpus import Sequences


def sequences(*rows: tuple[int, ...], length: int) -> Sequences:
    tokens = torch.zeros(len(rows), length, dtype=torch.int64)
    for i, row in enumerate(rows):
        tokens[i, : len(row) + 1] = torch.tensor([1, *row])
    return Sequences(tokens, torch.tensor([len(row) + 1 for row in rows]))


@pytest.mark.parametrize("p", [(0.5, 0.5), (0.7, 0.2, 0.1)])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_gain_is_the_entropy_of_the_bag(p: tuple[float, ...], n: int) -> None:
    """H(unigram) − floor = H(bag) / n, over all sequences of independent tokens."""
    bags: dict[tuple[int, ...], float] = {}
    for sequence in itertools.product(range(len(p)), repeat=n):
        bag = tuple(sorted(sequence))
        bags[bag] = bags.get(bag, 0.0) + math.prod(p[v] for v in sequence)
    of_the_bag = entropy(torch.tensor(list(bags.values()), dtype=torch.float64))
    frequencies = torch.tensor(p, dtype=torch.float64)
    assert entropy(frequencies) - bag_floor(frequencies, n) == pytest.approx(of_the_bag / n)


def test_the_specification_s_figures() -> None:
    """zoo.md 1.7 has 1.822 for 20 uniform symbols, from a simulation; its n is 20, not 19."""
    assert uniform_bag_floor(20, 20) == pytest.approx(1.822, abs=0.003)
    assert uniform_bag_floor(20, 19) == pytest.approx(1.791, abs=0.001)


def test_a_corpus_counts_orders_of_what_is_there() -> None:
    """Bags {4,4,5}: 3 orders, {5}: 1, {4,5}: 2, and nothing of `<start>` or padding."""
    part = sequences((4, 4, 5), (5,), (5, 4), length=6)
    found = leak_budget(part, vocab=6)
    assert found.floor == pytest.approx((math.log(3) + 0 + math.log(2)) / 6)
    assert found.unigram == pytest.approx(math.log(2))
    assert found.tokens_per_sequence == 2
    assert found.gain == pytest.approx(found.unigram - found.floor)


def test_a_large_sample_of_noise_has_the_exact_floor() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(2, 8, (20_000, 10), generator=generator)
    found = leak_budget(Sequences(tokens, torch.full((20_000,), 10)), vocab=8)
    assert found.floor == pytest.approx(uniform_bag_floor(6, 9), abs=0.003)
