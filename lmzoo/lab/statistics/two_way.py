r"""Intervals and tests for S seeds that are all scored on the same N test sequences.

A seed is a random sample of what training leaves to chance; a sequence is a random sample of the
test data. A difference may vanish with other seeds, or with another test split, so both are random
effects here. The paired differences d_sb = ψ − ψ_reference have the mean δ over all s and b:

    d_sb = δ + a_s + c_b + e_sb
    V_s = Var_s(d_s.) / S      V_b = Var_b(d_.b) / N      V_e = Var_sb(e) / (SN)
    Var(δ̂) = max(V_s + V_b − V_e, V_s, V_b) + τ²         V_s and V_b each include V_e: count it once
    ν = Var(δ̂)² / (V_s² / (S−1) + V_b² / (N−1))           Satterthwaite's degrees of freedom
    δ̂ ± t_{.975, ν} √Var(δ̂),   p = P(|T_ν| > |δ̂| / √Var)

τ² is the variance over repetitions of the tuning; it counts as known.

    token metric      ψ_sb = N (NLL_sb − n_b δ_·) / Σ n + δ_·     the ratio of sums, linearised
    sentence metric   ψ_sb = NLL_sb / n_b

Rank intervals are those of `contrasts.py`, by these tests. With one seed there is no interval,
because nothing is known about the variance over seeds.

Cornfield & Tukey 1956 (crossed factors); Satterthwaite 1946; Owen 2007 (arXiv:0712.1111).
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmzoo.lab.statistics.contrasts import holm
from lmzoo.lab.statistics.intervals import LEVEL, Array


class TwoWayDifference(NamedTuple):
    """A mean paired difference δ over seeds and sequences; all but the mean is NaN for one seed."""

    mean: float
    low: float
    high: float
    p: float
    """p-value of δ = 0."""
    better: float
    """P(δ < 0) under a flat prior: the probability that the first point has the lower loss."""
    error_seeds: float
    """Standard error due to the seeds."""
    error_sequences: float
    """Standard error due to the test sequences."""


def loss_contributions(nll: ArrayLike, tokens: ArrayLike, metric: str) -> Array:
    """Return ψ (S, N), the contribution of each sequence to the loss of its run.

    The mean over a row is the loss. `nll` (S, N) is in nats; `tokens` (N,) counts scored tokens.
    """
    nll, tokens = np.asarray(nll, np.float64), np.asarray(tokens, np.float64)
    if metric == "sentence":
        return nll / tokens
    loss = nll.sum(-1, keepdims=True) / tokens.sum()
    return (nll - tokens * loss) / tokens.mean() + loss


def two_way_difference(
    values: ArrayLike, reference: ArrayLike, tuning: float = 0.0
) -> TwoWayDifference:
    """Return the mean of `values − reference`, contributions (S, N), with interval and test.

    `tuning` is τ².
    """
    d = np.asarray(values, np.float64) - np.asarray(reference, np.float64)
    S, N = d.shape
    mean = float(d.mean())
    if S < 2 or N < 2:
        return TwoWayDifference(mean, *[np.nan] * 6)
    rows, columns = d.mean(1), d.mean(0)
    residual = d - rows[:, None] - columns + mean
    of_seeds = float(rows.var(ddof=1)) / S
    of_sequences = float(columns.var(ddof=1)) / N
    of_both = float((residual**2).sum()) / ((S - 1) * (N - 1)) / (S * N)
    variance = max(of_seeds + of_sequences - of_both, of_seeds, of_sequences) + tuning
    errors = float(np.sqrt(of_seeds)), float(np.sqrt(of_sequences))
    if variance == 0:
        better = np.nan if mean == 0 else float(mean < 0)
        return TwoWayDifference(mean, mean, mean, np.nan, better, *errors)
    own = of_seeds**2 / (S - 1) + of_sequences**2 / (N - 1)
    freedom = variance**2 / own if own else float("inf")
    error = float(np.sqrt(variance))
    half = float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * error
    p = 2 * float(special.stdtr(freedom, -abs(mean) / error))
    better = float(special.stdtr(freedom, -mean / error))
    return TwoWayDifference(mean, mean - half, mean + half, p, better, *errors)


def two_way_rank_intervals(points: ArrayLike, tuning: ArrayLike = 0.0) -> tuple[Array, Array]:
    """Return the lowest and highest plausible rank of each point, (P,) each; NaN with one seed.

    Rank 1 is the least loss. `points` are contributions (P, S, N), `tuning` the τ² of each, (P,).
    """
    x = np.asarray(points, np.float64)
    P, square = len(x), np.broadcast_to(tuning, len(x))
    higher, p = np.full((2, P, P), np.nan)
    for i, j in combinations(range(P), 2):
        found = two_way_difference(x[j], x[i], float(square[i] + square[j]))
        higher[i, j], higher[j, i] = found.mean, -found.mean
        p[i, j] = p[j, i] = 2 * min(found.better, 1 - found.better)
    sure = np.array([holm(row) < 1 - LEVEL for row in p])
    low, high = 1 + (sure & (higher < 0)).sum(1), P - (sure & (higher > 0)).sum(1)
    known = 1.0 if x.shape[1] > 1 else np.nan
    return known * low, known * high
