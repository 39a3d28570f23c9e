r"""What each switch does, and what two of them do together, from mutants that are not all there.

With y(A) the loss of the mutant in which the switches A are thrown:

    effect       E_i  = mean over A of y(A ∪ i) − y(A)                         over all pairs
    interaction  E_ij = mean over A of y(A ∪ ij) − y(A ∪ i) − y(A ∪ j) + y(A)  over all squares

Some patterns are invalid, blind, or the same function as another, so the design is not
full. A pair or a square counts where all its mutants are there, each function once; an
interaction without any square is NaN. Nothing is extrapolated: in a full factorial these
are 2 β_i and 4 β_ij of the regression in ±1 coding (`regression.py`), elsewhere they
need no model to be true.

Each is a contrast: weights (P,) of the P mutants' losses.

Box, Hunter & Hunter 2005, Statistics for Experimenters, chapter 5.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lmzoo.analysis.statistics import Array

Patterns = NDArray[np.bool_]
"""(P, F): whether switch f is thrown in mutant p; no two rows are equal."""


def effect(patterns: Patterns, switch: int) -> Array:
    """Loss with the switch thrown less loss without, over all pairs."""
    pairs = cubes(patterns, (switch,))
    return _weights(patterns, pairs, (-1, 1))


def effect_alone(patterns: Patterns, switch: int) -> Array:
    """The effect of the switch where no other is thrown."""
    pairs = cubes(patterns, (switch,))
    return _weights(patterns, pairs[~patterns[pairs[:, 0]].any(1)], (-1, 1))


def interaction(patterns: Patterns, first: int, second: int) -> Array:
    """What throwing `second` adds to the effect of `first`, over all squares."""
    return _weights(patterns, cubes(patterns, (first, second)), (1, -1, -1, 1))


def effect_given(patterns: Patterns, first: int, second: int, *, thrown: bool) -> Array:
    """The effect of `first` where `second` is thrown, or is not, over the squares of both."""
    signs = (0, 0, -1, 1) if thrown else (-1, 1, 0, 0)
    return _weights(patterns, cubes(patterns, (first, second)), signs)


def cubes(patterns: Patterns, switches: Sequence[int]) -> NDArray[np.int64]:
    """All sets of mutants that differ in these switches only and have every setting of them.

    A row for each, (C, 2**len(switches)); the first switch turns fastest: for two, columns
    are neither, the first, the second, both.
    """
    place = {pattern.tobytes(): p for p, pattern in enumerate(patterns)}
    settings = np.arange(2 ** len(switches))[:, None] >> np.arange(len(switches)) & 1
    found = []
    for base in patterns[~patterns[:, list(switches)].any(1)]:
        corners = np.repeat(base[None], len(settings), axis=0)
        corners[:, list(switches)] = settings
        rows = [place.get(corner.tobytes()) for corner in corners]
        if None not in rows:
            found.append(rows)
    return np.array(found, np.int64).reshape(-1, len(settings))


def _weights(patterns: Patterns, corners: NDArray[np.int64], signs: Sequence[int]) -> Array:
    """The mean over rows of `corners` of the signed losses; NaN if there are none."""
    if not len(corners):
        return np.full(len(patterns), np.nan)
    weights = np.zeros(len(patterns))
    for column, sign in zip(corners.T, signs, strict=True):
        np.add.at(weights, column, sign / len(corners))
    return weights
