"""Split sequences into train, validation and test sets. Only their order in the file matters.

interleave(items, (4, 1))        hold out every 5th item (index ≡ 4 mod 5), as S0 does
interleave(items, (8, 1, 1))     validate on index ≡ 8 mod 10, test on index ≡ 9 mod 10
shuffled_cut(items, 0.8, 29)     the 80/20 cut of torchtext's `Dataset.split`, as S0 uses it
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def interleave(items: Sequence[T], shares: tuple[int, ...]) -> tuple[list[T], ...]:
    """Deal items in rounds: the first `shares[0]` of a round to part 0, the next to part 1 ..."""
    owner = [part for part, share in enumerate(shares) for _ in range(share)]
    parts: tuple[list[T], ...] = tuple([] for _ in shares)
    for i, item in enumerate(items):
        parts[owner[i % len(owner)]].append(item)
    return parts


def shuffled_cut(items: Sequence[T], fraction: float, seed: int) -> tuple[list[T], list[T]]:
    """Return the first `fraction` of the items in random order, and the rest.

    The order is `random.sample` of all items, as in torchtext, so a seed gives the same split.
    """
    order = Random(seed).sample(range(len(items)), len(items))
    cut = round(fraction * len(items))
    return [items[i] for i in order[:cut]], [items[i] for i in order[cut:]]
