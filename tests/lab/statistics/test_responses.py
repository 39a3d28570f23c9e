"""Laws of the fitted responses: what they ignore, what they gain, what they say about repeats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo.lab.statistics import responses
from lmzoo.lab.statistics.responses import MOST, SETTINGS, fit_responses
from lmzoo.lab.statistics.ties import TIE
from tests.cases import cases

RNG = np.random.default_rng
X = np.linspace(-0.8, 0.8, 5)[:, None]
"""Five settings of one field."""
NOISE = 0.03


def parabolas(points: int, seed: int, spread: float = 0.15) -> np.ndarray:
    """Return expected losses (P, 5): parabolas whose minima differ by `spread`."""
    rng = RNG(seed)
    best = 0.1 + spread * rng.standard_normal((points, 1))
    level = 2 + rng.standard_normal((points, 1))
    return level + 0.2 * (X.T - best) ** 2


def noisy(truth: np.ndarray, seed: int, sd: float = NOISE) -> np.ndarray:
    return truth + sd * RNG([seed, 1]).standard_normal(truth.shape)


def regret(truth: np.ndarray, best: np.ndarray) -> np.ndarray:
    chosen = truth[np.arange(len(truth)), best]
    return chosen - truth.min(1)


TRUTHS = [parabolas(12, seed) for seed in range(12)]
STUDIES = [(truth, noisy(truth, seed)) for seed, truth in enumerate(TRUTHS)]
"""Expected losses, and losses that were measured."""


def together(losses: np.ndarray) -> np.ndarray:
    return fit_responses(losses, X).best


def alone(losses: np.ndarray) -> np.ndarray:
    return np.concatenate([together(row[None]) for row in losses])


def measured(losses: np.ndarray) -> np.ndarray:
    return losses.argmin(1)


def mean_regret(choose) -> float:
    return float(np.mean([regret(truth, choose(losses)) for truth, losses in STUDIES]))


def test_the_points_gain_from_each_other():
    assert mean_regret(together) < 0.8 * mean_regret(alone)


def test_the_points_gain_from_neighbouring_settings():
    assert mean_regret(together) < 0.5 * mean_regret(measured)


@pytest.mark.parametrize("study", range(4))
def test_settings_that_no_point_has_do_not_matter(study):
    """Early stopping ends the same settings of most points."""
    truth, losses = STUDIES[study]
    fewer = losses.copy()
    fewer[:, :2] = np.nan
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
    noise = RNG(0).standard_normal(truth.shape)
    noise[:6] *= 0.001
    noise[6:] *= 0.1
    found = regret(truth, together(truth + noise))
    assert found[:6].max() < 0.016


def test_a_point_that_differs_clearly_keeps_its_own_minimum():
    for seed in range(20):
        truth = parabolas(12, seed)
        truth[3] = 2 + 0.8 * (X[:, 0] + 0.8) ** 2  # its best setting is the first one
        losses = noisy(truth, seed)
        best = together(losses)[3]
        lost = losses[3, best] - losses[3].min()
        assert lost < 6 * NOISE


def test_further_settings_near_the_best_do_not_hide_that_a_point_differs():
    """One point likes a setting outside the shared ones and has tried one beyond it, too."""
    x = np.append(X, [[1.0]], 0)
    odd = 3
    lost = np.array([0.28, 0.22, 0.16, 0.05, 0.0, 0.04])
    chosen = []
    least = []
    for seed in range(24):
        truth = np.full((12, 6), np.nan)
        truth[:, :5] = parabolas(12, seed, spread=0.05)
        truth[odd] = 2 + lost
        losses = noisy(truth, seed)
        losses[np.arange(12) != odd, 4:] = np.nan
        best = fit_responses(losses, x, shared=4).best[odd]
        chosen.append(lost[best])
        least.append(lost[losses[odd].argmin()])
    assert np.mean(chosen) < 3 * np.mean(least)


def test_a_slope_is_not_continued_beyond_the_settings_that_all_points_have():
    """One point tries a further setting, which is measured to be worse: it is measured again."""
    challenged = 0
    for seed in range(5):
        losses = np.full((8, 5), np.nan)
        losses[:, :4] = 2 - 0.15 * X[:4, 0]
        losses[0, 4] = losses[0, 3] + 0.02
        losses += 0.01 * RNG([seed, 2]).standard_normal(losses.shape)
        fit = fit_responses(losses, X, shared=4)
        least = losses[0].argmin()  # its setting may be measured to be better by chance
        assert fit.best[0] == least
        if least != 4:
            challenged += fit.challenger[0] == 4
        losses[0, 4] -= 0.12
        better = fit_responses(losses, X, shared=4)
        assert better.best[0] == 4
    assert challenged > 1


def test_the_best_of_two_fields_may_be_where_nothing_was_tried():
    rng = RNG(1)
    x = rng.uniform(-1, 0, (6, 2))
    truth = ((x - 0.4) ** 2).sum(1)
    y = truth + 0.01 * rng.normal(size=(5, 6))
    anywhere = rng.uniform(-1, 1, (16, 2))
    tried = fit_responses(y, x)
    whole = fit_responses(y, x, elsewhere=anywhere)
    assert (whole.order == tried.order).all()
    added = y.min(1)  # the loss is 0 at 0.4
    assert (tried.tuning_sd < 0.1 * added).all()
    assert (whole.tuning_sd > 0.4 * added).all()


TWO_OPTIMA = [2.0, 2.04, 2.1, 2.03, 2.08]


@pytest.mark.parametrize("seed", range(5))
def test_a_second_optimum_that_the_points_share_is_stated(seed):
    losses = noisy(np.tile(TWO_OPTIMA, (6, 1)), seed, sd=0.01)
    stated = fit_responses(losses, X).tuning_sd
    np.testing.assert_allclose(stated, np.ptp(losses, 1))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("points", "two"), [(6, 1), (6, 0), (2, 2)])
def test_a_second_optimum_of_one_point_or_of_two_points_may_be_luck(points, two, seed):
    truth = np.tile(2 + 0.05 * X[:, 0] ** 2, (points, 1))
    truth[:two] = TWO_OPTIMA
    losses = noisy(truth, seed, sd=0.01)
    assert (fit_responses(losses, X).tuning_sd < 0.04).all()


@pytest.fixture
def with_gaps():
    """Losses (7, 9) of five settings and of four between them; the last point has one optimum."""
    truth = np.tile(TWO_OPTIMA, (7, 1))
    truth[6] = 2 + 0.2 * X[:, 0] ** 2
    losses = noisy(truth, 5, sd=0.01)
    between = (losses[:, :-1] + losses[:, 1:]) / 2
    return np.concatenate([losses, between], 1)


@pytest.fixture
def stated_with_gaps(with_gaps):
    x = np.concatenate([X, (X[:-1] + X[1:]) / 2])
    return fit_responses(with_gaps, x, shared=5).tuning_sd


def test_settings_in_the_gaps_hide_less_of_two_optima(with_gaps, stated_with_gaps):
    spread = np.ptp(with_gaps[:6, :5], 1)
    np.testing.assert_allclose(stated_with_gaps[:6], spread / 4)


def test_a_point_with_one_optimum_hides_no_second_one(stated_with_gaps):
    assert stated_with_gaps[6] < 0.01


@pytest.mark.parametrize("shared", [5, 1])  # --samples 2 has one shared setting
def test_the_stated_deviation_is_that_of_repeated_tunings(shared):
    """Over studies with the same truth, the loss of the choice varies as the fits say."""
    truth = parabolas(12, 5)
    chosen = []
    stated = []
    for seed in range(60):
        fit = fit_responses(noisy(truth, seed), X, shared=shared)
        chosen.append(regret(truth, fit.best))
        stated.append(fit.tuning_sd**2)
    repeated = np.var(chosen, 0).mean()
    assert 0.25 < np.mean(stated) / repeated < 4


@given(seed=st.integers(0, 50), points=st.integers(1, 6))
@settings(max_examples=15)
def test_the_order_and_the_level_of_the_points_do_not_matter(seed, points):
    losses = noisy(parabolas(points, seed), seed)
    order = RNG(seed).permutation(points)
    level = RNG(seed).normal(0, 3, (points, 1))
    fit = fit_responses(losses, X)
    moved = fit_responses((losses + level)[order], X)
    expected = fit.mean + level
    np.testing.assert_allclose(moved.mean, expected[order], atol=1e-4)
    # The larger the losses are, the larger are the differences that count as ties.
    chosen = np.take_along_axis(fit.mean[order], moved.best[:, None], 1)
    least = np.take_along_axis(fit.mean, fit.best[:, None], 1)
    np.testing.assert_allclose(chosen, least[order], atol=10 * TIE)


@given(seed=st.integers(0, 50))
@settings(max_examples=15)
def test_a_missing_or_diverged_setting_is_not_chosen(seed):
    losses = noisy(parabolas(6, seed), seed)
    rng = RNG(seed)
    for row in losses:
        gone = rng.permutation(5)[:2]
        row[gone] = [np.nan, np.inf]
    fit = fit_responses(losses, X)
    chosen = losses[np.arange(6), fit.best]
    assert np.isfinite(chosen).all()
    assert np.isfinite(fit.mean).all()
    assert np.isfinite(fit.tuning_sd).all()


@cases("lab/statistics/cases.toml", "cliffs", "losses")
@pytest.mark.parametrize("points", [1, 2, 6])
def test_a_cliff_does_not_hide_the_measured_minimum(losses, points):
    study = noisy(parabolas(points, 3), 3)
    study[0] = losses
    assert together(study)[0] == np.argmin(losses)


def test_runs_with_a_new_seed_settle_what_one_seed_leaves_open():
    """The two best settings of each point, measured four times more with seeds that they share."""
    once = []
    more = []
    seeds = np.broadcast_to([0] * 5 + [1, 1, 2, 2, 3, 3, 4, 4], (12, 13))
    first_settings = np.broadcast_to(np.arange(5), (12, 5))
    for truth, losses in STUDIES[:6]:
        first = fit_responses(losses, X)
        two_best = np.stack([first.best, first.challenger], 1)
        again = np.tile(two_best, 4)
        noise = NOISE * RNG(7).standard_normal((12, 8))
        of_again = np.take_along_axis(truth, again, 1) + noise
        setting = np.concatenate([first_settings, again], 1)
        both = np.concatenate([losses, of_again], 1)
        fit = fit_responses(both, X[setting], seeds=seeds, shared=5)
        chosen = setting[np.arange(12), fit.best]
        more.append(regret(truth, chosen))
        once.append(regret(truth, first.best))
    assert np.mean(more) < 0.8 * np.mean(once)


def test_runs_that_stopped_early_inform_the_fit_and_are_not_chosen():
    stopped = []
    full = []
    for truth, losses in STUDIES[:6]:
        early = losses + 0.5 + 0.1 * X.T
        worst = early.argmax(1)
        known = losses.copy()
        known[np.arange(12), worst] = np.nan
        fit = fit_responses(known, X, early=early)
        assert (fit.best != worst).all()
        stopped.append(regret(truth, fit.best))
        full.append(regret(truth, together(losses)))
    assert np.mean(stopped) < np.mean(full) + 0.003


@pytest.mark.parametrize("trained", [2, 3])
def test_a_stopped_run_informs_the_fit_if_the_variance_of_its_prediction_is_known(trained):
    """Three runs leave one degree of freedom after a level and a slope."""
    runs = trained + 1
    x = X[:runs]
    noise = np.array([0.01, -0.02, 0.015, 0.003])
    losses = 2 + 0.2 * (x.T - 0.1) ** 2 + noise[:runs]
    early = losses + 0.5 + 0.01 * np.arange(runs) ** 2
    losses[:, trained] = np.nan
    fit = fit_responses(losses, x, early=early)
    early[:, trained] += 0.1
    other = fit_responses(losses, x, early=early)
    says_nothing = np.array_equal(fit.mean, other.mean)
    assert says_nothing == (trained == 2)


@pytest.mark.parametrize("losses", [[[2.0] * 5], [[2.0, np.nan, np.inf, np.inf, np.nan]]])
def test_without_a_difference_there_is_nothing_to_fit(losses):
    fit = fit_responses(losses, X)
    assert fit.best == [0]
    assert fit.tuning_sd == [0]


@pytest.fixture
def costs(monkeypatch):
    """The operations of each solution of the fits, up to a factor."""
    solve = responses._Fit._solve
    found = []

    def counted(self, hyper, read):
        points, runs = read
        found.append(points.size * runs.size**3)
        return solve(self, hyper, read)

    monkeypatch.setattr(responses._Fit, "_solve", counted)
    return found


@pytest.mark.parametrize("points", [4, 12])
def test_many_settings_cost_no_more_and_choose_as_well(points, costs):
    """The hyperparameters come from some of the settings, the choice from all of them."""
    rng = RNG(points)
    x = rng.uniform(-1, 1, (150, 1))
    best = 0.1 + 0.15 * rng.standard_normal((points, 1))
    truth = 2 + 0.2 * (x[:, 0] - best) ** 2
    losses = noisy(truth, 0)
    fit = fit_responses(losses, x, shared=38)
    assert costs.pop() == points * 150**3
    assert max(costs) <= MOST * SETTINGS**3
    lucky = regret(truth, measured(losses))
    assert regret(truth, fit.best).mean() < 0.3 * lucky.mean()
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
        rng = RNG(seed)
        x = rng.uniform(-1, 1, (12, 100, fields))
        x[:, :25] = x[0, :25]
        best = 0.2 * rng.standard_normal((12, 1, fields))
        from_best = x - best
        steep = wall * np.maximum(from_best[..., 0] - 0.3, 0) ** 0.7
        truth = 2 + 0.2 * (from_best**2).sum(-1) + steep
        losses = noisy(truth, seed)
        fit = fit_responses(losses, x, shared=25)
        regrets[seed] = regret(truth, fit.best)
        lucky[seed] = regret(truth, measured(losses))
        stated[seed] = fit.tuning_sd
    points = regrets.size
    exceeding = (regrets > 4 * stated).sum()
    assert exceeding < points / 4 + 3 * (points * 3 / 16) ** 0.5
    differ = (regrets != lucky).sum()
    better = (regrets < lucky).sum()
    assert better > differ / 2 + 3 * (differ / 4) ** 0.5


@pytest.mark.parametrize(("count", "most"), [(7, 0.0024), (9, 0.0013)])
def test_more_settings_make_a_better_choice_and_its_error_is_stated(count, most):
    x = np.linspace(-1, 1, 2 * count + 1)[1::2, None]
    added = []
    stated = []
    for seed in range(12):
        rng = RNG([seed, count])
        best = 0.15 + 0.2 * rng.standard_normal((8, 1))
        truth = 0.12 * (x.T - best) ** 2
        noise = 0.015 * rng.standard_normal(truth.shape)
        fit = fit_responses(truth + noise, x)
        # The least loss is 0, at a setting that nobody tried.
        added.append(truth[np.arange(8), fit.best])
        stated.append(fit.tuning_sd)
    assert np.mean(added) < most
    assert np.square(added).mean() < 1.6 * np.square(stated).mean()
