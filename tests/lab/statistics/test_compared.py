"""Verdicts: each has its word, none turns back, and rows outside the family change none."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lmzoo.lab.statistics import compared as module
from lmzoo.lab.statistics.compared import (
    BETTER,
    BETTER_OPEN,
    ERROR,
    MARGIN,
    NEGLIGIBLE,
    RESERVE,
    UNDECIDED,
    WORSE,
    WORSE_OPEN,
    Look,
    compared,
    looks,
    read_looks,
    reference_seeds,
    spend,
)

RNG = np.random.default_rng
OFFSETS = np.array([0, 0.2, -0.2, 0.001, 0.02, -0.02, 0.02])
NEXT = {word: set() for word in (WORSE, BETTER, NEGLIGIBLE)} | {
    UNDECIDED: {WORSE, WORSE_OPEN, NEGLIGIBLE, BETTER_OPEN, BETTER},
    WORSE_OPEN: {WORSE, NEGLIGIBLE},
    BETTER_OPEN: {BETTER, NEGLIGIBLE},
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
    made = spend(looks(3, 24), contrasts=7) if planned else ()
    before, before_lost = None, np.zeros(8, bool)
    for n in (3, 6, 12, 24):
        made = made if planned else spend([n], made)
        known = np.where(np.arange(24) < n, x, np.nan)
        own = min(max(look.own for look in made if look.seeds <= n), 24)
        known[0] = np.where(np.arange(24) < max(own, n), x[0], np.nan)
        now = compared(known, 0, looks=made)
        runs = (~np.isnan(known)).sum(1)
        lost = np.isinf(known).sum(1) / runs
        lost = lost > lost[0]
        assert not (lost & np.isin(now.verdict, [BETTER, BETTER_OPEN, NEGLIGIBLE])).any()
        inside = np.isnan(now.low) | ((now.low <= now.mean) & (now.mean <= now.high))
        assert inside.all()
        if before is not None:
            free = ~lost & ~before_lost  # a count takes words back, and gives them back
            for a, b in zip(before.verdict[free], now.verdict[free], strict=True):
                assert a in ("", b) or b in NEXT[a]
            assert ((before.sign == 0) | (before.sign == now.sign))[free].all()
        before, before_lost = now, lost


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


@pytest.mark.parametrize("points", [2, 3, 4, 6])
def test_a_point_without_runs_changes_no_other_row_and_one_seed_of_the_reference_decides_none(
    points,
):
    x = RNG(2).normal(0, 0.02, (points, 3)) + 0.1 * np.arange(points)[:, None]
    before, after = compared(x, 0), compared(np.append(x, [[np.nan] * 3], 0), 0)
    assert after.verdict.tolist() == [*before.verdict, ""]
    for name in ("low", "high", "p"):
        assert getattr(after, name)[:-1] == pytest.approx(getattr(before, name), nan_ok=True)
    x[0, 1:] = np.nan
    alone = compared(x, 0)
    assert not alone.verdict.any()
    assert np.isnan([alone.low, alone.high, alone.p_raw]).all()


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
    assert spend((3, 6)) == ((3, pytest.approx(0.025), 3), (6, pytest.approx(0.025), 6))
    assert [look.own for look in spend((3, 6), contrasts=11)] == [12, 20]
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


def test_exact_differences_are_decided_without_a_test():
    x = np.array([[1.0] * 3, [1.2] * 3, [0.8] * 3, [1.01] * 3]) + 1 / 3  # with all decimals
    found = compared(x, 0, tuning_sd=np.full(4, 0.2))
    assert found.verdict[1:].tolist() == [WORSE, BETTER, NEGLIGIBLE]
    assert found.sign[1:].tolist() == [1, -1, 1]


@pytest.mark.parametrize("points", [2, 5])
def test_equal_seeds_on_a_grid_say_nothing_of_the_choice_of_a_setting(points):
    """Accuracies k/64: the point has a value of the reference, so it is no model of counts."""
    x = np.array([[0.75, 0.75, 0.78125], *[[0.78125] * 3] * (points - 1)])
    assert compared(x, 0).p_raw[1] < 0.22
    assert compared(x, 0, tuning_sd=0.1 * (np.arange(points) > 0)).p_raw[1] > 0.7


def test_the_reference_has_the_root_of_the_contrasts_times_the_seeds():
    assert [reference_seeds(n, 11) for n in (1, 2, 3, 5)] == [1, 8, 12, 17]
    assert [reference_seeds(n, 1) for n in (2, 5)] == [2, 5]
    x, made = RNG(5).normal(0, 0.02, (12, 80)), spend(looks(3, 24), contrasts=11)
    short = np.full(12, 3)
    assert compared(x, 0, looks=made, ended=short).seeds.tolist() == [12, *[3] * 11]
    assert (compared(x, 0, looks=made, ended=short).verdict == "").all()
    first = compared(x, 0, looks=made, ended=np.array([12, *[3] * 11]))
    assert (first.seeds == np.where(np.arange(12), 6, 20)).all()
    assert first.mean[1:] == pytest.approx(x[1:, :3].mean(1) - x[0, :12].mean())
    assert (first.verdict[1:] == UNDECIDED).all()


def test_only_the_nearest_undecided_point_gets_more_seeds():
    x, made = RNG(5).normal(0, 0.02, (12, 80)), spend(looks(3, 12), contrasts=11, nearest=1)
    x[3] += 0.03
    assert [look.own for look in made] == [12, 12, 12]
    ended = np.array([12, *[3] * 11])
    first = compared(x, 0, looks=made, ended=ended, nearest=1)
    assert (first.verdict[1:] == UNDECIDED).all()
    assert first.seeds[0] == 12
    assert np.flatnonzero(first.seeds[1:] > 3) + 1 == np.nanargmin(first.seeds_needed) == 3
    second = compared(x, 0, looks=made, ended=np.maximum(ended, first.seeds), nearest=1)
    assert second.seeds.sum() == 12 + 12 + 10 * 3  # the third look is for the same point
    found = compared(x, 0, looks=made, ended=np.maximum(ended, second.seeds), nearest=1)
    assert [found.verdict[3], *found.seeds[[0, 3]]] == [WORSE_OPEN, 12, 12]


def test_a_later_divergence_takes_back_what_is_not_worse():
    base = np.array([2.00, 2.01, 1.99, 2.00, 2.02, 1.98])
    points = [np.append(base[:3] - d, [np.inf] * 3) for d in (0.5, 0.0, -0.5)]
    made = spend(looks(3, 6))
    three = compared(np.array([base, *points])[:, :3], 0, looks=made, margin=0.1)
    assert three.verdict[1:].tolist() == [BETTER, NEGLIGIBLE, WORSE]
    six = compared(np.array([base, *points]), 0, looks=made, margin=0.1)
    assert six.verdict[1:].tolist() == [UNDECIDED, UNDECIDED, WORSE]
    assert six.sign[1:].tolist() == [0, 0, 1]
    assert (six.p[1:] < ERROR).tolist() == [False, False, True]


@pytest.mark.parametrize(("scale", "offset"), [(1e-9, 0), (1e9, 0), (1, 1e6), (64.0, -3)])
@pytest.mark.parametrize("numbers", ["continuous", "on a grid", "two points", "equal pairs"])
def test_words_do_not_change_with_the_unit(scale, offset, numbers):
    x = RNG(6).normal(0, 0.02, (9, 6)) + np.array([0, 0.01, 0.02, 0.05, 0.1, 0, 0, 0, 0])[:, None]
    equal = [[-4, 0, 3], [-2, 3, 8], [-6, -1, 3], [-5, -1, 2], [-2, -3, 1.0]]  # but for seeds
    kinds = {"continuous": x, "on a grid": (64 * x).round() / 64, "two points": x[[0, 4]]}
    x = {**kinds, "equal pairs": np.array(equal)}[numbers]
    before = compared(x, 0)
    after = compared(scale * x + offset, 0, margin=scale * MARGIN)
    assert (after.verdict == before.verdict).all()
    assert after.p == pytest.approx(before.p, rel=1e-3, nan_ok=True)


@pytest.mark.parametrize("margin", [0.02, 0.06])
def test_the_interval_agrees_with_the_word(margin):
    x = RNG(7).normal(0, 0.02, (40, 6)) + np.linspace(-0.15, 0.15, 40)[:, None]
    x[0] = 0.02 * RNG(8).permutation([-1.4, -0.6, -0.2, 0.2, 0.6, 1.4])
    found = compared(x, 0, margin=margin)
    assert {*found.verdict} > {WORSE, BETTER, UNDECIDED if margin == 0.02 else NEGLIGIBLE}
    for word, low, high in zip(found.verdict[1:], found.low[1:], found.high[1:], strict=True):
        assert word != NEGLIGIBLE or -margin <= low <= high <= margin
        assert word not in (WORSE, WORSE_OPEN) or low >= (margin if word == WORSE else 0)
        assert word not in (BETTER, BETTER_OPEN) or high <= (-margin if word == BETTER else 0)


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


@pytest.mark.parametrize(("p", "is_shared"), [(0.03, False), (0.07, True)])
@pytest.mark.parametrize("word", ["negligible", "worse"])
def test_a_word_of_three_seeds_is_shared_unless_welchs_test_shows_it(word, p, is_shared):
    """One-sided for a difference below the margin, two-sided for a sign."""
    x = np.array([[0.0, 0.1, 0.2], [0.0, 0.3, 0.6]])
    error = np.sqrt((0.1**2 + 0.3**2) / 3)
    freedom = error**4 / ((0.1**2 / 3) ** 2 / 2 + (0.3**2 / 3) ** 2 / 2)
    size = error * (stats.t.isf(p / 2, freedom) if word == "worse" else 0.5)
    x[1] += size - x[1].mean() + x[0].mean()
    margin = size + error * stats.t.isf(p, freedom)
    c, words = SimpleNamespace(paired=False), np.array(["", word])
    found = module._shared(c, x, np.zeros(2, int), words, margin)
    assert found.tolist() == [False, is_shared]
