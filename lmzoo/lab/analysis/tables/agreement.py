r"""Rank agreement of two tables, and the win rate of one point over another.

    τ_b = (C − D) / √((C + D + T_x)(C + D + T_y))       C, D, T: concordant, discordant, tied pairs
    interval   tanh(atanh τ ± z_.975 √(0.437 / (n − 4)))         n > 4 rows both tables have
    p          of independence: exact for few rows without ties

The interval treats the rows as a random sample of rows. It is wide for few rows. Full agreement has
an infinite atanh: its interval is that of a table with half a pair out of order, and its upper end
is 1.

    win rate   (wins + ties / 2) / n over paired seeds, with Wilson's interval

A diverged run counts in a win rate: it loses to every finite loss and ties with another diverged
run. A mean can only leave it out.

Kendall 1938; Fieller, Hartley & Pearson 1957 (the 0.437); Wilson 1927.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from lmzoo.lab.statistics.intervals import LEVEL

NAN = float("nan")


class Agreement(NamedTuple):
    """Kendall's τ of two tables with its interval and p-value; NaN where there are too few rows."""

    tau: float
    low: float
    high: float
    p: float
    rows: int


class WinRate(NamedTuple):
    """Share of paired seeds for which the first point has the lower loss, with its interval."""

    rate: float
    low: float
    high: float
    seeds: int


def kendall(x: ArrayLike, y: ArrayLike, level: float = LEVEL) -> Agreement:
    """Return the rank agreement of two tables' losses of the same rows; NaN marks no loss."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    paired = ~np.isnan(x) & ~np.isnan(y)
    n = int(paired.sum())
    if n < 2 or len(set(x[paired])) < 2 or len(set(y[paired])) < 2:
        return Agreement(NAN, NAN, NAN, NAN, n)
    tau, p = map(float, stats.kendalltau(x[paired], y[paired]))
    if n < 5:
        return Agreement(tau, NAN, NAN, p, n)
    bound = 1 - 1 / (n * (n - 1) / 2)
    half = float(stats.norm.ppf((1 + level) / 2)) * np.sqrt(0.437 / (n - 4))
    middle = np.arctanh(np.clip(tau, -bound, bound))
    low = -1.0 if tau < -bound else float(np.tanh(middle - half))
    high = 1.0 if tau > bound else float(np.tanh(middle + half))
    return Agreement(tau, low, high, p, n)


def win_rate(values: ArrayLike, reference: ArrayLike, level: float = LEVEL) -> WinRate:
    """Return how often `values` has the lower loss.

    Infinity stands for a diverged run, NaN for a missing one.
    """
    x, y = np.asarray(values, np.float64), np.asarray(reference, np.float64)
    paired = ~np.isnan(x) & ~np.isnan(y)
    x, y = x[paired], y[paired]
    n = len(x)
    if n == 0:
        return WinRate(NAN, NAN, NAN, 0)
    rate = float(((x < y) + 0.5 * (x == y)).mean())
    z = float(stats.norm.ppf((1 + level) / 2))
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return WinRate(rate, float(centre - half), float(centre + half), n)
