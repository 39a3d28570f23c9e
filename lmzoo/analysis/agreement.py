r"""Do two tables put the same rows in the same order?  And how often does one point win?

    τ_b = (C − D) / √((C + D + T_x)(C + D + T_y))       C, D, T: concordant, discordant, tied pairs
    interval   tanh(atanh τ ± z_.975 √(0.437 / (n − 4)))         n > 4 rows both tables have
    p          of independence: exact without ties, for few rows

The interval takes the rows for a draw of such rows, so it tells how far the agreement of these
few speaks for others. It is wide, as n = 5 rows say little. Full agreement has an infinite atanh;
it is given that of a table with half a pair out of order, and its upper end is 1.

    win rate   (wins + ties / 2) / n over paired seeds, Wilson's interval

A run that diverged loses against every number and ties with another one, so it is counted
here, where a mean can only leave it out.

Kendall 1938; Fieller, Hartley & Pearson 1957 (the 0.437); Wilson 1927.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from lmzoo.analysis.statistics import LEVEL


class Agreement(NamedTuple):
    """Kendall's τ of two tables; NaN where there are too few rows to say."""

    tau: float
    low: float
    high: float
    p: float
    rows: int


class WinRate(NamedTuple):
    """How often the first of two points has the lower loss, on the same seed."""

    rate: float
    low: float
    high: float
    seeds: int


def kendall(x: ArrayLike, y: ArrayLike, level: float = LEVEL) -> Agreement:
    """The rank agreement of two tables' losses of the same rows, NaN where one has none."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    both = ~np.isnan(x) & ~np.isnan(y)
    n = int(both.sum())
    nothing = float("nan")
    if n < 2 or len(set(x[both])) < 2 or len(set(y[both])) < 2:
        return Agreement(nothing, nothing, nothing, nothing, n)
    tau, p = map(float, stats.kendalltau(x[both], y[both]))
    if n < 5:
        return Agreement(tau, nothing, nothing, p, n)
    most = 1 - 1 / (n * (n - 1) / 2)
    half = float(stats.norm.ppf((1 + level) / 2)) * np.sqrt(0.437 / (n - 4))
    middle = np.arctanh(np.clip(tau, -most, most))
    low = -1.0 if tau < -most else float(np.tanh(middle - half))
    high = 1.0 if tau > most else float(np.tanh(middle + half))
    return Agreement(tau, low, high, p, n)


def win_rate(values: ArrayLike, other: ArrayLike, level: float = LEVEL) -> WinRate:
    """How often `values` wins; infinity stands for a run that diverged, NaN for none."""
    x, y = np.asarray(values, np.float64), np.asarray(other, np.float64)
    both = ~np.isnan(x) & ~np.isnan(y)
    x, y = x[both], y[both]
    n = len(x)
    if n == 0:
        return WinRate(float("nan"), float("nan"), float("nan"), 0)
    rate = float(((x < y) + 0.5 * (x == y)).mean())
    z = float(stats.norm.ppf((1 + level) / 2))
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return WinRate(rate, float(centre - half), float(centre + half), n)
