"""The family of a study's tests, and Holm's correction (Holm 1979, Scand. J. Statist. 6)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmzoo.statistics.intervals import Array


def unfair(
    architectures: Sequence[str], tuned: Sequence[bool], reference: int
) -> NDArray[np.bool_]:
    """Return which points have another architecture than the reference, where one is not tuned.

    One learning rate is good for some architectures and poor for others, so that the difference is
    none of the architectures, and gets no verdict.
    """
    other = np.asarray(architectures) != architectures[reference]
    return other & ~(np.asarray(tuned, bool) & tuned[reference])


def holm(p: ArrayLike) -> Array:
    """Return Holm's adjusted p-values. NaN stands for no test: it stays NaN and is not counted."""
    p = np.asarray(p, dtype=np.float64)
    adjusted = np.full_like(p, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = np.arange(len(order), 0, -1) * p[order]
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
