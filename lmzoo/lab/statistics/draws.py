"""Results that are equal although their runs draw from different seeds: they are one draw.

A program that does not read its seed, or workers that begin with one constant seed, give equal
results to runs that ought to be independent. On a coarse grid, as that of an accuracy, some results
are equal by chance; so half of them have to be.
"""

from collections import Counter
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike


def equal_draws(losses: ArrayLike) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the points with equal results of different seeds, and pairs with those of each other.

    Of the losses (P, S), half or more are equal. Missing and diverged runs do not count.
    """
    rows = [Counter(row[np.isfinite(row)].tolist()) for row in np.asarray(losses, np.float64)]
    seeds = [i for i, row in enumerate(rows) if 1 < row.total() >= 2 * len(row)]
    pairs = list[tuple[int, int]]()
    for i, j in combinations(range(len(rows)), 2):
        shared = len(rows[i].keys() & rows[j].keys())
        if shared > 1 and 2 * shared >= max(rows[i].total(), rows[j].total()):
            pairs.append((i, j))
    return seeds, pairs
