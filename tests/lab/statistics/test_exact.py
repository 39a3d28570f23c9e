"""Verdicts of one or two points, against a second writing with scipy's distributions.

With fewer than four points nothing is shared: each test is Student's on pairs, or Welch's on means.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from lmzoo.lab.statistics.compared import (
    BETTER,
    BETTER_OPEN,
    ERROR,
    UNDECIDED,
    WORSE,
    WORSE_OPEN,
    Compared,
    Look,
    compared,
    read_looks,
)
from tests.cases import cases, rows

CASES = "lab/statistics/cases.toml"
NOISE = np.array(rows(CASES, "noise"))
"""Of six differences, in nats; they sum to 0."""
SEEDS = np.array(rows(CASES, "seeds"))
"""Losses of the reference."""
TUNING_SD = 0.003


class Error(NamedTuple):
    sd: float
    freedom: float

    def above(self, p: float) -> float:
        quantile = stats.t.isf(p, self.freedom)
        return float(quantile) * self.sd

    def tail(self, size: float) -> float:
        """P(error > size)."""
        p = stats.t.sf(size / self.sd, self.freedom)
        return float(p)


def student(x: np.ndarray, tuning_sd: float = 0.0) -> Error:
    """The error of a mean, with a known variance of Satterthwaite's kind."""
    seeds = x.var(ddof=1) / len(x)
    known = 2 * tuning_sd**2
    total = seeds + known
    freedom = (len(x) - 1) * (total / seeds) ** 2
    return Error(total**0.5, freedom)


def welch(x: np.ndarray, y: np.ndarray) -> Error:
    of_x = x.var(ddof=1) / len(x)
    of_y = y.var(ddof=1) / len(y)
    total = of_x + of_y
    unknown = of_x**2 / (len(x) - 1)
    unknown += of_y**2 / (len(y) - 1)
    return Error(total**0.5, total**2 / unknown)


ERRORS = {
    "pairs": student(NOISE),
    "tuned pairs": student(NOISE, TUNING_SD),
    "unpaired": welch(SEEDS, SEEDS + NOISE),
}
OPPOSITE = {WORSE: BETTER, WORSE_OPEN: BETTER_OPEN}


def point_of(difference: float, **options: Any) -> Compared:
    """Compare a point that differs by this mean; `looks` as they are stored."""
    point = SEEDS + NOISE + difference
    losses = np.stack([SEEDS, point])
    if "looks" in options:
        options["looks"] = read_looks(options["looks"], 6)
    return compared(losses, 0, **options)


CHANGES = "bound, error, side, level, below, above, options"


@cases(CASES, "changes", CHANGES)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_verdict_changes_at_the_size_that_scipy_gives(
    bound, error, side, level, below, above, options, sign
):
    size = bound + side * ERRORS[error].above(level)
    if sign < 0:
        below = OPPOSITE.get(below, below)
        above = OPPOSITE.get(above, above)
    # The verdict changes between these two sizes.
    a_little = 1e-6 * size
    smaller = point_of(sign * (size - a_little), **options)
    larger = point_of(sign * (size + a_little), **options)
    assert smaller.verdict[1] == below
    assert larger.verdict[1] == above


@pytest.fixture(params=[0.006, -0.0095])
def shift(request) -> float:
    return request.param


@pytest.fixture(params=["pairs", "tuned pairs"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def one_look(shift, kind) -> Compared:
    tuning_sd = 0.0
    if kind == "tuned pairs":
        tuning_sd = TUNING_SD
    return point_of(shift, tuning_sd=tuning_sd, margin=0.005)


def test_the_interval_of_one_look_is_students(one_look, shift, kind):
    half = ERRORS[kind].above(0.025)
    assert one_look.mean[1] == pytest.approx(shift)
    assert one_look.low[1] == pytest.approx(shift - half)
    assert one_look.high[1] == pytest.approx(shift + half)


def test_both_p_values_of_one_look_are_students(one_look, shift, kind):
    p = 2 * ERRORS[kind].tail(abs(shift))
    assert one_look.p[1] == pytest.approx(p)
    assert one_look.p_raw[1] == pytest.approx(p)


def test_the_sides_of_the_margin_are_tails_of_students_t(one_look, shift, kind):
    above = ERRORS[kind].tail(0.005 - shift)
    below = ERRORS[kind].tail(0.005 + shift)
    within = 1 - above - below
    assert one_look.worse[1] == pytest.approx(above)
    assert one_look.better[1] == pytest.approx(below)
    assert one_look.within[1] == pytest.approx(within)


def test_without_diverged_runs_there_is_no_p_value_of_them(one_look):
    assert np.isnan(one_look.p_diverged).all()


MEAN = 0.004


def of_two_looks(first: float, second: float) -> Compared:
    """Compare a point at three and at six seeds, with these errors."""
    looks = [[3, first, 3], [6, second, 6]]
    return point_of(MEAN, looks=looks, paired=True, margin=0.05)


@pytest.mark.parametrize(("first", "second"), [(0.02, 0.03), (0.03, 0.002)])
def test_two_looks_have_the_lesser_p_in_units_of_their_errors(first, second):
    three = NOISE[:3] + MEAN
    p_of_three = 2 * student(three).tail(three.mean())
    p_of_six = 2 * ERRORS["pairs"].tail(MEAN)
    # A look that may err more often weighs its p less.
    least = min(p_of_three / first, p_of_six / second)
    expected = min(ERROR * least, 1)
    found = of_two_looks(first, second)
    assert found.p[1] == pytest.approx(expected)


def test_the_interval_of_two_looks_is_that_of_all_seeds():
    half = ERRORS["pairs"].above(ERROR / 2)
    found = of_two_looks(0.03, 0.002)
    assert found.low[1] == pytest.approx(MEAN - half)
    assert found.high[1] == pytest.approx(MEAN + half)


@cases(CASES, "seeds_needed", "mean, margin, error, options")
def test_seeds_needed_are_the_least_that_suffice(mean, margin, error, options):
    """With a power of 80 %, at the error of the next look."""
    found = point_of(mean, margin=margin, **options)
    known = 2 * options.get("tuning_sd", 0.0) ** 2
    least = np.nan
    # A greater number of seeds counts as none.
    for more in range(1000, 0, -1):
        of_seeds = NOISE.var(ddof=1) / (6 + more)
        sd = (of_seeds + known) ** 0.5
        if decides(mean, margin, sd, error):
            least = more
    never = np.isnan(least)
    assert found.verdict[1] == UNDECIDED
    assert found.seeds_needed[1] == pytest.approx(least, nan_ok=True)
    assert found.needs_tuning[1] == (never and known > 0)


def decides(mean: float, margin: float, sd: float, error: float) -> bool:
    """Return whether a mean with this deviation is shown in four studies of five."""
    # 80 %.
    power = stats.norm.isf(0.2)
    of_two_sides = stats.norm.isf(error / 2)
    if mean >= (of_two_sides + power) * sd:
        return True
    if margin == 0:
        return False
    of_one_side = stats.norm.isf(error)
    return mean + (of_one_side + power) * sd <= margin


def test_equal_means_do_not_decide_a_point_that_fails_more_often():
    """Only seeds that show the failures do; one seed more would be no news."""
    x = np.full((2, 13), 1.0) + np.arange(13) / 1e4
    x[1, 0] = np.inf
    found = compared(x, 0, margin=0.05)
    assert found.verdict[1] == UNDECIDED
    assert found.seeds_needed[1] > 13


SIGNS = {WORSE: 1, BETTER: -1}


@cases(CASES, "diverged", "lost, runs, of_reference, its_runs, word")
def test_diverged_runs_are_compared_by_fishers_exact_test(lost, runs, of_reference, its_runs, word):
    x = np.full((2, 7), np.nan)
    x[0, :its_runs] = 1.0
    x[1, :runs] = 1.0
    x[0, :of_reference] = np.inf
    x[1, :lost] = np.inf
    found = compared(x, 0)
    kept = runs - lost
    kept_of_reference = its_runs - of_reference
    table = [[lost, kept], [of_reference, kept_of_reference]]
    p = stats.fisher_exact(table).pvalue
    is_shown = word in SIGNS
    assert found.p_diverged[1] == pytest.approx(p)
    assert found.verdict[1] == word
    assert found.sign[1] == SIGNS.get(word, 0)
    assert (p < ERROR) == is_shown
    assert (found.p[1] < ERROR) == is_shown


def test_a_shown_sign_is_not_that_of_a_later_size():
    """Three seeds show that the point is worse; all forty, that it is better by far."""
    x = np.zeros((2, 40))
    x[1] = np.resize(NOISE, 40) / 100
    x[1, :3] += 0.02
    # Twenty-five margins better, after the look that showed the sign.
    x[1, 3:] -= 0.5
    looks = [Look(3, 0.025, 3), Look(40, 0.025, 40)]
    of_three = compared(x[:, :3], 0)
    of_all = compared(x, 0, looks=looks)
    assert of_three.verdict[1] == WORSE_OPEN
    assert of_all.verdict[1] == WORSE_OPEN
