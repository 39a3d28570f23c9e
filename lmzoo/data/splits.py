"""Which sequences train, validate and test: functions of the order in the file alone.

interleave(items, (4, 1))     every 5th (index ≡ 4 mod 5) is held out, as in S0 (zoo.md 1.9)
interleave(items, (8, 1, 1))  index ≡ 8 mod 10 validates, index ≡ 9 tests
shuffled_cut(items, 0.8, 29)  the 80/20 cut of torchtext's `Dataset.split`, as in S0
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def interleave(items: Sequence[T], shares: tuple[int, ...]) -> tuple[list[T], ...]:
    """Deal `items` in rounds: the first `shares[0]` of each round, the next `shares[1]` ..."""
    owner = [part for part, share in enumerate(shares) for _ in range(share)]
    parts: tuple[list[T], ...] = tuple([] for _ in shares)
    for i, item in enumerate(items):
        parts[owner[i % len(owner)]].append(item)
    return parts


def shuffled_cut(items: Sequence[T], fraction: float, seed: int) -> tuple[list[T], list[T]]:
    """The first `fraction` of a random order, and the rest.

    The order is drawn by the standard library's generator in the way torchtext drew it
    (`random.sample` of everything), so that a seed names the same split.
    """
    order = Random(seed).sample(range(len(items)), len(items))
    cut = round(fraction * len(items))
    return [items[i] for i in order[:cut]], [items[i] for i in order[cut:]]
