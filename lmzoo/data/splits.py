"""Split a text or its sequences into what trains, validates and tests.

    deal(keys)                       8:1:1 by a hash of the items, equal items together
    interleave(items, (4, 1))        hold out every 5th item (index ≡ 4 mod 5), as S0 does
    shuffled_cut(items, 0.8, 29)     the 80/20 cut of torchtext's `Dataset.split`, as S0 uses it

    split_text                       shares of a text, such as 90 %, 5 % and 5 % of its characters

Cuts of a text are decided by the place alone, and nothing is copied. With `words`, a word that a
cut would divide belongs to the later part, because its halves would occur nowhere else.
"""

import codecs
from collections.abc import Sequence
from random import Random
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Integer, UInt64

from lmzoo.data.tokenisers import BLANKS, STRETCH, character_start

Shares = Sequence[tuple[float, float]]
"""Pairs (begin, end) between 0 and 1."""
T = TypeVar("T")


def split_text(
    text: bytes,
    shares: Shares,
    *,
    by_byte: bool = False,
    whole: bool = True,
    words: bool = False,
) -> list[memoryview]:
    """Return the parts of a text; shares are those of its characters, or of its bytes.

    With `whole`, no part ends inside a character of UTF-8, and a last one that is cut is left out.
    """
    if by_byte:
        size = len(text)
    else:
        size = sum(map(_count, _windows(text)))

    def cut(share: float) -> int:
        place = int(share * size)
        if not by_byte:
            place = _place(text, place)
        elif whole:
            place = min(place, len(text) - 1)
            place = character_start(memoryview(text), place)
            if share >= 1:
                # The last character belongs to the text if it is whole.
                place += codecs.utf_8_decode(text[place:], "replace")[1]
        while words and 0 < place < len(text) and not _touches_blank(text, place):
            place -= 1
        return place

    return [memoryview(text)[cut(begin) : cut(end)] for begin, end in shares]


def _touches_blank(text: bytes, place: int) -> bool:
    """Whether a blank is on either side of a place, which then divides no word."""
    return any(byte in BLANKS for byte in text[place - 1 : place + 1])


def _windows(text: bytes) -> list[np.ndarray]:
    raw = np.frombuffer(text, dtype=np.uint8)
    return [raw[i : i + STRETCH] for i in range(0, len(raw), STRETCH)]


def _begins(window: np.ndarray) -> np.ndarray:
    # All other bytes of UTF-8 have the form 10xxxxxx.
    return (window & 0xC0) != 0x80


def _count(window: np.ndarray) -> int:
    return int(_begins(window).sum())


def _place(text: bytes, characters: int) -> int:
    """Return the number of bytes of the first `characters` characters."""
    done = 0
    for window in _windows(text):
        count = _count(window)
        # The place is in this window; the windows before are counted only.
        if characters < count:
            places = np.flatnonzero(_begins(window))
            return done + int(places[characters])
        characters -= count
        done += len(window)
    return done


HELD_OUT = 10
"""Validation and test have one of ten sequences each."""


class Dealt(NamedTuple):
    """The places of the items that train, validate and test, in their order."""

    train: list[int]
    valid: list[int]
    test: list[int]
    together: bool
    """Whether equal items are in one split."""


def deal(keys: Sequence[str]) -> Dealt:
    """Return the places of the items that train, validate and test: 8:1:1.

    Equal keys are in one split. The different keys are numbered as they occur and read in the order
    of a hash of the number, so that neither a period of the file nor the spelling matters; those
    that fit into a tenth of the items test, the next ones validate, all others train. If a split is
    empty then, because few keys are different, every item is dealt by itself.
    """
    numbers = {}
    # The number of a key is that of its first occurrence.
    order = [numbers.setdefault(key, len(numbers)) for key in keys]
    number = np.array(order, dtype=np.int64)
    room = len(keys) // HELD_OUT
    split = _fill(np.bincount(number), room)
    together = {1, 2} <= set(split.tolist())
    if not together:
        number = np.arange(len(keys))
        split = _fill(np.ones_like(number), room)
    owner = split[number]
    train, valid, test = (np.flatnonzero(owner == part) for part in range(3))
    return Dealt(train.tolist(), valid.tolist(), test.tolist(), together)


def _fill(counts: Integer[np.ndarray, "n"], room: int) -> Integer[np.ndarray, "n"]:
    """Return the split of each number: 2 (test) and 1 (validation) have at most `room` items."""
    split = np.zeros_like(counts)
    left = {2: room, 1: room}
    # By a hash, so that no period of a file decides.
    order = np.argsort(_hashes(len(counts)), kind="stable")
    for i in order.tolist():
        for part, places in left.items():
            if counts[i] <= places:
                split[i] = part
                left[part] -= int(counts[i])
                break
        else:
            if not any(left.values()):
                break
    return split


def _hashes(count: int) -> UInt64[np.ndarray, "n"]:
    """Return a hash of each number from 0: the finaliser of SplitMix64 (Steele et al. 2014)."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def interleave(items: Sequence[T], shares: tuple[int, ...]) -> tuple[list[T], ...]:
    """Deal items in rounds: the first `shares[0]` of a round to part 0, the next to part 1 ..."""
    owner = []
    for part, share in enumerate(shares):
        owner += [part] * share
    parts: tuple[list[T], ...] = tuple([] for _ in shares)
    for i, item in enumerate(items):
        part = owner[i % len(owner)]
        parts[part].append(item)
    return parts


def shuffled_cut(items: Sequence[T], fraction: float, seed: int) -> tuple[list[T], list[T]]:
    """Return the first `fraction` of the items in random order, and the rest.

    The order is `random.sample` of all items, as in torchtext, so a seed gives the same split.
    """
    order = Random(seed).sample(range(len(items)), len(items))
    cut = round(fraction * len(items))
    shuffled = [items[i] for i in order]
    return shuffled[:cut], shuffled[cut:]
