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
from tests.cases import cases, rows
from tests.lab.statistics.normal_draws import normal

RNG = np.random.default_rng
CASES = "lab/statistics/cases.toml"
OFFSETS = rows(CASES, "offsets")
NEXT = {
    UNDECIDED: {WORSE, WORSE_OPEN, NEGLIGIBLE, BETTER_OPEN, BETTER},
    WORSE_OPEN: {WORSE, NEGLIGIBLE},
    BETTER_OPEN: {BETTER, NEGLIGIBLE},
}
"""Verdict -> those that more data may make of it; the others are final."""


def losses(seeds=4, sd=0.002, offsets=OFFSETS):
    """Return losses of points with these means."""
    noise = sd * normal(0, len(offsets), seeds)
    return noise + column(offsets)


def column(values):
    return np.reshape(values, (-1, 1))


def words(found: Compared) -> str:
    """Return the verdicts of the points after the reference."""
    return " ".join(found.verdict[1:])


def test_each_contrast_has_its_verdict():
    found = compared(losses(), 0)
    expected = "worse better negligible worse-open better-open worse-open"
    assert words(found) == expected


def test_noise_leaves_every_contrast_undecided():
    # Fifty times the margin of 0.02.
    found = compared(losses(sd=1.0), 0)
    assert set(found.verdict[1:]) == {UNDECIDED}


SEEDS = st.integers(0, 10**6)


@settings(max_examples=60)
@given(SEEDS, st.sampled_from([0.0, 0.01, 0.02, 0.03]), st.booleans())
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
        of_lost = set(now.verdict[lost])
        assert not of_lost & {BETTER, BETTER_OPEN, NEGLIGIBLE}
        has_interval = ~np.isnan(now.low)
        from_low = (now.mean - now.low)[has_interval]
        to_high = (now.high - now.mean)[has_interval]
        assert (from_low >= 0).all()
        assert (to_high >= 0).all()
        if before is not None:
            # A count of diverged runs takes words back, and gives them back.
            free = ~lost & ~before_lost
            assert_goes_on(before, now, free)
        before = now
        before_lost = lost


def changing_losses(rng, effect):
    """Return losses (8, 24) whose second half may have another mean; some diverge."""
    sd = rng.choice([0.002, 0.01, 0.03])
    x = rng.normal(0, sd, (8, 24))
    of_points = rng.normal(size=(8, 1))
    x += effect * of_points
    change = rng.choice([0, 0.03])
    of_second_half = rng.normal(size=(8, 1))
    x[:, 12:] += change * of_second_half
    draws = rng.random(x.shape)
    share = rng.choice([0, 0.05])
    x[draws < share] = np.inf
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
    runs = np.sum(~np.isnan(x), 1)
    diverged = np.sum(np.isinf(x), 1)
    share = diverged / runs
    return share > share[0]


def assert_goes_on(before, now, free):
    words_before = before.verdict[free]
    words_now = now.verdict[free]
    for word, later in zip(words_before, words_now, strict=True):
        if word not in ("", later):
            assert later in NEXT[word]
    had_sign = free & (before.sign != 0)
    signs_before = before.sign[had_sign]
    assert (signs_before == now.sign[had_sign]).all()


@settings(max_examples=30)
@given(SEEDS, st.floats(-3, 3), st.booleans())
def test_rows_outside_the_family_change_no_other_row(seed, offset, diverges):
    rng = RNG(seed)
    x = rng.normal(0, 0.02, (9, 4))
    effects = rng.normal(size=(9, 1))
    x += 0.03 * effects
    family = np.arange(9) < 7
    before = compared(x, 0, family=family)
    x[7] = offset
    x[8] = offset + rng.normal(0, 5, 4)
    if diverges:
        x[8] = np.inf
    after = compared(x, 0, family=family)
    assert words(after) == words(before)
    assert not after.verdict[7:].any()
    for name in ("mean", "low", "high", "p", "seeds_needed"):
        old = getattr(before, name)[:7]
        new = getattr(after, name)[:7]
        np.testing.assert_allclose(new, old, rtol=1e-8, atol=1e-12)


@pytest.fixture(params=[2, 3, 4, 6])
def apart(request):
    """Losses of points that differ clearly."""
    points = request.param
    # Neighbours differ by five standard deviations of the noise.
    means = 0.1 * np.arange(points)
    noise = 0.02 * normal(2, points, 3)
    return noise + column(means)


def test_a_point_without_runs_changes_no_other_row(apart):
    before = compared(apart, 0)
    without_runs = [[np.nan] * 3]
    # A study whose last point has not begun.
    with_one_more = np.append(apart, without_runs, 0)
    after = compared(with_one_more, 0)
    assert words(after) == f"{words(before)} "
    for name in ("low", "high", "p"):
        old = getattr(before, name)
        *new, _ = getattr(after, name)
        assert new == pytest.approx(old, nan_ok=True)


def test_one_seed_of_the_reference_decides_nothing(apart):
    # A single seed has no variance.
    apart[0, 1:] = np.nan
    found = compared(apart, 0)
    assert not found.verdict.any()
    for numbers in (found.low, found.high, found.p_raw):
        assert np.isnan(numbers).all()


def test_a_single_look_spends_five_percent():
    (look,) = spend([5])
    assert look == (5, ERROR, 5)


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
    seeds, errors, _ = zip(*five_plans, strict=True)
    assert seeds == (3, 5, 10, 20, 40)
    assert sum(errors) < ERROR + RESERVE


def test_a_later_plan_leaves_the_looks_that_were_made(five_plans):
    assert five_plans[0] == (3, ERROR, 3)


def test_a_plan_of_fewer_seeds_adds_no_look(five_plans):
    # The looks of five plans are at 3 seeds and at more.
    assert spend([3], five_plans) == five_plans


def test_the_seeds_of_a_schedule_double():
    assert looks(5, 12) == (5, 10, 12)


def test_a_schedule_spends_five_percent():
    schedule = spend(looks(3, 50))
    total = sum(look.error for look in schedule)
    assert total == pytest.approx(ERROR)


def test_a_look_spends_in_proportion_to_its_new_seeds():
    # Three seeds, and three more.
    three, six = spend((3, 6))
    half = pytest.approx(ERROR / 2)
    assert three == (3, half, 3)
    assert six == (6, half, 6)


def test_a_look_after_others_spends_what_they_left():
    # Of 5 % for the first plan, 3 % are left.
    made = [Look(3, 0.02, 3)]
    *_, last = spend([6], made)
    assert last.error == pytest.approx(0.03)


def test_the_looks_of_a_study_with_contrasts_give_the_reference_more_seeds():
    three, six = spend((3, 6), contrasts=11)
    # 3 √11 is 10, and twelve seeds show a failure; 6 √11 is 20.
    assert three.of_reference == 12
    assert six.of_reference == 20


def test_stored_looks_are_read():
    stored = [[3, 0.05, 3], [5, 0.005, 5]]
    first, second = read_looks(stored, 5)
    assert first == (3, 0.05, 3)
    assert second == (5, 0.005, 5)


def test_stored_numbers_of_an_earlier_version_are_a_schedule():
    schedule = [5, 10]
    assert read_looks(schedule, 5) == spend(schedule)


# One look of each plan; the second one has half of the reserve.
TWO_PLANS = spend([10], spend([5]))


@pytest.mark.parametrize("made", [(), spend([5, 10]), TWO_PLANS])
def test_the_p_value_is_that_of_the_verdict(made):
    # Differences up to three standard deviations of the noise.
    noise = 0.02 * normal(3, 12, 10)
    means = np.linspace(0, 0.06, 12)
    found = compared(noise + column(means), 0, looks=made)
    assert_p_says_whether_a_sign_is_shown(found)


def assert_p_says_whether_a_sign_is_shown(found: Compared):
    is_shown = found.sign != 0
    is_small = found.p < ERROR
    # The first row is the reference.
    assert (is_small == is_shown)[1:].all()


@settings(max_examples=80)
@given(SEEDS, st.sampled_from([0.0, 0.2, 0.5]), st.booleans())
def test_word_p_and_intervals_agree(seed, lost, heavy):
    """Also where a far residual moves the differences, and where runs are counted."""
    rng = RNG(seed)
    if heavy:
        # Fewer than two degrees of freedom: the variance is infinite.
        noise = rng.standard_t(1.5, (8, 12))
    else:
        noise = rng.normal(size=(8, 12))
    means = rng.choice([0, 0.04], (8, 1))
    x = 0.02 * noise + means
    share = lost * rng.random((8, 1))
    draws = rng.random(x.shape)
    x[draws < share] = np.inf
    found = compared(x, 0)
    assert_p_says_whether_a_sign_is_shown(found)
    undecided = found.verdict == UNDECIDED
    undecided &= np.isnan(found.p_diverged)
    # The bound, but for rounding.
    most = found.half_corrected * (1 + 1e-9)
    sizes = np.abs(found.mean)
    assert (sizes <= most)[undecided].all()
    excludes_zero = found.low * found.high > 0
    p = found.p_raw[undecided & excludes_zero]
    assert (p < ERROR).all()


@pytest.fixture
def lossy():
    """Losses of points of which five runs, or three of five, diverge; the reference has 17 runs."""
    x = np.full((3, 17), np.nan)
    x[0] = 0.01 * normal(1, 17)
    x[1, :5] = np.inf
    x[2, :2] = [0.5, 0.52]
    x[2, 2:5] = np.inf
    return x


def test_a_greater_share_of_diverged_runs_is_worse(lossy):
    # Fisher's exact test compares 5 of 5 runs, and 3 of 5, with none of 17.
    found = compared(lossy, 0)
    assert words(found) == "worse worse"
    assert found.confirmed[1:].all()


def test_the_interval_of_a_point_that_diverged_runs_make_worse_ends_at_0(lossy):
    # Eight of twelve runs diverge; the mean of the others is barely above that of the reference.
    x = np.full((2, 17), np.nan)
    x[0] = lossy[0]
    x[1, :8] = np.inf
    x[1, 8:12] = [0.02, -0.01, 0, 0.02]
    found = compared(x, 0, margin=MARGIN)
    assert words(found) == WORSE
    assert found.mean[1] < MARGIN
    assert found.low[1] == 0


def test_means_are_not_compared_where_most_runs_of_the_reference_have_none(lossy):
    # Nine of seventeen: less than half of the runs have a loss.
    lossy[0, :9] = np.inf
    found = compared(lossy, 0)
    assert found.verdict[2] == UNDECIDED


def test_exact_differences_are_decided_without_a_test():
    # All decimals of a third: on a grid, equal losses are no exact ones.
    means = column([1.0, 1.2, 0.8, 1.01]) + 1 / 3
    x = np.repeat(means, 3, axis=1)
    tuning_sd = np.full(4, 0.2)
    found = compared(x, 0, tuning_sd=tuning_sd)
    assert words(found) == "worse better negligible"
    assert found.sign.tolist() == [0, 1, -1, 1]


@pytest.mark.parametrize("points", [2, 5])
def test_equal_seeds_on_a_grid_say_nothing_of_the_choice_of_a_setting(points):
    """Accuracies k/64: the point has a value of the reference, so it is no model of counts."""
    x = np.full((points, 3), 50 / 64)
    x[0, :2] = 48 / 64
    tuning_sd = np.full(points, 0.1)
    tuning_sd[0] = 0
    # Without a tuning, and with one whose error is larger than the difference.
    alike = compared(x, 0)
    tuned = compared(x, 0, tuning_sd=tuning_sd)
    assert alike.p_raw[1] < 0.22
    assert tuned.p_raw[1] > 0.7


@cases(CASES, "reference_seeds", "seeds, contrasts, expected")
def test_the_reference_has_the_root_of_the_contrasts_times_the_seeds(seeds, contrasts, expected):
    assert reference_seeds(seeds, contrasts) == expected


@pytest.fixture
def eleven_contrasts():
    return 0.02 * normal(5, 12, 80)


@pytest.fixture
def three_seeds_ended():
    return np.full(12, 3)


PLAN_OF_ELEVEN = spend(looks(3, 24), contrasts=11)


def test_a_look_waits_for_the_seeds_of_the_reference(eleven_contrasts, three_seeds_ended):
    waiting = compared(eleven_contrasts, 0, looks=PLAN_OF_ELEVEN, ended=three_seeds_ended)
    assert waiting.seeds.tolist() == [12] + [3] * 11
    assert not waiting.verdict.any()


def test_after_a_look_the_points_need_the_seeds_of_the_next(eleven_contrasts, three_seeds_ended):
    x = eleven_contrasts
    three_seeds_ended[0] = 12
    first = compared(x, 0, looks=PLAN_OF_ELEVEN, ended=three_seeds_ended)
    assert first.seeds.tolist() == [20] + [6] * 11
    of_points = x[1:, :3].mean(1)
    of_reference = x[0, :12].mean()
    assert first.mean[1:] == pytest.approx(of_points - of_reference)
    assert set(first.verdict[1:]) == {UNDECIDED}


def test_a_later_divergence_takes_back_what_is_not_worse():
    base = 2 + np.array([0.00, 0.01, -0.01, 0.00, 0.02, -0.02])
    x = np.full((4, 6), np.inf)
    # A point that diverges has losses of three seeds only.
    x[0] = base
    differences = column([-0.5, 0.0, 0.5])
    x[1:, :3] = base[:3] + differences
    made = spend(looks(3, 6))
    # A point that diverges more often is neither better nor negligible.
    first_seeds = x[:, :3]
    three = compared(first_seeds, 0, looks=made, margin=0.1)
    six = compared(x, 0, looks=made, margin=0.1)
    assert words(three) == "better negligible worse"
    assert words(six) == "undecided undecided worse"
    assert six.sign.tolist() == [0, 0, 0, 1]
    assert_p_says_whether_a_sign_is_shown(six)


NOISE = 0.02 * normal(6, 9, 6)
CONTINUOUS = NOISE + column(rows(CASES, "steps"))
NUMBERS = {
    "continuous": CONTINUOUS,
    "on a grid": np.round(64 * CONTINUOUS) / 64,
    "two points": CONTINUOUS[[0, 4]],
    # Equal, but for effects of the seeds.
    "equal pairs": np.array(rows(CASES, "equal_pairs")),
}


@cases(CASES, "units", "scale, offset")
@pytest.mark.parametrize("numbers", NUMBERS)
def test_words_do_not_change_with_the_unit(scale, offset, numbers):
    x = NUMBERS[numbers]
    before = compared(x, 0)
    in_unit = scale * x + offset
    after = compared(in_unit, 0, margin=scale * MARGIN)
    assert words(after) == words(before)
    assert after.p == pytest.approx(before.p, rel=1e-3, nan_ok=True)


@pytest.mark.parametrize(("margin", "most"), [(0.02, UNDECIDED), (0.06, NEGLIGIBLE)])
def test_the_interval_agrees_with_the_word(margin, most):
    # Means from -0.15 to 0.15: every verdict is found.
    noise = 0.02 * normal(7, 40, 6)
    means = np.linspace(-0.15, 0.15, 40)
    x = noise + column(means)
    of_reference = rows(CASES, "of_reference")
    x[0] = 0.02 * RNG(8).permutation(of_reference)
    found = compared(x, 0, margin=margin)
    said = set(found.verdict)
    assert said >= {WORSE, BETTER, WORSE_OPEN, BETTER_OPEN, most}
    bounds = {
        WORSE: (margin, np.inf),
        WORSE_OPEN: (0, np.inf),
        NEGLIGIBLE: (-margin, margin),
        BETTER_OPEN: (-np.inf, 0),
        BETTER: (-np.inf, -margin),
        UNDECIDED: (-np.inf, np.inf),
    }
    points = zip(found.verdict, found.low, found.high, strict=True)
    next(points)  # the reference
    for word, low, high in points:
        least, most = bounds[word]
        assert least <= low <= high <= most


@pytest.fixture(params=["all", "none"])
def family(request):
    """The contrasts of a study, or rows outside of it."""
    if request.param == "none":
        return np.zeros(7, bool)
    return None


@pytest.fixture
def clear():
    """Five seeds of points whose verdicts the first three decide."""
    return losses(5, offsets=rows(CASES, "clear_offsets"))


THREE = spend((3,))
FIVE_AFTER_THREE = spend((5,), THREE)


@pytest.fixture
def after_three(clear, family):
    """What the first look says."""
    ended = np.full(7, 3)
    first_seeds = clear[:, :3]
    return compared(first_seeds, 0, family=family, looks=THREE, ended=ended)


def test_seeds_added_after_the_verdicts_make_the_differences_better(clear, family, after_three):
    ended = np.full(7, 5)
    five = compared(clear, 0, family=family, looks=FIVE_AFTER_THREE, ended=ended)
    differences = clear[1:] - clear[0]
    expected = differences.mean(1)
    assert five.mean[1:] == pytest.approx(expected)
    assert words(five) == words(after_three)


def test_added_seeds_count_when_those_of_all_points_have_ended(clear, family, after_three):
    ended = np.full(7, 5)
    ended[6] = 4
    five = compared(clear, 0, family=family, looks=FIVE_AFTER_THREE, ended=ended)
    is_equal = five.mean == after_three.mean
    assert is_equal[1:].all()


THREE_AND_SIX = spend((3, 6))


def test_a_look_does_not_wait_for_a_failed_run():
    x = losses(3)
    x[1, 2] = np.nan
    ended = np.full(7, 3)
    found = compared(x, 0, looks=THREE_AND_SIX, ended=ended)
    assert found.verdict[1] != ""


def test_a_look_waits_for_a_run_that_has_not_ended():
    ended = np.full(7, 3)
    ended[1] = 2
    found = compared(losses(3), 0, looks=THREE_AND_SIX, ended=ended)
    assert not found.verdict.any()


def table(seeds, *offsets, outlier=0.0):
    """Return points with these means and a standard deviation of 0.01."""
    # Means and deviations of numbers that are only drawn would differ from these.
    x = normal(4, len(offsets), seeds)
    x -= x.mean(1, keepdims=True)
    sd = x.std(1, ddof=1, keepdims=True)
    x *= 0.01 / sd
    x[-1, -1] += outlier
    return x + column(offsets)


def test_a_sign_is_confirmed_by_fresh_seeds_that_repeat_it():
    found = compared(table(8, 0.0, 0.05), 0)
    assert found.confirmed.tolist() == [False, True]


@pytest.mark.parametrize("begin", [0, 4])
def test_a_sign_that_half_of_the_seeds_do_not_show_is_not_confirmed(begin):
    x = table(8, 0.0, 0.05)
    # In this half the difference is 0.01, one standard deviation.
    x[1, begin : begin + 4] -= 0.04
    found = compared(x, 0)
    assert found.sign[1] == 1
    assert not found.confirmed[1]


def one_differs(seeds, offset, outlier=0.0):
    """Return six points, of which the second one differs, and the last one has an outlier."""
    return table(seeds, 0, offset, 0, 0, 0, 0, outlier=outlier)


def test_a_sign_far_beyond_the_worst_residual_needs_no_fresh_seeds():
    quiet = one_differs(3, 0.2)
    of_six = compared(quiet, 0)
    of_two = compared(quiet[:2], 0)
    assert of_six.confirmed[1]
    assert not of_two.confirmed[1], "two points share no noise"


def test_a_sign_within_the_worst_residual_needs_fresh_seeds():
    x = one_differs(3, 0.2, outlier=-0.15)
    loud = compared(x, 0)
    assert loud.sign[1] == 1
    assert not loud.confirmed[1]


def test_one_more_seed_as_bad_as_the_worst_of_the_study_takes_a_sign():
    """The point that is better has no residual of this size itself."""
    plain = one_differs(4, -0.045)
    far = one_differs(4, -0.045, outlier=0.5)
    # The outlier does not move the mean of its point.
    far[-1] -= far[-1].mean()
    assert compared(plain, 0).sign[1] == -1
    assert compared(far, 0).sign[1] == 0


PLAN_OF_SIX = spend((4,), contrasts=6)


@pytest.fixture
def barely_shown():
    """Twenty seeds of six points; four of them show signs that are not confirmed."""
    x = np.full((7, 40), np.nan)
    six = [0.03] * 6
    noise = 0.01 * normal(1, 7, 20)
    means = table(20, 0, *six)
    x[:, :20] = means + noise
    return x


@pytest.fixture
def first_look(barely_shown):
    ended = np.full(7, 4)
    ended[0] = 12
    return compared(barely_shown, 0, looks=PLAN_OF_SIX, ended=ended)


def test_unconfirmed_points_and_the_reference_get_as_many_seeds_again(first_look):
    has_sign = first_look.sign != 0
    unconfirmed = has_sign & ~first_look.confirmed
    expected = np.where(unconfirmed, 8, 4)
    of_reference, *of_points = first_look.seeds
    assert unconfirmed.any()
    assert of_points == expected[1:].tolist()
    count = int(unconfirmed.sum())
    planned = reference_seeds(4, 6)
    assert of_reference == max(planned, reference_seeds(8, count))


def test_a_look_that_confirms_adds_no_sign_and_is_the_last_one(barely_shown, first_look):
    again = compared(barely_shown, 0, looks=PLAN_OF_SIX, ended=first_look.seeds)
    assert again.confirmed.sum() > first_look.confirmed.sum()
    assert again.sign.tolist() == first_look.sign.tolist()
    assert again.seeds.tolist() == first_look.seeds.tolist()
