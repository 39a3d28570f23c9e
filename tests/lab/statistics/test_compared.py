"""Verdicts: each has its word, none turns back, and rows outside the family change none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    Compared,
    Look,
    compared,
    looks,
    read_looks,
    reference_seeds,
    spend,
)
from tests.cases import cases

RNG = np.random.default_rng
OFFSETS = np.array([0, 0.2, -0.2, 0.001, 0.02, -0.02, 0.02])
NEXT = {
    UNDECIDED: {WORSE, WORSE_OPEN, NEGLIGIBLE, BETTER_OPEN, BETTER},
    WORSE_OPEN: {WORSE, NEGLIGIBLE},
    BETTER_OPEN: {BETTER, NEGLIGIBLE},
}
"""Verdict -> those that more data may make of it; the others are final."""


def losses(seeds=4, sd=0.002, offsets=OFFSETS):
    noise = RNG(0).normal(0, sd, (len(offsets), seeds))
    return offsets[:, None] + noise


def test_each_contrast_has_its_verdict():
    found = compared(losses(), 0).verdict.tolist()
    assert found == ["", WORSE, BETTER, NEGLIGIBLE, WORSE_OPEN, BETTER_OPEN, WORSE_OPEN]


def test_noise_leaves_every_contrast_undecided():
    found = compared(losses(sd=1.0), 0)
    assert (found.verdict[1:] == UNDECIDED).all()


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.01, 0.02, 0.03]), st.booleans())
def test_more_data_never_turn_a_verdict_back(seed, effect, planned):
    """Whatever the losses do: the second half may come from another distribution."""
    x = changing_losses(RNG(seed), effect)
    made = ()
    if planned:
        made = spend(looks(3, 24), contrasts=7)
    before = None
    before_lost = np.zeros(8, bool)
    for seeds in (3, 6, 12, 24):
        if not planned:
            made = spend([seeds], made)
        known = seen(x, seeds, made)
        now = compared(known, 0, looks=made)
        lost = diverges_more(known)
        assert not np.isin(now.verdict[lost], [BETTER, BETTER_OPEN, NEGLIGIBLE]).any()
        is_inside = (now.low <= now.mean) & (now.mean <= now.high)
        assert (is_inside | np.isnan(now.low)).all()
        if before is not None:
            free = ~lost & ~before_lost  # a count takes words back, and gives them back
            assert_goes_on(before, now, free)
        before = now
        before_lost = lost


def changing_losses(rng, effect):
    """Return losses (8, 24) whose second half may have another mean; some diverge."""
    sd = rng.choice([0.002, 0.01, 0.03])
    x = rng.normal(0, sd, (8, 24))
    x += effect * rng.normal(size=(8, 1))
    x[:, 12:] += rng.choice([0, 0.03]) * rng.normal(size=(8, 1))
    diverged = rng.random(x.shape) < rng.choice([0, 0.05])
    x[diverged] = np.inf
    return x


def seen(x, seeds, made):
    """Return the losses when the points have so many seeds, and the reference its own number."""
    of_reference = seeds
    for look in made:
        if look.seeds <= seeds:
            of_reference = max(of_reference, look.of_reference)
    known = x.copy()
    known[1:, seeds:] = np.nan
    known[0, of_reference:] = np.nan
    return known


def diverges_more(x):
    """Return which points have a greater share of diverged runs than the reference."""
    runs = ~np.isnan(x)
    share = np.isinf(x).sum(1) / runs.sum(1)
    return share > share[0]


def assert_goes_on(before, now, free):
    for word, later in zip(before.verdict[free], now.verdict[free], strict=True):
        assert word in ("", later) or later in NEXT.get(word, ())
    is_kept = (before.sign == 0) | (before.sign == now.sign)
    assert is_kept[free].all()


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.booleans())
def test_rows_outside_the_family_change_no_other_row(seed, offset, diverges):
    rng = RNG(seed)
    x = rng.normal(0, 0.02, (9, 4))
    x += 0.03 * rng.normal(size=(9, 1))
    family = np.arange(9) < 7
    before = compared(x, 0, family=family)
    x[7] = offset
    x[8] = offset + rng.normal(0, 5, 4)
    if diverges:
        x[8] = np.inf
    after = compared(x, 0, family=family)
    assert (after.verdict == before.verdict).all()
    assert (after.verdict[7:] == "").all()
    for name in ("mean", "low", "high", "p", "seeds_needed"):
        old = getattr(before, name)[:7]
        new = getattr(after, name)[:7]
        assert np.allclose(old, new, rtol=1e-8, atol=1e-12, equal_nan=True)


@pytest.fixture(params=[2, 3, 4, 6])
def apart(request):
    """Losses of points that differ clearly."""
    points = request.param
    noise = RNG(2).normal(0, 0.02, (points, 3))
    return noise + 0.1 * np.arange(points)[:, None]


def test_a_point_without_runs_changes_no_other_row(apart):
    before = compared(apart, 0)
    without_runs = [[np.nan] * 3]
    after = compared(np.append(apart, without_runs, 0), 0)
    assert after.verdict.tolist() == [*before.verdict, ""]
    for name in ("low", "high", "p"):
        old = getattr(before, name)
        new = getattr(after, name)
        assert new[:-1] == pytest.approx(old, nan_ok=True)


def test_one_seed_of_the_reference_decides_nothing(apart):
    # A single seed has no variance.
    apart[0, 1:] = np.nan
    found = compared(apart, 0)
    assert not found.verdict.any()
    assert np.isnan([found.low, found.high, found.p_raw]).all()


def test_a_single_look_spends_five_percent():
    assert spend([5]) == ((5, ERROR, 5),)


def test_without_stored_looks_there_is_a_single_one():
    assert read_looks([], 5) == spend([5])


@pytest.fixture
def five_plans():
    """The looks of five plans, each made after the one before."""
    made = ()
    for seeds in (3, 5, 10, 20, 40):
        # Each further plan has half of what is left of the reserve.
        made = spend([seeds], made)
    return made


def test_all_looks_together_spend_less_than_six_percent(five_plans):
    assert [look.seeds for look in five_plans] == [3, 5, 10, 20, 40]
    assert sum(look.error for look in five_plans) < ERROR + RESERVE


def test_a_later_plan_leaves_the_looks_that_were_made(five_plans):
    assert five_plans[0] == (3, ERROR, 3)


def test_a_plan_of_fewer_seeds_adds_no_look(five_plans):
    assert spend([3], five_plans) == five_plans


def test_the_seeds_of_a_schedule_double():
    assert looks(5, 12) == (5, 10, 12)


def test_a_schedule_spends_five_percent():
    total = sum(look.error for look in spend(looks(3, 50)))
    assert total == pytest.approx(ERROR)


def test_a_look_spends_in_proportion_to_its_new_seeds():
    half = pytest.approx(ERROR / 2)
    assert spend((3, 6)) == ((3, half, 3), (6, half, 6))


def test_a_look_after_others_spends_what_they_left():
    made = [Look(3, 0.02, 3)]
    assert spend([6], made)[-1].error == pytest.approx(0.03)


def test_the_looks_of_a_study_with_contrasts_give_the_reference_more_seeds():
    made = spend((3, 6), contrasts=11)
    # 3 √11 is 10, and twelve seeds show a failure; 6 √11 is 20.
    assert [look.of_reference for look in made] == [12, 20]


def test_stored_looks_are_read():
    stored = [[3, 0.05, 3], [5, 0.005, 5]]
    assert read_looks(stored, 5) == ((3, 0.05, 3), (5, 0.005, 5))


def test_stored_numbers_of_an_earlier_version_are_a_schedule():
    assert read_looks([5, 10], 5) == spend([5, 10])


@pytest.mark.parametrize("made", [(), spend([5, 10]), spend([10], spend([5]))])
def test_the_p_value_is_that_of_the_verdict(made):
    x = RNG(3).normal(0, 0.02, (12, 10))
    x += np.linspace(0, 0.06, 12)[:, None]
    assert_p_says_whether_a_sign_is_shown(compared(x, 0, looks=made))


def assert_p_says_whether_a_sign_is_shown(found: Compared):
    is_shown = found.sign != 0
    assert ((found.p < ERROR) == is_shown)[1:].all()


@settings(max_examples=80)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.2, 0.5]), st.booleans())
def test_word_p_and_intervals_agree(seed, lost, heavy):
    """Also where a far residual moves the differences, and where runs are counted."""
    rng = RNG(seed)
    if heavy:
        noise = rng.standard_t(1.5, (8, 12))
    else:
        noise = rng.normal(size=(8, 12))
    x = 0.02 * noise + rng.choice([0, 0.04], (8, 1))
    share = lost * rng.random((8, 1))
    x[rng.random(x.shape) < share] = np.inf
    found = compared(x, 0)
    assert_p_says_whether_a_sign_is_shown(found)
    undecided = (found.verdict == UNDECIDED) & np.isnan(found.p_diverged)
    most = found.half_corrected * (1 + 1e-9)
    assert (np.abs(found.mean) <= most)[undecided].all()
    excludes_zero = undecided & (found.low * found.high > 0)
    assert (found.p_raw[excludes_zero] < ERROR).all()


@pytest.fixture
def lossy():
    """Losses of points of which five runs, or three of five, diverge; the reference has 17 runs."""
    x = np.full((3, 17), np.nan)
    x[0] = RNG(1).normal(0, 0.01, 17)
    x[1, :5] = np.inf
    x[2, :5] = [0.5, 0.52, np.inf, np.inf, np.inf]
    return x


def test_a_greater_share_of_diverged_runs_is_worse(lossy):
    # Fisher's exact test compares 5 of 5 runs, and 3 of 5, with none of 17.
    found = compared(lossy, 0)
    assert found.verdict[1:].tolist() == [WORSE, WORSE]
    assert found.confirmed[1:].all()


def test_means_are_not_compared_where_most_runs_of_the_reference_have_none(lossy):
    # Nine of seventeen: less than half of the runs have a loss.
    lossy[0, :9] = np.inf
    assert compared(lossy, 0).verdict[2] == UNDECIDED


def test_exact_differences_are_decided_without_a_test():
    a_third = 1 / 3  # with all decimals: on a grid, equal losses are no exact ones
    means = np.array([[1.0], [1.2], [0.8], [1.01]])
    x = np.repeat(means + a_third, 3, axis=1)
    found = compared(x, 0, tuning_sd=np.full(4, 0.2))
    assert found.verdict[1:].tolist() == [WORSE, BETTER, NEGLIGIBLE]
    assert found.sign[1:].tolist() == [1, -1, 1]


@pytest.mark.parametrize("points", [2, 5])
def test_equal_seeds_on_a_grid_say_nothing_of_the_choice_of_a_setting(points):
    """Accuracies k/64: the point has a value of the reference, so it is no model of counts."""
    x = np.full((points, 3), 50 / 64)
    x[0, :2] = 48 / 64
    tuning_sd = np.full(points, 0.1)
    tuning_sd[0] = 0
    assert compared(x, 0).p_raw[1] < 0.22
    assert compared(x, 0, tuning_sd=tuning_sd).p_raw[1] > 0.7


@cases("lab/statistics/cases.toml", "reference_seeds", "seeds, contrasts, expected")
def test_the_reference_has_the_root_of_the_contrasts_times_the_seeds(seeds, contrasts, expected):
    assert reference_seeds(seeds, contrasts) == expected


@pytest.fixture
def eleven_contrasts():
    return RNG(5).normal(0, 0.02, (12, 80))


@pytest.fixture
def three_seeds_ended():
    return np.full(12, 3)


PLAN_OF_ELEVEN = spend(looks(3, 24), contrasts=11)


def test_a_look_waits_for_the_seeds_of_the_reference(eleven_contrasts, three_seeds_ended):
    waiting = compared(eleven_contrasts, 0, looks=PLAN_OF_ELEVEN, ended=three_seeds_ended)
    assert waiting.seeds.tolist() == [12] + [3] * 11
    assert (waiting.verdict == "").all()


def test_after_a_look_the_points_need_the_seeds_of_the_next(eleven_contrasts, three_seeds_ended):
    x = eleven_contrasts
    three_seeds_ended[0] = 12
    first = compared(x, 0, looks=PLAN_OF_ELEVEN, ended=three_seeds_ended)
    assert first.seeds.tolist() == [20] + [6] * 11
    difference = x[1:, :3].mean(1) - x[0, :12].mean()
    assert first.mean[1:] == pytest.approx(difference)
    assert (first.verdict[1:] == UNDECIDED).all()


def test_a_later_divergence_takes_back_what_is_not_worse():
    base = np.array([2.00, 2.01, 1.99, 2.00, 2.02, 1.98])
    x = np.full((4, 6), np.inf)
    x[0] = base
    x[1:, :3] = base[:3] - np.array([[0.5], [0.0], [-0.5]])
    made = spend(looks(3, 6))
    # A point that diverges more often is neither better nor negligible.
    three = compared(x[:, :3], 0, looks=made, margin=0.1)
    six = compared(x, 0, looks=made, margin=0.1)
    assert three.verdict[1:].tolist() == [BETTER, NEGLIGIBLE, WORSE]
    assert six.verdict[1:].tolist() == [UNDECIDED, UNDECIDED, WORSE]
    assert six.sign[1:].tolist() == [0, 0, 1]
    assert (six.p[1:] < ERROR).tolist() == [False, False, True]


STEPS = np.array([0, 0.01, 0.02, 0.05, 0.1, 0, 0, 0, 0])[:, None]
CONTINUOUS = RNG(6).normal(0, 0.02, (9, 6)) + STEPS
NUMBERS = {
    "continuous": CONTINUOUS,
    "on a grid": (64 * CONTINUOUS).round() / 64,
    "two points": CONTINUOUS[[0, 4]],
    # Equal, but for effects of the seeds.
    "equal pairs": np.array([[-4, 0, 3], [-2, 3, 8], [-6, -1, 3], [-5, -1, 2], [-2, -3, 1.0]]),
}


@pytest.mark.parametrize(("scale", "offset"), [(1e-9, 0), (1e9, 0), (1, 1e6), (64.0, -3)])
@pytest.mark.parametrize("numbers", NUMBERS)
def test_words_do_not_change_with_the_unit(scale, offset, numbers):
    x = NUMBERS[numbers]
    before = compared(x, 0)
    after = compared(scale * x + offset, 0, margin=scale * MARGIN)
    assert (after.verdict == before.verdict).all()
    assert after.p == pytest.approx(before.p, rel=1e-3, nan_ok=True)


@pytest.mark.parametrize(("margin", "most"), [(0.02, UNDECIDED), (0.06, NEGLIGIBLE)])
def test_the_interval_agrees_with_the_word(margin, most):
    x = RNG(7).normal(0, 0.02, (40, 6))
    x += np.linspace(-0.15, 0.15, 40)[:, None]
    x[0] = 0.02 * RNG(8).permutation([-1.4, -0.6, -0.2, 0.2, 0.6, 1.4])
    found = compared(x, 0, margin=margin)
    assert {WORSE, BETTER, WORSE_OPEN, BETTER_OPEN, most} <= {*found.verdict}
    bounds = {
        WORSE: (margin, np.inf),
        WORSE_OPEN: (0, np.inf),
        NEGLIGIBLE: (-margin, margin),
        BETTER_OPEN: (-np.inf, 0),
        BETTER: (-np.inf, -margin),
        UNDECIDED: (-np.inf, np.inf),
    }
    for point in range(1, 40):
        low, high = bounds[found.verdict[point]]
        assert low <= found.low[point] <= found.high[point] <= high


@pytest.fixture(params=["all", "none"])
def family(request):
    """The contrasts of a study, or rows outside of it."""
    if request.param == "none":
        return np.zeros(7, bool)
    return None


@pytest.fixture
def clear():
    """Five seeds of points whose verdicts the first three decide."""
    return losses(5, offsets=np.array([0, 0.3, -0.3, 0.3, 0.4, -0.2, 0.3]))


FIVE_AFTER_THREE = spend((5,), spend((3,)))


def after_three(x, family):
    return compared(x[:, :3], 0, family=family, looks=spend((3,)), ended=np.full(7, 3))


def test_seeds_added_after_the_verdicts_make_the_differences_better(clear, family):
    five = compared(clear, 0, family=family, looks=FIVE_AFTER_THREE, ended=np.full(7, 5))
    differences = (clear - clear[0]).mean(1)
    assert five.mean[1:] == pytest.approx(differences[1:])
    assert (five.verdict == after_three(clear, family).verdict).all()


def test_added_seeds_count_when_those_of_all_points_have_ended(clear, family):
    ended = np.array([5, 5, 5, 5, 5, 5, 4])
    five = compared(clear, 0, family=family, looks=FIVE_AFTER_THREE, ended=ended)
    assert (five.mean == after_three(clear, family).mean)[1:].all()


def test_a_look_does_not_wait_for_a_failed_run():
    x = losses(3)
    x[1, 2] = np.nan
    found = compared(x, 0, looks=spend((3, 6)), ended=np.full(7, 3))
    assert found.verdict[1] != ""


def test_a_look_waits_for_a_run_that_has_not_ended():
    ended = np.full(7, 3)
    ended[1] = 2
    found = compared(losses(3), 0, looks=spend((3, 6)), ended=ended)
    assert (found.verdict == "").all()


def table(seeds, *offsets, outlier=0.0):
    """Return points with these means and a standard deviation of 0.01."""
    x = RNG(4).normal(size=(len(offsets), seeds))
    x -= x.mean(1, keepdims=True)
    x *= 0.01 / x.std(1, ddof=1, keepdims=True)
    x[-1, -1] += outlier
    return x + np.array(offsets)[:, None]


def test_a_sign_is_confirmed_by_fresh_seeds_that_repeat_it():
    found = compared(table(8, 0.0, 0.05), 0)
    assert found.confirmed.tolist() == [False, True]


@pytest.mark.parametrize("half", [slice(None, 4), slice(4, None)])
def test_a_sign_that_half_of_the_seeds_do_not_show_is_not_confirmed(half):
    x = table(8, 0.0, 0.05)
    x[1, half] -= 0.04
    found = compared(x, 0)
    assert found.sign[1] == 1
    assert not found.confirmed[1]


def test_a_sign_far_beyond_the_worst_residual_needs_no_fresh_seeds():
    quiet = table(3, 0, 0.2, 0, 0, 0, 0)
    assert compared(quiet, 0).confirmed[1]
    assert not compared(quiet[:2], 0).confirmed[1], "two points share no noise"


def test_a_sign_within_the_worst_residual_needs_fresh_seeds():
    loud = compared(table(3, 0, 0.2, 0, 0, 0, 0, outlier=-0.15), 0)
    assert loud.sign[1] == 1
    assert not loud.confirmed[1]


def test_one_more_seed_as_bad_as_the_worst_of_the_study_takes_a_sign():
    """The point that is better has no residual of this size itself."""
    plain = table(4, 0, -0.045, 0, 0, 0, 0)
    far = table(4, 0, -0.045, 0, 0, 0, 0, outlier=0.5)
    far[-1] -= far[-1].mean()
    assert compared(plain, 0).sign[1] == -1
    assert compared(far, 0).sign[1] == 0


PLAN_OF_SIX = spend((4,), contrasts=6)


@pytest.fixture
def barely_shown():
    """Twenty seeds of six points; four of them show signs that are not confirmed."""
    x = np.full((7, 40), np.nan)
    noise = RNG(1).normal(0, 0.01, (7, 20))
    x[:, :20] = table(20, 0, *[0.03] * 6) + noise
    return x


@pytest.fixture
def first_look(barely_shown):
    ended = np.array([12] + [4] * 6)
    return compared(barely_shown, 0, looks=PLAN_OF_SIX, ended=ended)


def test_unconfirmed_points_and_the_reference_get_as_many_seeds_again(first_look):
    unconfirmed = (first_look.sign != 0) & ~first_look.confirmed
    assert unconfirmed.any()
    assert (first_look.seeds[unconfirmed] == 8).all()
    others = first_look.seeds[1:][~unconfirmed[1:]]
    assert (others == 4).all()
    deserved = reference_seeds(8, int(unconfirmed.sum()))
    assert first_look.seeds[0] == max(reference_seeds(4, 6), deserved)


def test_a_look_that_confirms_adds_no_sign_and_is_the_last_one(barely_shown, first_look):
    again = compared(barely_shown, 0, looks=PLAN_OF_SIX, ended=first_look.seeds)
    assert again.confirmed.sum() > first_look.confirmed.sum()
    assert (again.sign == first_look.sign).all()
    assert (again.seeds == first_look.seeds).all()
