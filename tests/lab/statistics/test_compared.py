"""Verdicts: each has its word, none turns back, and rows outside the family change none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lmzoo.lab.statistics.compared import (
    BETTER,
    BETTER_OPEN,
    ERROR,
    NEGLIGIBLE,
    RESERVE,
    UNDECIDED,
    WORSE,
    WORSE_OPEN,
    Look,
    compared,
    looks,
    read_looks,
    spend,
)

RNG = np.random.default_rng
OFFSETS = np.array([0, 0.2, -0.2, 0.001, 0.02, -0.02, 0.02])
NEXT = {
    UNDECIDED: {WORSE, WORSE_OPEN, NEGLIGIBLE, BETTER_OPEN, BETTER},
    WORSE_OPEN: {WORSE, NEGLIGIBLE},
    BETTER_OPEN: {BETTER, NEGLIGIBLE},
    WORSE: set(),
    BETTER: set(),
    NEGLIGIBLE: set(),
}
"""Verdict -> those that more data may make of it."""


def losses(seeds=4, sd=0.002, offsets=OFFSETS):
    return offsets[:, None] + RNG(0).normal(0, sd, (len(offsets), seeds))


def test_each_contrast_has_its_verdict():
    found = compared(losses(), 0).verdict.tolist()
    assert found == ["", WORSE, BETTER, NEGLIGIBLE, WORSE_OPEN, BETTER_OPEN, WORSE_OPEN]
    assert (compared(losses(sd=1.0), 0).verdict[1:] == UNDECIDED).all()


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.01, 0.02, 0.03]), st.booleans())
def test_more_data_never_turn_a_verdict_back(seed, effect, planned):
    """Whatever the losses do: the second half may come from another distribution."""
    rng = RNG(seed)
    sd = rng.choice([0.002, 0.01, 0.03])
    x = rng.normal(0, sd, (8, 24)) + effect * rng.normal(size=(8, 1))
    x[:, 12:] += rng.choice([0, 0.03]) * rng.normal(size=(8, 1))
    x[rng.random(x.shape) < rng.choice([0, 0.05])] = np.inf
    made = spend(looks(3, 24)) if planned else ()
    before, own = None, 0
    for n in (3, 6, 12, 24):
        made = made if planned else spend([n], made)
        known = np.where(np.arange(24) < n, x, np.nan)
        if planned and before is not None:  # the reference has the seeds that it needs
            needed = next(look.own for look in made if look.seeds == n) if before.noisy[0] else n
            own = max(own, needed)  # also where it is no longer noisy, it keeps its seeds
            known[0] = np.where(np.arange(24) < own, x[0], np.nan)
        now = compared(known, 0, looks=made)
        if before is not None:
            lost = np.isinf(known[:, :n]).sum(1) > np.isinf(known[0, :n]).sum()
            for a, b, more in zip(before.verdict[1:], now.verdict[1:], lost[1:], strict=True):
                assert a in ("", b) or b in NEXT[a] or more  # it diverges more often now
            assert ((before.sign == 0) | (before.sign == now.sign)).all()
            known = ~np.isnan(before.low)
            assert (now.low[known] >= before.low[known] - 1e-12).all()
            assert (now.high[known] <= before.high[known] + 1e-12).all()
        before = now


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.booleans())
def test_rows_outside_the_family_change_no_other_row(seed, offset, diverges):
    rng = RNG(seed)
    x = rng.normal(0, 0.02, (9, 4)) + 0.03 * rng.normal(size=(9, 1))
    asked = np.arange(9) < 7
    before = compared(x, 0, family=asked)
    x[7] = offset
    x[8] = offset + rng.normal(0, 5, 4)
    x[8, : 4 * diverges] = np.inf
    after = compared(x, 0, family=asked)
    assert (after.verdict == before.verdict).all()
    assert (after.verdict[7:] == "").all()
    for name in ("mean", "low", "high", "p", "seeds_needed"):
        own, others = getattr(before, name)[:7], getattr(after, name)[:7]
        assert np.allclose(own, others, rtol=1e-8, atol=1e-12, equal_nan=True)


def test_a_single_look_costs_nothing_and_all_are_below_six_percent():
    assert spend([5]) == ((5, ERROR, 5),)
    made = ()
    for n in (3, 5, 10, 20, 40):
        made = spend([n], made)
    assert [look.seeds for look in made] == [3, 5, 10, 20, 40]
    assert made[0] == (3, ERROR, 3)
    assert sum(look.error for look in made) < ERROR + RESERVE
    assert np.isclose(sum(look.error for look in spend(looks(3, 50))), ERROR)
    assert spend([3], made) == made
    assert spend((3, 6)) == ((3, pytest.approx(0.025), 12), (6, pytest.approx(0.025), 24))
    assert spend([6], [Look(3, 0.02, 3)])[-1].error == pytest.approx(0.03)
    assert read_looks([[3, 0.05, 3], [5, 0.005, 5]], 5) == ((3, 0.05, 3), (5, 0.005, 5))
    assert read_looks([5, 10], 5) == spend([5, 10])  # of an earlier version
    assert read_looks([], 5) == spend([5])
    assert looks(5, 12) == (5, 10, 12)


def test_the_p_value_is_that_of_the_verdict():
    x = RNG(3).normal(0, 0.02, (12, 10)) + np.linspace(0, 0.06, 12)[:, None]
    for made in ((), spend([5, 10]), spend([10], spend([5]))):
        found = compared(x, 0, looks=made)
        assert ((found.p < ERROR) == (found.sign != 0))[1:].all()


@pytest.mark.parametrize("row", [0, 1])
def test_one_diverged_seed_of_five_proves_nothing(row):
    x = RNG(1).normal(0, 0.02, (12, 5))
    x[row, 2] = np.inf
    found = compared(x, 0)
    assert not found.sign.any()
    assert found.p_diverged[1] == pytest.approx(0.5)


def test_divergence_is_tested_by_counts_alone():
    x = RNG(2).normal(0, 0.02, (8, 6))
    before = compared(x, 0)
    x[1] = np.inf
    x[2, 0] = np.inf
    found = compared(x, 0)
    assert found.verdict[1] == WORSE
    exact = stats.fisher_exact([[6, 0], [0, 6]], alternative="greater").pvalue
    assert found.p_diverged[1] == pytest.approx(exact)
    assert np.allclose(found.mean[3:], before.mean[3:])
    x[2] -= 1.0
    assert compared(x, 0).verdict[2] == UNDECIDED  # never better, nor negligible


def test_exact_differences_are_decided_without_a_test():
    x = np.array([[1.0] * 3, [1.2] * 3, [0.8] * 3, [1.01] * 3]) + 1 / 3  # with all decimals
    found = compared(x, 0, tuning_sd=np.full(4, 0.2))
    assert found.verdict[1:].tolist() == [WORSE, BETTER, NEGLIGIBLE]
    assert found.sign[1:].tolist() == [1, -1, 1]


def test_two_seeds_say_little_and_a_noisy_reference_is_marked():
    x = losses(2, 0.03)
    assert (compared(x, 0).verdict[1:] == UNDECIDED).all()
    x = RNG(5).normal(0, 0.02, (12, 5))
    x[0] *= 20
    found = compared(x, 0)
    assert found.noisy.tolist() == [True] + [False] * 11
    three = compared(losses(3, offsets=np.array([0, 0.004, 0, 0, 0, 0, 0])), 0)
    assert three.verdict[1] in (NEGLIGIBLE, WORSE_OPEN)


def test_a_noisy_reference_gets_its_seeds_first():
    x = RNG(5).normal(0, 0.02, (12, 24))
    x[0] *= 20
    made = spend(looks(3, 24))
    first = compared(x[:, :3], 0, looks=made, ended=np.full(12, 3))
    assert first.noisy[0]
    assert first.seeds.tolist() == [24, *[6] * 11]
    x[1:, 6:] = np.nan
    with_own = compared(x, 0, looks=made[:2])
    x[0, 6:] = np.nan
    without = compared(x, 0, looks=made[:2])
    assert (with_own.high - with_own.low)[1] < 0.75 * (without.high - without.low)[1]


def test_only_undecided_points_and_the_reference_get_more_seeds():
    x = losses(3)
    x[5] += RNG(1).normal(0, 0.3, 3)
    found = compared(x, 0, looks=spend((3, 6, 12)), ended=np.full(7, 3))
    assert found.verdict[1] == WORSE
    assert found.seeds[1] == 3
    assert (found.seeds[1:] == np.where(found.verdict == UNDECIDED, 6, 3)[1:]).all()
    assert found.seeds[0] == 6


@pytest.mark.parametrize("family", [None, np.zeros(7, bool)])
def test_seeds_added_after_the_verdicts_still_make_the_differences_better(family):
    x = losses(5, offsets=np.array([0, 0.3, -0.3, 0.3, 0.4, -0.2, 0.3]))
    three = compared(x[:, :3], 0, family=family, looks=spend((3,)), ended=np.full(7, 3))
    made = spend((5,), spend((3,)))
    five = compared(x, 0, family=family, looks=made, ended=np.full(7, 5))
    assert five.mean[1:] == pytest.approx((x - x[0]).mean(1)[1:])
    assert (five.verdict == three.verdict).all()
    ended = np.array([5, 5, 5, 5, 5, 5, 4])
    assert (compared(x, 0, family=family, looks=made, ended=ended).mean == three.mean)[1:].all()


def test_a_look_waits_for_all_runs_but_not_for_failed_ones():
    x, made = losses(3), spend((3, 6))
    x[1, 2] = np.nan
    ended = np.full(7, 3)
    assert compared(x, 0, looks=made, ended=ended).verdict[1] != ""
    ended[1] = 2
    assert (compared(x, 0, looks=made, ended=ended).verdict == "").all()
