"""Results that are equal although their runs draw from different seeds: they are one draw.

A program that does not read its seed, or workers that begin with one constant seed, give equal
results to runs that ought to be independent. On a coarse grid, as that of an accuracy, some results
are equal by chance; so half of them have to be, and only losses with many digits lose their copies.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import nan

import numpy as np
from numpy.typing import ArrayLike

from lmzoo.lab.statistics.intervals import Array

FOLLOWS = 2.33
"""Standard errors of a correlation of neighbours that is said: luck in one table of 100."""
MOST_NAMED = 3
"""Points and pairs that lines name."""
ROUNDED = 0.01
"""Distances that are so close to multiples of the least one are those of a grid."""


def equal_draws(losses: ArrayLike) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the points with equal results of different seeds, and pairs with those of each other.

    Of the losses (P, S), half or more are equal. Missing and diverged runs do not count.
    """
    points = np.asarray(losses, np.float64)
    rows = list[Counter[float]]()
    seeds = list[int]()
    owners = defaultdict[float, list[int]](list)
    for point, losses_of_point in enumerate(points):
        known = losses_of_point[np.isfinite(losses_of_point)]
        row = Counter(known.tolist())
        rows.append(row)
        # Half of the results or more are those of another seed.
        if 1 < row.total() >= 2 * len(row):
            seeds.append(point)
        for value in row:
            owners[value].append(point)
    shared = Counter[tuple[int, int]]()
    for points_with_value in owners.values():
        shared.update(combinations(points_with_value, 2))
    pairs = list[tuple[int, int]]()
    for (one, other), count in sorted(shared.items()):
        most = max(rows[one].total(), rows[other].total())
        if count > 1 and 2 * count >= most:
            pairs.append((one, other))
    return seeds, pairs


def follow_line(losses: Iterable[ArrayLike]) -> str:
    """Return what is said if losses of neighbouring seeds, a row for a point, are alike; else "".

    Of the standardised losses z_ps of P points on n seeds, the statistic is

        T = Σ_s Σ_p z_ps z_p,s+1 = Σ_s G_s,s+1        G = Zᵀ Z

    Points may share the noise of a seed, so its spread is that over all orders of the seeds, the
    same order for all points. Points with another number of seeds are another group; the spreads of
    groups are added, because nothing is known of what they share.
    """
    groups = defaultdict[int, list[Array]](list)
    for row in losses:
        values = np.array(row, np.float64)
        known = values[np.isfinite(values)]
        # A point without variation has no order.
        if len(known) > 2 and np.ptp(known):
            known = known / np.ptp(known)  # in any unit: the square of 1e-300 is 0
            standardised = (known - known.mean()) / known.std()
            groups[len(known)].append(standardised)
    total = 0.0
    excess = 0.0
    spread = 0.0
    count = 0
    for seeds, rows in groups.items():
        z = np.array(rows)
        neighbours = float((z[:, 1:] * z[:, :-1]).sum())
        total += neighbours
        excess += neighbours + len(rows)  # the mean over all orders is −P
        spread += _spread_over_orders(z)
        count += seeds * len(rows)
    if excess <= FOLLOWS * spread:
        return ""
    return (
        f"losses of neighbouring runs are alike (correlation {total / count:.1f}): they are not "
        "independent, so that signs are wrong more often; run them in another order, or apart"
    )


def _spread_over_orders(z: Array) -> float:
    """Return the standard deviation of T = Σ_s G_s,s+1 over all orders of the n seeds.

        A = Σ G_ij²    B = Σ G_ij G_jk    C = Σ G_ij G_kl       of different indices
        E T² = A / n + (2 B + C) / (n (n − 1))                  E T = −Σ G_ii / n

    The rows of G sum to 0, so B and C follow from squares. Σ G_ij² over all i and j is that of
    Z Zᵀ, too, which is small where there are many seeds.
    """
    _, n = z.shape
    diagonal = (z**2).sum(0)
    trace = float(diagonal.sum())
    squares = float((diagonal**2).sum())
    least = min(z, z.T, key=len)
    products = least @ least.T
    a = float((products**2).sum()) - squares
    b = squares - a
    c = trace**2 - 2 * a - 4 * b
    square = a / n + (2 * b + c) / (n * (n - 1))
    mean = trace / n
    # Where all orders have one sum, rounding may leave less than 0.
    return max(0.0, square - mean**2) ** 0.5


def independent(losses: ArrayLike) -> Array:
    """Return the losses (P, S) with NaN in place of copies: runs that repeat an earlier draw.

    A row of equal losses is kept: a count model, or a program without chance, has no draws. So is a
    table of numbers on a grid.
    """
    x = np.array(losses, np.float64)
    seeds, _ = equal_draws(x)
    if not seeds or _is_grid(x):
        return x
    for point in seeds:
        _, first = np.unique(x[point], return_index=True)
        is_copy = np.isfinite(x[point])
        # A row of one value has no draws, and is kept.
        if is_copy[first].sum() > 1:
            is_copy[first] = False
            x[point, is_copy] = nan
    return x


def _is_grid(losses: Array) -> bool:
    """Return whether all distances of losses are multiples of the least one."""
    known = losses[np.isfinite(losses)]
    steps = np.diff(np.unique(known))
    if len(steps) < 2:
        return True
    # Losses with many digits have no common step.
    multiples = steps / steps.min()
    rests = np.abs(multiples - multiples.round())
    return bool((rests < ROUNDED).all())


def equal_lines(names: Sequence[str], losses: ArrayLike) -> Iterator[str]:
    """Yield what is known of runs that are equal, and so are not independent."""
    seeds, pairs = equal_draws(losses)
    found = list[str]()
    for point in seeds:
        found.append(f"{names[point]}: different seeds have equal results; does it read its seed?")
    for one, other in pairs:
        both = f"{names[one]} and {names[other]}"
        found.append(f"{both} have equal results; do they train the same?")
    yield from found[:MOST_NAMED]
    if found[MOST_NAMED:]:
        yield f"{len(found) - MOST_NAMED} more points or pairs have equal results"
