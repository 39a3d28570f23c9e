"""Verdicts of one or two points, against a second writing with scipy's distributions.

With fewer than four points nothing is shared: each test is Student's on pairs, or Welch's on means.
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from lmzoo.lab.statistics.compared import (
    BETTER,
    BETTER_OPEN,
    ERROR,
    NEGLIGIBLE,
    UNDECIDED,
    WORSE,
    WORSE_OPEN,
    Look,
    compared,
)
from tests.cases import cases

NOISE = np.array([0.004, -0.001, 0.013, -0.007, 0.002, -0.011])
"""Of six differences, in nats; they sum to 0."""
SEEDS = np.array([0.31, 0.36, 0.29, 0.4, 0.33, 0.32])
"""Losses of the reference."""


class Error(NamedTuple):
    sd: float
    freedom: float

    def above(self, p: float) -> float:
        return float(stats.t.isf(p, self.freedom)) * self.sd


def student(x: np.ndarray, tuning_sd: float = 0.0) -> Error:
    """The error of a mean, with a known variance of Satterthwaite's kind."""
    seeds = x.var(ddof=1) / len(x)
    known = 2 * tuning_sd**2
    freedom = (len(x) - 1) * (1 + known / seeds) ** 2
    return Error((seeds + known) ** 0.5, freedom)


def welch(x: np.ndarray, y: np.ndarray) -> Error:
    of_x = x.var(ddof=1) / len(x)
    of_y = y.var(ddof=1) / len(y)
    total = of_x + of_y
    freedom = total**2 / (of_x**2 / (len(x) - 1) + of_y**2 / (len(y) - 1))
    return Error(total**0.5, freedom)


OWN = student(NOISE)
TUNED = student(NOISE, 0.003)
APART = welch(SEEDS, SEEDS + NOISE)
CASES = [
    # size at which the verdict changes, verdicts below and above it, arguments of `compared`
    (OWN.above(0.025), UNDECIDED, WORSE_OPEN, {"margin": 0.004}),
    (0.02 + OWN.above(0.025), WORSE_OPEN, WORSE, {}),
    (0.02 - OWN.above(0.05), NEGLIGIBLE, WORSE_OPEN, {}),
    (0.008 - OWN.above(0.05), NEGLIGIBLE, UNDECIDED, {"margin": 0.008}),
    (OWN.above(0.025), UNDECIDED, WORSE, {"margin": 0.0}),
    (OWN.above(0.01), UNDECIDED, WORSE_OPEN, {"looks": [Look(6, 0.02, 6)], "margin": 0.004}),
    (0.02 + OWN.above(0.015), WORSE_OPEN, WORSE, {"looks": [Look(6, 0.03, 6)]}),
    (0.02 + TUNED.above(0.025), WORSE_OPEN, WORSE, {"tuning_sd": 0.003}),
    (0.06 - APART.above(0.05), NEGLIGIBLE, UNDECIDED, {"paired": False, "margin": 0.06}),
    (0.02 + APART.above(0.025), WORSE_OPEN, WORSE, {"paired": False}),
]
OPPOSITE = {WORSE: BETTER, WORSE_OPEN: BETTER_OPEN}


@pytest.mark.parametrize(("size", "below", "above", "options"), CASES)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_verdict_changes_at_the_size_that_scipy_gives(size, below, above, options, sign):
    for factor, word in ((1 - 1e-6, below), (1 + 1e-6, above)):
        if sign < 0:
            word = OPPOSITE.get(word, word)
        x = np.stack([SEEDS, SEEDS + NOISE + sign * size * factor])
        assert compared(x, 0, **options).verdict[1] == word


def p_of(mean: float, error: Error) -> float:
    return float(2 * stats.t.sf(abs(mean) / error.sd, error.freedom))


@pytest.mark.parametrize("mean", [0.006, -0.0095])
@pytest.mark.parametrize(("error", "options"), [(OWN, {}), (TUNED, {"tuning_sd": 0.003})])
def test_the_numbers_of_one_look_are_those_of_the_t_test(mean, error, options):
    x = np.stack([SEEDS, SEEDS + NOISE + mean])
    found = compared(x, 0, margin=0.005, **options)
    half = error.above(0.025)
    interval = (found.mean[1], found.low[1], found.high[1])
    assert interval == pytest.approx((mean, mean - half, mean + half))
    p = p_of(mean, error)
    assert (found.p[1], found.p_raw[1]) == pytest.approx((p, p))
    above = stats.t.sf((0.005 - mean) / error.sd, error.freedom)
    below = stats.t.sf((0.005 + mean) / error.sd, error.freedom)
    sides = (found.worse[1], found.within[1], found.better[1])
    assert sides == pytest.approx((above, 1 - above - below, below))
    assert np.isnan(found.p_diverged).all()


def test_a_second_look_has_its_own_error():
    x = np.stack([SEEDS, SEEDS + NOISE + 0.004])
    p_of_three = p_of(NOISE[:3].mean() + 0.004, student(NOISE[:3]))
    p_of_six = p_of(0.004, OWN)
    half = OWN.above(ERROR / 2)
    for first, second in ((0.02, 0.03), (0.03, 0.002)):
        schedule = [Look(3, first, 3), Look(6, second, 6)]
        found = compared(x, 0, looks=schedule, paired=True, margin=0.05)
        least = min(p_of_three / first, p_of_six / second)
        assert found.p[1] == pytest.approx(min(ERROR * least, 1))
        assert (found.low[1], found.high[1]) == pytest.approx((0.004 - half, 0.004 + half))


@pytest.mark.parametrize(
    ("mean", "margin", "options"),
    [
        (0.004, 0.001, {}),
        (0.004, 0.01, {}),
        (0.005, 0.001, {"tuning_sd": 0.0005}),
        (0.005, 0.001, {"tuning_sd": 0.001}),  # no number of seeds suffices
        (0.005, 0.001, {"looks": [Look(6, 0.02, 6), Look(12, 0.03, 12)]}),
        (0.0105, 0.001, {"looks": [Look(6, 0.02, 6), Look(12, 0.03, 12)]}),  # one seed
        (0.0001, 0.0, {}),
    ],
)
def test_seeds_needed_are_the_least_that_suffice(mean, margin, options):
    """With a power of 80 %, at the error of the next look: of the reserve, or of the schedule."""
    found = compared(np.stack([SEEDS, SEEDS + NOISE + mean]), 0, margin=margin, **options)
    error = 0.005
    if "looks" in options:
        error = 0.03
    known = 2 * options.get("tuning_sd", 0.0) ** 2
    apart = stats.norm.isf(error / 2) + stats.norm.isf(0.2)
    within = stats.norm.isf(error) + stats.norm.isf(0.2)
    enough = []
    for more in range(1, 1001):
        sd = (NOISE.var(ddof=1) / (6 + more) + known) ** 0.5
        is_small = margin > 0 and mean + within * sd <= margin
        if mean >= apart * sd or is_small:
            enough.append(more)
    assert found.verdict[1] == UNDECIDED
    assert found.seeds_needed[1] == pytest.approx(min(enough, default=np.nan), nan_ok=True)
    assert found.needs_tuning[1] == (not enough and known > 0)


@cases("lab/statistics/cases.toml", "diverged", "lost, runs, of_reference, its_runs, word")
def test_diverged_runs_are_compared_by_fishers_exact_test(lost, runs, of_reference, its_runs, word):
    seeds = np.arange(7)
    x = np.where(seeds < np.array([[its_runs], [runs]]), 1.0, np.nan)
    x[seeds < np.array([[of_reference], [lost]])] = np.inf
    found = compared(x, 0)
    table = [[lost, runs - lost], [of_reference, its_runs - of_reference]]
    p = stats.fisher_exact(table).pvalue
    assert found.p_diverged[1] == pytest.approx(p)
    assert found.verdict[1] == word
    assert found.sign[1] == {WORSE: 1, BETTER: -1}.get(word, 0)
    assert (p < ERROR) == (found.p[1] < ERROR) == (word in (WORSE, BETTER))


def test_a_shown_sign_is_not_that_of_a_later_size():
    x = np.stack([np.zeros(40), np.where(np.arange(40) < 3, 0.02, -0.5)])
    x[1] += np.resize(NOISE, 40) / 100
    assert compared(x[:, :3], 0).verdict[1] == WORSE_OPEN
    assert compared(x, 0, looks=[Look(3, 0.025, 3), Look(40, 0.025, 40)]).verdict[1] == WORSE_OPEN
