"""Losses that differ by rounding only are equal.

A run in another pack, at another place of it or on another CPU adds up in another order. Its losses
then differ by 1e-6 or less, relative, after some epochs, and by up to 1e-5 after ten. No decision
may depend on that. Losses that differ by at most `TIE` are equal wherever one of them is preferred:
at rungs, in the fit, for the sampler and in the choice of a setting. The earlier one then wins.

Two losses whose difference is `TIE`, up to rounding, may still fall either way.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

TIE = 3e-5
"""Relative difference up to which two losses are equal: thrice the largest that was measured."""


def settled(losses: ArrayLike, scale: ArrayLike = 0.0) -> NDArray[np.float64]:
    """Return the losses (..., N), each replaced by the first one that it equals.

    `scale`, (...), is the size of the losses of which `losses` are differences.
    """
    x = np.array(losses, np.float64)
    for place in range(1, x.shape[-1]):
        present = x[..., place]
        earlier = x[..., :place]
        finite = np.where(np.isfinite(present), present, 0.0)
        size = np.maximum(np.abs(finite), scale)
        with np.errstate(invalid="ignore"):  # two infinite losses
            distance = np.abs(earlier - present[..., None])
            is_equal = distance <= TIE * size[..., None]
        # `earlier` is settled already, so that a chain of ties has one value.
        first = is_equal.argmax(-1)[..., None]
        known = np.take_along_axis(earlier, first, -1)[..., 0]
        x[..., place] = np.where(is_equal.any(-1), known, present)
    return x
