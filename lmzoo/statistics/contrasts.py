r"""Differences of points to a reference, over the seeds that both have and over the tuning.

    δ̂_p    = mean_s (x_ps − x_rs)
    Var    = (ṽ_p + ṽ_r)/n + τ_p² + τ_r²                ṽ: `moderation.py`, τ: the tuning's sd
    ν      = Var² / ((ṽ_p²/f_p + ṽ_r²/f_r)/n²)          Satterthwaite; τ counts as known
    δ̂_p ± t_{.975, ν} √Var,   p = P(|T_ν| > |δ̂_p| / √Var)

Where a variance is not shared (an exact point, fewer than four varying points), the sample variance
of the n differences with n − 1 degrees of freedom takes the place of ṽ_p + ṽ_r. If every seed gives
the same difference and τ = 0, the difference is exact and there is no test.

A diverged run has the loss infinity and counts as worse than any loss: for p, its difference is the
largest absolute difference of the table. Mean and interval are over the other seeds. A point with a
diverged run, where the reference has none, never has a p-value that speaks for it.

Satterthwaite 1946 (Biometrics Bulletin 2:110).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmzoo.statistics.intervals import LEVEL, Array, mean_and_error, t_below, t_quantile
from lmzoo.statistics.moderation import Spread, seed_spread


class Contrasts(NamedTuple):
    """The differences δ of P points to one reference; NaN for the reference and without seeds."""

    mean: Array
    low: Array
    high: Array
    p: Array
    """p-value of δ = 0; NaN if there is no test."""
    better: Array
    """P(δ < 0) under a flat prior."""
    error: Array
    """√Var."""
    freedom: Array
    """ν."""
    seeds: Array
    """n, the number of common finite seeds."""
    noise: Array
    """Var without tuning, times n: the variance of one seed's difference."""
    tuning: Array
    """τ_p² + τ_r²."""
    lost: NDArray[np.int64]
    """Seeds with a diverged run of the point, less those with a diverged run of the reference."""


def contrasts(
    losses: ArrayLike,
    reference: int,
    tuning_sd: ArrayLike = 0.0,
    *,
    spread: Spread | None = None,
    level: float = LEVEL,
) -> Contrasts:
    """Return the differences of all points to one of them.

    Args:
        losses: (P, S) in nats; NaN for a run that is missing, infinity for one that diverged.
        reference: index of the reference.
        tuning_sd: standard deviation in nats of the loss over repetitions of the tuning, (P,).
        spread: the variances, `seed_spread(losses)`, if they are known already.
        level: coverage of the intervals.
    """
    x = np.asarray(losses, np.float64)
    spread = seed_spread(x) if spread is None else spread
    square = np.broadcast_to(np.asarray(tuning_sd, np.float64), len(x)) ** 2
    tuning = square + square[reference]
    d = np.where(np.isfinite(x) & np.isfinite(x[reference]), 0, np.nan)
    with np.errstate(invalid="ignore"):
        d = d + (x - x[reference])
    d[reference] = np.nan
    n, mean, own_error = mean_and_error(d)
    noise, freedom = _noise(spread, reference, own_error**2 * n, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = noise / n + tuning
        freedom = np.where(noise > 0, freedom * (variance / (noise / n)) ** 2, np.inf)
        freedom = np.where(n > 1, freedom, np.nan)
        error = np.sqrt(variance)
        half = np.where(error > 0, t_quantile(level, freedom) * error, error)
    p, better, lost = _test(x, d, reference, mean, error, freedom)
    return Contrasts(
        mean, mean - half, mean + half, p, better, error, freedom, n, noise, tuning, lost
    )


def _noise(spread: Spread, reference: int, own: Array, n: Array) -> tuple[Array, Array]:
    """Return the variance of one seed's difference and its degrees of freedom."""
    v, f = spread.variance, spread.freedom
    both = v + v[reference]
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = both**2 / (v**2 / f + v[reference] ** 2 / f[reference])
    shared = ~np.isnan(both) & (n > 1)
    return (
        np.where(shared, both, own),
        np.where(shared, np.minimum(freedom, spread.total), n - 1),
    )


def _test(
    x: Array, d: Array, reference: int, mean: Array, error: Array, freedom: Array
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Return p, P(δ < 0) and the surplus of diverged runs, with these counted as losses."""
    diverged = np.isposinf(x)
    sign = diverged.astype(np.int64) - diverged[reference]
    sign[np.isnan(x) | np.isnan(x[reference])] = 0
    most = np.nanmax(np.abs(d), initial=0.0)
    counted = np.where(sign != 0, sign * most, d)
    size = (~np.isnan(counted)).sum(1)
    total = np.where(np.isnan(counted), 0, counted).sum(1)
    lost = sign.sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        tested = np.where((sign != 0).any(1), total / size, mean)
        t = np.where(error > 0, tested / error, np.nan)
    p = 2 * np.asarray(t_below(-np.abs(t), freedom))
    better = np.asarray(t_below(-t, freedom))
    against = ((lost > 0) & (tested < 0)) | ((lost < 0) & (tested > 0))
    p = np.where(against & ~np.isnan(p), 1.0, p)
    better = np.where(against & ~np.isnan(better), 0.5, better)
    exact = (error == 0) & (mean != 0)
    return p, np.where(exact, mean < 0, better), lost
