r"""Effects and interactions of switches as contrasts, for designs with missing mutants.

With y(A) the loss of the mutant in which the switches A are on:

    effect       E_i  = mean over A of y(A ∪ i) − y(A)                         over all pairs
    interaction  E_ij = mean over A of y(A ∪ ij) − y(A ∪ i) − y(A ∪ j) + y(A)  over all squares

Some patterns are invalid, ignore the input, or give the same function as another pattern, so the
design is not full. A pair or a square counts if all its mutants exist. An interaction without any
square is NaN; nothing is extrapolated. In a full factorial design the two equal 2 β_i and 4 β_ij of
the regression in ±1 coding. In other designs they hold without a model.

Each estimate is a contrast: weights (P,) of the losses of the P mutants.

Box, Hunter & Hunter 2005, Statistics for Experimenters, chapter 5.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lmzoo.lab.statistics.intervals import Array

Patterns = NDArray[np.bool_]
"""(P, F): whether switch f is on in mutant p; no two rows are equal."""


def effect(patterns: Patterns, switch: int) -> Array:
    """Return the contrast of the loss with the switch on minus off, over all pairs."""
    pairs = cubes(patterns, (switch,))
    return _weights(patterns, pairs, (-1, 1))


def effect_alone(patterns: Patterns, switch: int) -> Array:
    """Return the effect of the switch when all other switches are off."""
    pairs = cubes(patterns, (switch,))
    return _weights(patterns, pairs[~patterns[pairs[:, 0]].any(1)], (-1, 1))


def interaction(patterns: Patterns, first: int, second: int) -> Array:
    """Return how much `second` changes the effect of `first`, over all squares."""
    return _weights(patterns, cubes(patterns, (first, second)), (1, -1, -1, 1))


def effect_given(patterns: Patterns, first: int, second: int, *, on: bool) -> Array:
    """Return the effect of `first` while `second` is on (or off), over all squares."""
    signs = (0, 0, -1, 1) if on else (-1, 1, 0, 0)
    return _weights(patterns, cubes(patterns, (first, second)), signs)


def cubes(patterns: Patterns, switches: Sequence[int]) -> NDArray[np.int64]:
    """Return all sets of mutants that differ in these switches only and have every setting of them.

    Returns:
        Indices of mutants (C, 2**len(switches)), one row per set. The first switch varies fastest:
        for two switches the columns are neither, the first, the second, both.
    """
    index = {pattern.tobytes(): p for p, pattern in enumerate(patterns)}
    settings = np.arange(2 ** len(switches))[:, None] >> np.arange(len(switches)) & 1
    complete = []
    for base in patterns[~patterns[:, list(switches)].any(1)]:
        corners = np.repeat(base[None], len(settings), axis=0)
        corners[:, list(switches)] = settings
        rows = [index.get(corner.tobytes()) for corner in corners]
        if None not in rows:
            complete.append(rows)
    return np.array(complete, np.int64).reshape(-1, len(settings))


def _weights(patterns: Patterns, corners: NDArray[np.int64], signs: Sequence[int]) -> Array:
    """Return the weights of the mean signed loss over the rows of `corners`; NaN for no rows."""
    if not len(corners):
        return np.full(len(patterns), np.nan)
    weights = np.zeros(len(patterns))
    for column, sign in zip(corners.T, signs, strict=True):
        np.add.at(weights, column, sign / len(corners))
    return weights
