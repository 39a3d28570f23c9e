r"""Rank agreement of two tables.

    τ_b = (C − D) / √((C + D + T_x)(C + D + T_y))       C, D, T: concordant, discordant, tied pairs
    interval   tanh(atanh τ ± z_.975 √(0.437 / (n − 4)))         n > 4 rows both tables have
    p          of independence: exact for few rows without ties

The interval treats the rows as a random sample of rows. It is wide for few rows. Full agreement has
an infinite atanh: its interval is that of a table with half a pair out of order, and its upper end
is 1.

Kendall 1938; Fieller, Hartley & Pearson 1957 (the 0.437).
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
