"""What longer training would bring, and how far it would move the differences.

    last     Δ = L(n/2) − L(n), what the last doubling of the n epochs brought: the median of points
    before   Δ' = L(n/4) − L(n/2)
    next     Δ r, with r = Δ/Δ' between 1/2 and 1; at most about Δ
    moved    the root mean square of d(n) − d(n/2), d the difference of a point to the reference

The next doubling moves the differences at most about as far as the last one did. A rate that falls
to zero makes curves flat at their end, but not their last doubling. `python -m benchmarks.longer`
measures both on recorded curves.
"""

from math import ceil, floor
from typing import NamedTuple

import numpy as np

from lmzoo.lab.statistics.intervals import Array

LEAST = 0.5
MOST = 1.0
"""Bounds of r."""
USUAL = 0.6
"""r of curves that are too short to have one."""
MOST_DOUBLINGS = 2
"""Epochs are not predicted further; two doublings were tested."""


class Longer(NamedTuple):
    """What the last doubling of the epochs did, in the unit of the losses, and what is needed."""

    gain: float
    """Δ."""
    moved: float
    """0 without a reference or other points."""
    epochs: int
    """The epochs after which another doubling brings less than the margin; n if that is now."""


def longer(curves: Array, reference: int | None, margin: float) -> Longer:
    """Return what longer training would bring.

    Args:
        curves: mean losses (P, n) of the points after epochs 1 to n; NaN where there is none.
        reference: its row; None: there is none.
        margin: a gain that is worth no doubling.
    """
    n = curves.shape[1]
    if n < 2:
        return Longer(0.0, 0.0, n)
    half = _after(curves, n / 2)
    of_last = half - curves[:, -1]
    gain = _median(of_last)
    ratio = USUAL
    # Of a curve of two or three epochs, the first one is the quarter.
    before = _median(_after(curves, max(n / 4, 1)) - half)
    if before:
        ratio = float(np.clip(gain / before, LEAST, MOST))
    epochs = n
    coming = gain * ratio
    # Each doubling brings r times what the last one did.
    while margin > 0 and coming > margin and epochs < n * 2**MOST_DOUBLINGS:
        epochs *= 2
        coming *= ratio
    moved = 0.0
    if reference is not None:
        # How the difference to the reference has moved, not the loss.
        moves = np.delete(of_last - of_last[reference], reference)
        moves = moves[~np.isnan(moves)]
        if len(moves):
            moved = float(np.sqrt((moves**2).mean()))
    return Longer(gain, moved, epochs)


def _after(curves: Array, epochs: float) -> Array:
    """Return the losses after this number of epochs: between two, the mean of both."""
    before = curves[:, floor(epochs) - 1]
    after = curves[:, ceil(epochs) - 1]
    return (before + after) / 2


def _median(values: Array) -> float:
    """Return the median of the values that are known; 0 without any."""
    known = values[~np.isnan(values)]
    if not len(known):
        return 0.0
    return float(np.median(known))
