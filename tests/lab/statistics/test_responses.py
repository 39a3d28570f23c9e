"""Laws of the fitted responses: what they ignore, what they gain, what they say about repeats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo.lab.statistics import responses
from lmzoo.lab.statistics.responses import MOST, SETTINGS, fit_responses

X = np.linspace(-0.8, 0.8, 5)[:, None]
NOISE = 0.03


def parabolas(points: int, seed: int, spread: float = 0.15) -> np.ndarray:
    """Return expected losses (P, 5): parabolas whose minima differ by `spread`."""
    rng = np.random.default_rng(seed)
    best = 0.1 + spread * rng.standard_normal((points, 1))
    return 2 + rng.standard_normal((points, 1)) + 0.2 * (X.T - best) ** 2


def noisy(truth: np.ndarray, seed: int) -> np.ndarray:
    return truth + NOISE * np.random.default_rng([seed, 1]).standard_normal(truth.shape)


def regret(truth: np.ndarray, best: np.ndarray) -> np.ndarray:
    return truth[np.arange(len(truth)), best] - truth.min(1)


def alone(losses: np.ndarray) -> np.ndarray:
    return np.concatenate([fit_responses(row[None], X).best for row in losses])


SHARED = [(parabolas(12, seed), noisy(parabolas(12, seed), seed)) for seed in range(12)]


def test_the_points_gain_from_each_other_and_from_neighbouring_settings():
    def mean_regret(choose):
        return np.mean([regret(truth, choose(losses)) for truth, losses in SHARED])

    together = mean_regret(lambda losses: fit_responses(losses, X).best)
    assert together < 0.8 * mean_regret(alone)
    assert together < 0.5 * mean_regret(lambda losses: losses.argmin(1))


def test_settings_that_no_point_has_do_not_matter():
    """Early stopping ends the same settings of most points."""
    for truth, losses in SHARED[:4]:
        fewer = np.where(np.arange(5) < 2, np.nan, losses)
        full = fit_responses(fewer, X)
        rest = fit_responses(losses[:, 2:], X[2:])
        assert np.array_equal(full.best, rest.best + 2)
        assert np.allclose(full.mean[:, 2:], rest.mean, atol=1e-4)
        assert (regret(truth, full.best) < 0.1).all()


def test_points_of_little_noise_keep_their_small_differences():
    """Half of the points vary a hundred times more; the others lose with the rate."""
    quiet = 2 + 0.02 * (X[:, 0] + 0.8)
    loud = 2 + (X[:, 0] - 0.4) ** 2
    truth = np.stack([quiet] * 6 + [loud] * 6)
    rng = np.random.default_rng(0)
    noise = np.repeat([0.001, 0.1], 6)[:, None] * rng.standard_normal(truth.shape)
    assert regret(truth, fit_responses(truth + noise, X).best)[:6].max() < 0.016


def test_a_point_that_differs_clearly_keeps_its_own_minimum():
    for seed in range(20):
        truth = parabolas(12, seed)
        truth[3] = 2 + 0.8 * (X[:, 0] + 0.8) ** 2  # its best setting is the first one
        losses = noisy(truth, seed)
        chosen = losses[3, fit_responses(losses, X).best[3]]
        assert chosen - losses[3].min() < 6 * NOISE


def test_further_settings_near_the_best_do_not_hide_that_a_point_differs():
    """One point likes a setting outside the shared ones and has tried one beyond it, too."""
    x = np.append(X, [[1.0]], 0)
    chosen = []
    least = []
    for seed in range(24):
        truth = np.full((12, 6), np.nan)
        truth[:, :5] = parabolas(12, seed, spread=0.05)
        truth[3] = 2 + np.array([0.28, 0.22, 0.16, 0.05, 0.0, 0.04])
        losses = noisy(truth, seed)
        losses[np.arange(12) != 3, 4:] = np.nan
        best = fit_responses(losses, x, shared=4).best[3]
        chosen.append(truth[3, best] - 2)
        least.append(truth[3, losses[3].argmin()] - 2)
    assert np.mean(chosen) < 3 * np.mean(least)


def test_a_slope_is_not_continued_beyond_the_settings_that_all_points_have():
    """One point tries a further setting, which is measured to be worse: it is measured again."""
    challenged = 0
    for seed in range(5):
        losses = np.full((8, 5), np.nan)
        losses[:, :4] = 2 - 0.15 * X[:4, 0]
        losses[0, 4] = losses[0, 3] + 0.02
        losses += 0.01 * np.random.default_rng([seed, 2]).standard_normal(losses.shape)
        fit = fit_responses(losses, X, shared=4)
        least = losses[0].argmin()  # its setting may be measured to be better by chance
        assert fit.best[0] == least
        challenged += fit.challenger[0] == 4 != least
        losses[0, 4] -= 0.12
        assert fit_responses(losses, X, shared=4).best[0] == 4
    assert challenged > 1


def test_the_best_of_two_fields_may_be_where_nothing_was_tried():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 0, (6, 2))
    y = ((x - 0.4) ** 2).sum(1) + 0.01 * rng.normal(size=(5, 6))
    anywhere = rng.uniform(-1, 1, (16, 2))
    tried = fit_responses(y, x)
    whole = fit_responses(y, x, elsewhere=anywhere)
    assert (whole.order == tried.order).all()
    added = y.min(1)  # the loss is 0 at 0.4
    assert (tried.tuning_sd < 0.1 * added).all()
    assert (whole.tuning_sd > 0.4 * added).all()


@pytest.mark.parametrize(("points", "two"), [(6, 6), (6, 1), (6, 0), (2, 2)])
def test_a_second_optimum_that_the_points_share_is_stated(points, two):
    """In one point, or with two points, a bad setting between two better ones may be luck."""
    for seed in range(5):
        truth = np.tile(2 + 0.05 * X[:, 0] ** 2, (points, 1))
        truth[:two] = [2.0, 2.04, 2.1, 2.03, 2.08]
        losses = truth + 0.01 * np.random.default_rng([seed, 5]).standard_normal(truth.shape)
        stated = fit_responses(losses, X).tuning_sd
        if two > 2:
            np.testing.assert_allclose(stated, np.ptp(losses, 1))
        else:
            assert (stated < 0.04).all()


def test_settings_in_the_gaps_hide_less_of_two_optima_and_a_point_with_one_has_none():
    truth = np.tile([2.0, 2.04, 2.1, 2.03, 2.08], (7, 1))
    truth[6] = 2 + 0.2 * X[:, 0] ** 2
    losses = truth + 0.01 * np.random.default_rng(5).standard_normal(truth.shape)
    between = (losses[:, :-1] + losses[:, 1:]) / 2
    x = np.concatenate([X, (X[:-1] + X[1:]) / 2])
    stated = fit_responses(np.concatenate([losses, between], 1), x, shared=5).tuning_sd
    np.testing.assert_allclose(stated[:6], np.ptp(losses[:6], 1) / 4)
    assert stated[6] < 0.01 < np.ptp(losses[6]) / 4


@pytest.mark.parametrize("shared", [5, 1])  # --samples 2 has one shared setting
def test_the_stated_deviation_is_that_of_repeated_tunings(shared):
    """Over studies with the same truth, the loss of the choice varies as the fits say."""
    truth = parabolas(12, 5)
    fits = [fit_responses(noisy(truth, seed), X, shared=shared) for seed in range(60)]
    chosen = np.array([regret(truth, fit.best) for fit in fits])
    stated = np.sqrt(np.mean([fit.tuning_sd**2 for fit in fits]))
    assert 0.5 < stated / np.sqrt(chosen.var(0).mean()) < 2


@given(seed=st.integers(0, 50), points=st.integers(1, 6))
@settings(max_examples=15)
def test_the_order_and_the_level_of_the_points_do_not_matter(seed, points):
    losses = noisy(parabolas(points, seed), seed)
    order = np.random.default_rng(seed).permutation(points)
    level = np.random.default_rng(seed).normal(0, 3, (points, 1))
    fit = fit_responses(losses, X)
    moved = fit_responses((losses + level)[order], X)
    np.testing.assert_allclose(moved.mean, (fit.mean + level)[order], atol=1e-4)
    assert (moved.best == fit.best[order]).all()


@given(seed=st.integers(0, 50))
@settings(max_examples=15)
def test_a_missing_or_diverged_setting_is_not_chosen(seed):
    losses = noisy(parabolas(6, seed), seed)
    rng = np.random.default_rng(seed)
    for row in losses:
        gone = rng.permutation(5)[:2]
        row[gone] = [np.nan, np.inf]
    fit = fit_responses(losses, X)
    assert np.isfinite(losses[np.arange(6), fit.best]).all()
    assert np.isfinite([*fit.mean.flat, *fit.tuning_sd]).all()


@pytest.mark.parametrize(
    "losses",
    [
        [2.00, 1.50, 3.28, 3.3, 3.3],
        [1.754, 1.659, 3.284, 3.3, 3.3],
        [1.60, 1.50, np.inf, np.inf, np.inf],
        [np.inf, np.inf, 3.3, 1.5, 2.0],
    ],
)
@pytest.mark.parametrize("points", [1, 2, 6])
def test_a_cliff_does_not_hide_the_measured_minimum(losses, points):
    ordinary = noisy(parabolas(points, 3), 3)[1:]
    fit = fit_responses(np.concatenate([[losses], ordinary]), X)
    assert fit.best[0] == np.argmin(losses)


def test_runs_with_a_new_seed_settle_what_one_seed_leaves_open():
    """The two best settings of each point, measured four times more with seeds that they share."""
    once = []
    more = []
    seeds = np.broadcast_to([0] * 5 + [1, 1, 2, 2, 3, 3, 4, 4], (12, 13))
    first_settings = np.broadcast_to(np.arange(5), (12, 5))
    for truth, losses in SHARED[:6]:
        rng = np.random.default_rng(7)
        first = fit_responses(losses, X)
        again = np.tile(np.stack([first.best, first.challenger], 1), 4)
        of_again = np.take_along_axis(truth, again, 1) + NOISE * rng.standard_normal((12, 8))
        setting = np.concatenate([first_settings, again], 1)
        both = np.concatenate([losses, of_again], 1)
        fit = fit_responses(both, X[setting], seeds=seeds, shared=5)
        more.append(regret(truth, setting[np.arange(12), fit.best]))
        once.append(regret(truth, first.best))
    assert np.mean(more) < 0.8 * np.mean(once)


def test_runs_that_stopped_early_inform_the_fit_and_are_not_chosen():
    stopped = []
    for truth, losses in SHARED[:6]:
        early = losses + 0.5 + 0.1 * X.T
        known = losses.copy()
        worst = early.argmax(1)
        known[np.arange(12), worst] = np.nan
        fit = fit_responses(known, X, early=early)
        assert (fit.best != worst).all()
        stopped.append(regret(truth, fit.best).mean())
    full = [regret(truth, fit_responses(losses, X).best) for truth, losses in SHARED[:6]]
    assert np.mean(stopped) < np.mean(full) + 0.003


@pytest.mark.parametrize("trained", [2, 3])
def test_a_stopped_run_informs_the_fit_if_the_variance_of_its_prediction_is_known(trained):
    """Three runs leave one degree of freedom after a level and a slope."""
    x = X[: trained + 1]
    noise = np.array([0.01, -0.02, 0.015, 0.003])[: trained + 1]
    losses = 2 + 0.2 * (x.T - 0.1) ** 2 + noise
    early = losses + 0.5 + 0.01 * np.arange(trained + 1) ** 2
    losses[:, trained] = np.nan
    fit = fit_responses(losses, x, early=early)
    early[:, trained] += 0.1
    other = fit_responses(losses, x, early=early)
    assert np.array_equal(fit.mean, other.mean) == (trained == 2)


@pytest.mark.parametrize("losses", [[[2.0] * 5], [[2.0, np.nan, np.inf, np.inf, np.nan]]])
def test_without_a_difference_there_is_nothing_to_fit(losses):
    fit = fit_responses(losses, X)
    assert fit.best == [0]
    assert fit.tuning_sd == [0]


@pytest.mark.parametrize("points", [4, 12])
def test_many_settings_cost_no_more_and_choose_as_well(points, monkeypatch):
    """The hyperparameters come from some of the settings, the choice from all of them."""
    solve = responses._Fit._solve
    costs = []

    def counted(self, hyper, read):
        points, runs = read
        costs.append(points.size * runs.size**3)
        return solve(self, hyper, read)

    monkeypatch.setattr(responses._Fit, "_solve", counted)
    rng = np.random.default_rng(points)
    x = rng.uniform(-1, 1, (150, 1))
    truth = 2 + 0.2 * (x[:, 0] - 0.1 - 0.15 * rng.standard_normal((points, 1))) ** 2
    losses = noisy(truth, 0)
    fit = fit_responses(losses, x, shared=38)
    assert costs.pop() == points * 150**3
    assert max(costs) <= MOST * SETTINGS**3
    assert regret(truth, fit.best).mean() < 0.3 * regret(truth, losses.argmin(1)).mean()
    assert (fit.challenger != fit.best).all()


@pytest.mark.parametrize(
    ("fields", "wall", "tables"),
    [(1, 0, 4), (1, 5, 4), (3, 0, 6)],
    ids=["smooth", "cliff", "three fields"],
)
def test_many_settings_do_not_hide_what_the_choice_may_cost(fields, wall, tables):
    """The best of many settings differ by noise; the stated deviation must not be that of luck.

    If it is right but for a factor of two, the loss exceeds four times of it in at most a quarter
    of the points (Chebyshev). A choice that is no better than luck is better in half of the points
    in which they differ (sign test). Three standard errors are added to both.
    """
    regrets, stated, lucky = np.zeros((3, tables, 12))
    for seed in range(tables):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, (12, 100, fields))
        x[:, :25] = x[0, :25]
        best = 0.2 * rng.standard_normal((12, 1, fields))
        steep = wall * np.maximum((x - best)[..., 0] - 0.3, 0) ** 0.7
        truth = 2 + 0.2 * ((x - best) ** 2).sum(-1) + steep
        losses = noisy(truth, seed)
        fit = fit_responses(losses, x, shared=25)
        regrets[seed] = regret(truth, fit.best)
        lucky[seed] = regret(truth, losses.argmin(1))
        stated[seed] = fit.tuning_sd
    points = regrets.size
    differ = (regrets != lucky).sum()
    assert (regrets > 4 * stated).sum() < points / 4 + 3 * (points * 3 / 16) ** 0.5
    assert (regrets < lucky).sum() > differ / 2 + 3 * (differ / 4) ** 0.5


@pytest.mark.parametrize(("count", "most"), [(7, 0.0024), (9, 0.0013)])
def test_more_settings_make_a_better_choice_and_its_error_is_stated(count, most):
    x = np.linspace(-1, 1, 2 * count + 1)[1::2, None]
    added = []
    stated = []
    for seed in range(12):
        rng = np.random.default_rng([seed, count])
        best = 0.15 + 0.2 * rng.standard_normal((8, 1))
        truth = 0.12 * (x.T - best) ** 2
        fit = fit_responses(truth + 0.015 * rng.standard_normal(truth.shape), x)
        # The least loss is 0, at a setting that nobody tried.
        added.append(truth[np.arange(8), fit.best])
        stated.append(fit.tuning_sd)
    assert np.mean(added) < most
    assert np.square(added).mean() < 1.6 * np.square(stated).mean()
