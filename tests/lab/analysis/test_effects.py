"""Effects estimated from noisy seeds: intervals cover planted effects, and zero without one."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from lmzoo.lab.analysis.effects import estimate_effects
from lmzoo.lab.statistics.contrasts import holm
from tests.lab.analysis.factorial import full, mgu, mutants

RNG = np.random.default_rng


def noisy(patterns, rng, seeds, *, shared=0.5, own=0.05):
    """Return losses with noise of a seed, of a switch within a seed, and of a single run."""
    noise = rng.normal(0, shared, seeds) + patterns @ rng.normal(0, own, (patterns.shape[1], seeds))
    return 3 + noise + rng.normal(0, own, (len(patterns), seeds))


def covered(frame, truth):
    ends = frame.select("effect_low", "effect_high").to_numpy()
    return (ends[:, 0] < truth) & (truth < ends[:, 1])


def test_intervals_and_p_equal_scipys_test_over_seeds():
    patterns = full(2)
    y = noisy(patterns, RNG(0), 4)
    (row,) = estimate_effects(mutants(patterns, y)).filter(first="a", second="b").to_dicts()
    wild, a, b, both = y
    test = stats.ttest_1samp(both - a - b + wild, 0)
    interval = test.confidence_interval(0.95)
    result = [row[c] for c in ("effect_low", "effect_high", "p_raw")]
    assert np.allclose(result, [interval.low, interval.high, test.pvalue])
    alone = stats.ttest_rel(a, wild).confidence_interval(0.95)
    assert np.allclose([row["given_intact_low"], row["given_intact_high"]], [alone.low, alone.high])


def test_p_has_holms_correction_over_all_effects_and_interactions():
    frame = estimate_effects(mutants(full(3), noisy(full(3), RNG(1), 3)))
    assert len(frame) == 6
    assert np.allclose(frame["p"], holm(frame["p_raw"].to_numpy()))


def test_intervals_cover_planted_effects_in_95_percent():
    """Cut 0 adds 0.3; cut 4 removes 0.2, but adds 0.1 together with cut 0."""
    patterns, rng = mgu(), RNG(3)
    truth = 0.3 * patterns[:, 0] - 0.2 * patterns[:, 4] + 0.3 * (patterns[:, 0] & patterns[:, 4])
    inside, pairs = [], []
    for _ in range(6):
        y = noisy(patterns, rng, 5) + truth[:, None]
        frame = estimate_effects(mutants(patterns, y))
        exact = estimate_effects(mutants(patterns, np.repeat(truth[:, None], 2, 1)))
        known = frame["effect"].is_not_null()
        inside += covered(frame.filter(known), exact.filter(known)["effect"].to_numpy()).tolist()
        pairs.append(frame.filter(first="a", second="e").row(0, named=True))
    assert 0.92 < np.mean(inside) < 0.98
    assert np.isclose(np.mean([row["effect"] for row in pairs]), 0.3, atol=0.02)
    exact = estimate_effects(mutants(patterns, np.repeat(truth[:, None], 2, 1)))
    (row,) = exact.filter(first="a", second="e").to_dicts()
    assert np.allclose([row["given_intact"], row["given_thrown"]], [0.3, 0.6])


def test_two_seeds_are_enough_for_a_factorial():
    """Effects share their variance; a switch may change with the seed or not."""
    patterns, rng, hits, false, widths = mgu(), RNG(5), [], [], []
    for _ in range(12):
        y = noisy(patterns, rng, 2) + rng.normal(0, 0.05, (len(patterns), 2))
        frame = estimate_effects(mutants(patterns, y)).filter(pl.col("effect").is_not_null())
        hits += covered(frame, 0.0).tolist()
        false.append(frame["p"].min() < 0.05)
        widths.append(frame.filter(first="b", second="c")["effect_high"].item())
    assert 0.91 < np.mean(hits) < 0.99
    assert np.mean(false) < 0.17
    assert np.mean(widths) < 0.085  # of the upper end; with its own variance it is 0.2


@pytest.mark.parametrize("seeds", [2, 5])
def test_noise_shared_by_a_seed_does_not_widen_intervals(seeds):
    patterns, rng = full(3), RNG(4)
    y = noisy(patterns, rng, seeds, shared=0)
    calm, wild = (
        estimate_effects(mutants(patterns, y)),
        estimate_effects(mutants(patterns, y + 100 * rng.normal(size=seeds))),
    )
    for column in ("effect_low", "effect_high", "given_intact_low", "alone_high"):
        assert np.allclose(calm[column].drop_nulls(), wild[column].drop_nulls())


def test_one_seed_has_no_interval_and_a_missing_pair_no_estimate():
    frame = estimate_effects(mutants(mgu(), noisy(mgu(), RNG(5), 1)))
    assert frame["effect_low"].null_count() == len(frame)
    assert frame["p"].null_count() == len(frame)
    missing = frame.filter(first="a", second="d").row(0, named=True)
    assert (missing["count"], missing["effect"]) == (0, None)
    assert frame.filter(pl.col("count") > 0)["effect"].null_count() == 0
