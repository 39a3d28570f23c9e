"""Holm's correction of the p-values of a family of tests (Holm 1979, Scand. J. Statist. 6)."""

import numpy as np
from numpy.typing import ArrayLike

from lmzoo.statistics.intervals import Array


def holm(p: ArrayLike) -> Array:
    """Return Holm's adjusted p-values. NaN stands for no test: it stays NaN and is not counted."""
    p = np.asarray(p, dtype=np.float64)
    adjusted = np.full_like(p, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = np.arange(len(order), 0, -1) * p[order]
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
