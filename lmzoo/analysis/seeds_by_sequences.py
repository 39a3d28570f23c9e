r"""What may be concluded from S seeds that were all scored on the same N test sequences.

A seed is one draw of what training leaves to luck, a sequence one draw of what there is to
predict: a difference may vanish with other seeds, or with another test split. Of the paired
differences, each carried to its share of the mean δ (d_sb = ψ − ψ_reference, below),

    d_sb = δ + a_s + c_b + e_sb
    V_s = Var_s(d_s.) / S      V_b = Var_b(d_.b) / N      V_e = Var_sb(e) / (SN)
    Var(δ̂) = max(V_s + V_b − V_e, V_s, V_b)              both luck, none of it twice
    ν = Var(δ̂)² / (V_s² / (S−1) + V_b² / (N−1))           Satterthwaite's degrees of freedom
    δ̂ ± t_{.975, ν} √Var(δ̂),   p = P(|T_ν| > |δ̂| / √Var)

    token metric      ψ_sb = N (NLL_sb − n_b δ_·) / Σ n + δ_·     the ratio of sums, linearised
    sentence metric   ψ_sb = NLL_sb / n_b

Rank intervals draw seeds and sequences with replacement, the same draw for every point; the
part of the seeds is stretched as in statistics.py. Where one seed was run there is no
interval: nothing is known of the luck of training.

Cornfield & Tukey 1956 (crossed factors); Satterthwaite 1946; Owen 2007 (arXiv:0712.1111).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmzoo.analysis.statistics import LEVEL, RESAMPLES, ranks, stretch, t_below, t_quantile

Array = NDArray[np.float64]


class Crossed(NamedTuple):
    """A mean paired difference over seeds and sequences; NaN where one seed was run."""

    mean: float
    low: float
    high: float
    p: float
    """Of its being zero."""
    better: float
    """P(δ < 0): that the first point is the better one, under a flat prior."""
    error_seeds: float
    """Standard error that more seeds would shrink."""
    error_sequences: float
    """Standard error that a larger test split would shrink."""


def shares(nll: ArrayLike, tokens: ArrayLike, metric: str) -> Array:
    """ψ (S, N): what each sequence gives to the loss; the mean over a row is that run's loss."""
    nll, tokens = np.asarray(nll, np.float64), np.asarray(tokens, np.float64)
    if metric == "sentence":
        return nll / tokens
    loss = nll.sum(-1, keepdims=True) / tokens.sum()
    return (nll - tokens * loss) / tokens.mean() + loss


def crossed_difference(values: ArrayLike, reference: ArrayLike, level: float = LEVEL) -> Crossed:
    """The mean of `values − reference`, both (S, N) shares of the same seeds and sequences."""
    d = np.asarray(values, np.float64) - np.asarray(reference, np.float64)
    S, N = d.shape
    mean = float(d.mean())
    if S < 2 or N < 2:
        return Crossed(mean, *[float("nan")] * 6)
    rows, columns = d.mean(1), d.mean(0)
    rest = d - rows[:, None] - columns + mean
    of_seeds = float(rows.var(ddof=1)) / S
    of_sequences = float(columns.var(ddof=1)) / N
    of_both = float((rest**2).sum()) / ((S - 1) * (N - 1)) / (S * N)
    variance = max(of_seeds + of_sequences - of_both, of_seeds, of_sequences)
    errors = float(np.sqrt(of_seeds)), float(np.sqrt(of_sequences))
    if variance == 0:
        better = float("nan") if mean == 0 else float(mean < 0)
        return Crossed(mean, mean, mean, float("nan"), better, *errors)
    freedom = variance**2 / (of_seeds**2 / (S - 1) + of_sequences**2 / (N - 1))
    error = float(np.sqrt(variance))
    half = float(t_quantile(level, freedom)) * error
    p = 2 * float(t_below(-abs(mean) / error, freedom))
    better = float(t_below(-mean / error, freedom))
    return Crossed(mean, mean - half, mean + half, p, better, *errors)


def crossed_ranks(
    points: ArrayLike, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Array, Array]:
    """The lowest and highest plausible rank (1 is least) of each of P points (P, S, N)."""
    points = np.asarray(points, np.float64)
    P, S, N = points.shape
    if S < 2:
        return np.full(P, np.nan), np.full(P, np.nan)
    random = np.random.default_rng(seed)
    rows, columns = points.mean(2), points.mean(1)  # (P, S), (P, N)
    mean = rows.mean(1)
    seeds = random.multinomial(S, np.full(S, 1 / S), resamples) / S
    sequences = random.multinomial(N, np.full(N, 1 / N), resamples) / N
    shift = (seeds @ rows.T - mean) * stretch(float(S), level) + (sequences @ columns.T - mean)
    drawn = ranks(mean + shift)
    ends = (1 - level) / 2, (1 + level) / 2
    low, high = np.quantile(drawn, ends, axis=0, method="inverted_cdf")
    observed = ranks(mean)
    return np.minimum(low, observed), np.maximum(high, observed)
