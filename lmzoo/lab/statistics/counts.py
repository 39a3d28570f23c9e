"""Runs that are counted: those that diverged, and those that have not solved their task.

They have no number that belongs in a mean. Fisher's exact test compares how many of the n runs of a
point and of the m runs of the reference are counted, given that x of both are:

    P(k) = C(n, k) C(m, x − k) / C(n + m, x)        k of the x are those of the point
    p    = the sum of all P(k) that are at most P(own)
"""

from math import comb
from typing import NamedTuple

import numpy as np

from lmzoo.lab.statistics.intervals import Array, Indices, Mask, undefined_is_nan

SOLVED = 0.95
"""A run solves a task if it has this share of the greatest accuracy."""
ROUNDING = 1e-9
"""Relative; two probabilities that differ by less are equal."""


class Counts(NamedTuple):
    """The counted runs of P points against those of their references, (P,) each."""

    more: Array
    """The share of the point's runs less that of the reference's."""
    p: Array
    """Of equal shares; 1 if nothing is counted."""
    least: Array
    """The least p that so many counted runs could give."""
    noise: Array
    """n times the variance of `more` if the shares are equal."""
    few: Mask
    """Whether most runs of the point, or of its reference, are counted: means say little then."""


def solves(
    loss: float, accuracy: float | None, ceiling: float | None, *, bound: float, sign: int = 1
) -> bool:
    """Return whether a run solves its task.

    Args:
        loss: its loss.
        accuracy: the share of answers that it has right; None: not known.
        ceiling: the greatest accuracy that a model can have; None: the task has none.
        bound: the loss, or sign times the metric, that solves the task; 0: `SOLVED` of the ceiling.
        sign: −1 for a metric that is maximized.
    """
    # The user knows better than the ceiling of the task.
    if bound:
        return loss <= sign * bound
    if accuracy is None or ceiling is None:
        return True
    return accuracy >= SOLVED * ceiling


def counts(losses: Array, reference: Indices) -> Counts:
    """Compare the infinite losses (P, S) of each point with those of its reference; NaN: no run."""
    counted = np.isposinf(losses).sum(1)
    runs = (~np.isnan(losses)).sum(1)
    others = runs[reference]
    with undefined_is_nan():
        share = counted / runs
        pooled = (counted + counted[reference]) / (runs + others)
        # Binomial, with the share of both together.
        noise = pooled * (1 - pooled) * (1 + runs / others)
    more = share - share[reference]
    is_few = np.nan_to_num(share) > 0.5
    p = np.ones(len(losses))
    least = np.ones(len(losses))
    for point, other in enumerate(reference):
        both = int(counted[point] + counted[other])
        # Without counted runs, p is 1.
        if point == other or not both:
            continue
        n = int(runs[point])
        m = int(runs[other])
        chances = _chances(both, n, m)
        fewest = max(0, both - m)
        own = chances[int(counted[point]) - fewest]
        p[point] = _at_most(chances, own)
        least[point] = _at_most(chances, chances.min())
    return Counts(
        more=np.nan_to_num(more),
        p=p,
        least=least,
        noise=np.nan_to_num(noise),
        few=is_few | is_few[reference],
    )


def _chances(x: int, n: int, m: int) -> Array:
    """Return P(k) for all k that are possible, the least first."""
    chances = []
    total = comb(n + m, x)
    for k in range(max(0, x - m), min(x, n) + 1):
        ways = comb(n, k) * comb(m, x - k)
        # Whole numbers of any size, divided at the end: factorials of many runs overflow.
        chances.append(ways / total)
    return np.array(chances)


def _at_most(chances: Array, chance: float) -> float:
    """Return the sum of all P(k) that are at most `chance`."""
    is_rarer = chances <= chance * (1 + ROUNDING)
    return float(chances[is_rarer].sum())
