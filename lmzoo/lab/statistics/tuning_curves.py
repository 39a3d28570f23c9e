r"""Tuning curves: the loss that k tuning runs find.

Another tuning of the same point would train other runs. Its k runs are drawn from the n that there
are, with replacement, and the best counts. With the losses y_(1) ≤ ... ≤ y_(n),

    P(best of k ≥ y_(i)) = ((n − i + 1)/n)^k

gives the mean, and the central interval of `LEVEL`, of the best loss. The interval is that of the
outcome of one tuning. It says nothing of settings that no run tried.

Dodge et al. 2019 (EMNLP; arXiv:1909.03004); Lourie et al. 2024 (arXiv:2311.09480).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
LEVEL = 0.8
"""Probability of the interval: with five runs, one end of a wider one is always the worst run."""


class TuningCurve(NamedTuple):
    """The best loss of 1, 2, ..., K runs."""

    losses: Array
    """Losses of the runs, increasing, (n,)."""
    weight: Array
    """Probability of each to be the best, (K, n)."""

    @property
    def mean(self) -> Array:
        """Expected best loss, (K,); infinity as long as all k runs may diverge."""
        with np.errstate(invalid="ignore"):
            return np.where(self.weight > 0, self.weight * self.losses, 0.0).sum(1)

    def quantile(self, share: float) -> Array:
        """Return the best loss that a share of tunings reach, (K,)."""
        reached = np.cumsum(self.weight, 1) >= share - 1e-12
        return self.losses[reached.argmax(1)]


def tuning_curve(losses: ArrayLike, most: int) -> TuningCurve:
    """Return the curve up to `most` runs; losses (n,), infinity for a diverged run."""
    y = np.sort(np.asarray(losses, np.float64))
    left = np.arange(len(y), -1, -1) / len(y)
    return TuningCurve(y, -np.diff(left ** np.arange(1, most + 1)[:, None]))


def probability_above(point: TuningCurve, other: TuningCurve) -> Array:
    """Return P(the best of k runs of `point` is above that of `other`), ties counted half, (K,)."""
    own = point.losses[:, None]
    above = ((own > other.losses).astype(float) + (own >= other.losses)) / 2
    return np.einsum("kn,nm,km->k", point.weight, above, other.weight)
