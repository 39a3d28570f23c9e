r"""Intervals of means over the n seeds of a point: m ± t_{.975, n-1} s / √n.

NaN marks a value that was not measured. One seed gives no interval (NaN). If all seeds give the
same number, as for a count model, the number is exact: both ends of the interval equal it.

A loss that no causal density can have is below the interval of the entropy of the source:

    loss < H − 3 ln V / (2 √N)

H is the entropy in nats per token, known for some corpora, V the size of the vocabulary and N the
number of test sequences. The expected loss of a density is at least H. That of a test split of N
independent sequences is at least the split's own −log P under the source, whose mean varies: a
number in [0, ln V], such as the −log P per token of a sequence under a source that is not extreme,
has a standard deviation of at most ln V / 2. So a loss that is lower is not a draw of the test
split: the model sees what it predicts, or its probabilities do not sum to one. A leak that is worth
less than this is not found here; `lmzoo audit` looks for it in the model.
"""

from math import inf, log, nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats takes half a second to import

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
LEVEL = 0.95
STANDARD_ERRORS = 3.0
"""Below the entropy by so many is impossible: once in 700 sound models, if the bound is sharp."""


class Interval(NamedTuple):
    """A mean and its interval.

    All fields are NaN without values; `low` and `high` are NaN for a single value. Both equal the
    mean if all values are equal.
    """

    mean: Array
    low: Array
    high: Array


def undefined_is_nan() -> np.errstate:
    """Return a context in which numpy does not warn of 0/0 and x/0."""
    return np.errstate(divide="ignore", invalid="ignore")


def mean_interval(values: ArrayLike) -> Interval:
    """Return the mean over the last axis with its t-interval."""
    n, mean, error = mean_and_error(np.asarray(values, np.float64))
    # One seed has no interval.
    freedom = np.where(n > 1, n - 1, nan)
    half = special.stdtrit(freedom, (1 + LEVEL) / 2) * error
    return Interval(mean, mean - half, mean + half)


def mean_and_error(values: Array) -> tuple[Array, Array, Array]:
    """Return count, mean and standard error over the last axis; NaN values are left out."""
    measured = ~np.isnan(values)
    n = measured.sum(-1, dtype=np.float64)
    # Equal values are their own mean: see below.
    least = values.min(-1, initial=inf, where=measured)
    most = values.max(-1, initial=-inf, where=measured)
    with undefined_is_nan():
        mean = np.where(measured, values, 0.0).sum(-1) / n
        mean = np.where(least == most, least, mean)  # equal values: no rounding error
        deviations = np.where(measured, values - mean[..., None], 0.0)
        variance = (deviations**2).sum(-1) / (n - 1)
        error = np.sqrt(variance / n)
    return np.asarray(n), mean, np.asarray(error)


def is_impossible(
    loss: float | None, floor: float | None, vocab: int | None, sequences: int | None
) -> bool:
    """Return whether a test loss in nats per token is impossible; False if the floor is unknown."""
    if loss is None or floor is None or not vocab or not sequences:
        return False
    # The largest that a density in [0, ln V] can have.
    standard_error = log(vocab) / (2 * sqrt(sequences))
    return loss < floor - STANDARD_ERRORS * standard_error
