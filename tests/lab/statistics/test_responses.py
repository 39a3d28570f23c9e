"""Laws of the fitted responses: what they ignore, what they gain, what they say about repeats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo.lab.statistics import responses
from lmzoo.lab.statistics.responses import MOST, SETTINGS, fit_responses
from lmzoo.lab.statistics.ties import TIE
from tests.cases import cases, rows
from tests.lab.statistics.normal_draws import normal

RNG = np.random.default_rng
CASES = "lab/statistics/cases.toml"
RATES = np.linspace(-0.8, 0.8, 5)
X = RATES[:, None]
"""Five settings of one field."""
NOISE = 0.03


def parabolas(points, seed, spread=0.15):
    """Return expected losses (P, 5): parabolas whose minima differ by `spread`."""
    rng = RNG(seed)
    best = 0.1 + spread * rng.standard_normal((points, 1))
    level = 2 + rng.standard_normal((points, 1))
    return level + 0.2 * (RATES - best) ** 2


def noisy(truth, seed, sd=NOISE):
    rng = RNG([seed, 1])
    return truth + sd * rng.standard_normal(truth.shape)


def of_setting(losses, best):
    """Return the loss of each point with its setting."""
    points = np.arange(len(losses))
    return losses[points, best]


def regret(truth, best):
    return of_setting(truth, best) - truth.min(1)


STUDIES = []
"""Expected losses, and losses that were measured."""
for seed in range(12):
    expected = parabolas(12, seed)
    STUDIES.append((expected, noisy(expected, seed)))


def together(losses):
    return fit_responses(losses, X).best


def alone(losses):
    best = []
    for row in losses:
        best.extend(together(row[None]))
    return np.array(best)


def measured(losses):
    return losses.argmin(1)


def mean_regret(choose):
    regrets = []
    for truth, losses in STUDIES:
        best = choose(losses)
        regrets.append(regret(truth, best))
    return np.mean(regrets)


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
    known = losses[:, 2:]
    rest = fit_responses(known, X[2:])
    # The first of the other settings is the third one.
    best = rest.best + 2
    assert full.best.tolist() == best.tolist()
    np.testing.assert_allclose(full.mean[:, 2:], rest.mean, rtol=1e-5, atol=1e-4)
    assert regret(truth, full.best).max() < 0.1


def test_points_of_little_noise_keep_their_small_differences():
    """Half of the points vary a hundred times more; the others lose with the rate."""
    truth = np.empty((12, 5))
    # The first setting is the best of the quiet points, the fourth one of the loud ones.
    truth[:6] = 2 + 0.02 * (RATES + 0.8)
    truth[6:] = 2 + (RATES - 0.4) ** 2
    noise = normal(0, 12, 5)
    noise[:6] *= 0.001
    noise[6:] *= 0.1
    best = together(truth + noise)
    of_quiet = regret(truth, best)[:6]
    assert of_quiet.max() < 0.016


def test_a_point_that_differs_clearly_keeps_its_own_minimum():
    for seed in range(20):
        truth = parabolas(12, seed)
        # Its best setting is the first one.
        truth[3] = 2 + 0.8 * (RATES + 0.8) ** 2
        losses = noisy(truth, seed)
        lost = regret(losses, together(losses))
        assert lost[3] < 6 * NOISE


def test_further_settings_near_the_best_do_not_hide_that_a_point_differs():
    """One point likes a setting outside the shared ones and has tried one beyond it, too."""
    x = np.append(X, [[1.0]], 0)
    odd = 3
    lost = np.array(rows(CASES, "odd_point"))
    chosen = []
    least = []
    for seed in range(24):
        truth = np.full((12, 6), np.nan)
        usual = parabolas(12, seed, spread=0.05)
        truth[:, :4] = usual[:, :4]
        truth[odd] = 2 + lost
        losses = noisy(truth, seed)
        fit = fit_responses(losses, x, shared=4)
        chosen.append(fit.best[odd])
        least.append(losses[odd].argmin())
    assert lost[chosen].mean() < 3 * lost[least].mean()


def test_a_slope_is_not_continued_beyond_the_settings_that_all_points_have():
    """One point tries a further setting, which is measured to be worse: it is measured again."""
    challenged = 0
    for seed in range(5):
        losses = np.full((8, 5), np.nan)
        losses[:, :4] = 2 - 0.15 * RATES[:4]
        losses[0, 4] = losses[0, 3] + 0.02
        rng = RNG([seed, 2])
        noise = rng.standard_normal(losses.shape)
        losses += 0.01 * noise
        fit = fit_responses(losses, X, shared=4)
        # Its setting may be measured to be better by chance.
        least = losses[0].argmin()
        assert fit.best[0] == least
        if least != 4:
            challenged += fit.challenger[0] == 4
        losses[0, 4] -= 0.12
        better = fit_responses(losses, X, shared=4)
        assert better.best[0] == 4
    assert challenged > 1


def test_a_lucky_seed_does_not_keep_the_choice_at_the_end_of_the_settings_that_all_points_have():
    """Settings beyond the shared ones, with further ones beyond them, are measured, not guessed."""
    own = np.linspace(0.1, 1, 8)
    place = np.concatenate([RATES[:3], own])
    # The best setting is 0.6; the last shared one, 0, is 0.02 nats worse.
    truth = 2 + 0.06 * (place - 0.6) ** 2
    luck = np.zeros((6, len(place)))
    luck[0, 2] = -0.05
    lost = []
    for seed in range(8):
        losses = noisy(truth + luck, seed, sd=0.01)
        fit = fit_responses(losses, place[:, None], shared=3)
        lost.append(truth[fit.best[0]] - truth.min())
    assert np.mean(lost) < 0.01


def test_the_best_of_two_fields_may_be_where_nothing_was_tried():
    rng = RNG(1)
    x = rng.uniform(-1, 0, (6, 2))
    squares = (x - 0.4) ** 2
    noise = 0.01 * rng.normal(size=(5, 6))
    y = squares.sum(1) + noise
    anywhere = rng.uniform(-1, 1, (16, 2))
    tried = fit_responses(y, x)
    whole = fit_responses(y, x, elsewhere=anywhere)
    assert whole.order.tolist() == tried.order.tolist()
    # The loss is 0 where both fields are 0.4.
    added = y.min(1)
    assert (tried.tuning_sd < 0.1 * added).all()
    assert (whole.tuning_sd > 0.4 * added).all()


TWO_OPTIMA = [2.0, 2.04, 2.1, 2.03, 2.08]


@pytest.mark.parametrize("seed", range(5))
def test_a_second_optimum_that_the_points_share_is_stated(seed):
    truth = np.tile(TWO_OPTIMA, (6, 1))
    losses = noisy(truth, seed, sd=0.01)
    fit = fit_responses(losses, X)
    spread = np.ptp(losses, 1)
    np.testing.assert_allclose(fit.tuning_sd, spread)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("points", "two"), [(6, 1), (6, 0), (2, 2)])
def test_a_second_optimum_of_one_point_or_of_two_points_may_be_luck(points, two, seed):
    truth = np.empty((points, 5))
    truth[:] = 2 + 0.05 * RATES**2
    truth[:two] = TWO_OPTIMA
    losses = noisy(truth, seed, sd=0.01)
    fit = fit_responses(losses, X)
    assert fit.tuning_sd.max() < 0.04


@pytest.fixture
def with_gaps():
    """Losses (7, 9) of five settings and of four between them; the last point has one optimum."""
    truth = np.tile(TWO_OPTIMA, (7, 1))
    truth[6] = 2 + 0.2 * RATES**2
    losses = noisy(truth, 5, sd=0.01)
    return with_means_of_neighbours(losses)


def with_means_of_neighbours(x):
    between = (x[..., :-1] + x[..., 1:]) / 2
    return np.append(x, between, -1)


@pytest.fixture
def stated_with_gaps(with_gaps):
    rates = with_means_of_neighbours(RATES)
    fit = fit_responses(with_gaps, rates[:, None], shared=5)
    return fit.tuning_sd


def test_settings_in_the_gaps_hide_less_of_two_optima(with_gaps, stated_with_gaps):
    measured = with_gaps[:6, :5]
    spread = np.ptp(measured, 1)
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
        losses = noisy(truth, seed)
        fit = fit_responses(losses, X, shared=shared)
        chosen.append(regret(truth, fit.best))
        stated.append(fit.tuning_sd**2)
    repeated = np.var(chosen, 0).mean()
    ratio = np.mean(stated) / repeated
    assert 0.25 < ratio < 4


@given(seed=st.integers(0, 50), points=st.integers(1, 6))
@settings(max_examples=15)
def test_the_order_and_the_level_of_the_points_do_not_matter(seed, points):
    truth = parabolas(points, seed)
    losses = noisy(truth, seed)
    order = RNG(seed).permutation(points)
    level = 3 * normal(seed, points, 1)
    raised = losses + level
    fit = fit_responses(losses, X)
    moved = fit_responses(raised[order], X)
    expected = fit.mean + level
    np.testing.assert_allclose(moved.mean, expected[order], atol=1e-4)
    # The larger the losses are, the larger are the differences that count as ties.
    chosen = of_setting(fit.mean[order], moved.best)
    least = of_setting(fit.mean, fit.best)
    np.testing.assert_allclose(chosen, least[order], atol=10 * TIE)


@given(seed=st.integers(0, 50))
@settings(max_examples=15)
def test_a_missing_or_diverged_setting_is_not_chosen(seed):
    truth = parabolas(6, seed)
    losses = noisy(truth, seed)
    rng = RNG(seed)
    for row in losses:
        missing, diverged, *_ = rng.permutation(5)
        row[missing] = np.nan
        row[diverged] = np.inf
    fit = fit_responses(losses, X)
    chosen = of_setting(losses, fit.best)
    for numbers in (chosen, fit.mean, fit.tuning_sd):
        assert np.isfinite(numbers).all()


@cases(CASES, "cliffs", "losses")
@pytest.mark.parametrize("points", [1, 2, 6])
def test_a_cliff_does_not_hide_the_measured_minimum(losses, points):
    truth = parabolas(points, 3)
    study = noisy(truth, 3)
    study[0] = losses
    best = together(study)
    assert best[0] == np.argmin(losses)


def test_runs_with_a_new_seed_settle_what_one_seed_leaves_open():
    """The two best settings of each point, measured four times more with seeds that they share."""
    once = []
    more = []
    seeds = np.tile(rows(CASES, "seeds_of_runs"), (12, 1))
    first_settings = np.tile(np.arange(5), (12, 1))
    for truth, losses in STUDIES[:6]:
        first = fit_responses(losses, X)
        two_best = np.stack([first.best, first.challenger], 1)
        again = np.tile(two_best, 4)
        # Four more runs of each of two settings.
        expected = np.take_along_axis(truth, again, 1)
        of_again = expected + NOISE * normal(7, 12, 8)
        settings = np.append(first_settings, again, 1)
        both = np.append(losses, of_again, 1)
        fit = fit_responses(both, X[settings], seeds=seeds, shared=5)
        chosen = of_setting(settings, fit.best)
        more.append(regret(truth, chosen))
        once.append(regret(truth, first.best))
    assert np.mean(more) < 0.8 * np.mean(once)


def test_runs_that_stopped_early_inform_the_fit_and_are_not_chosen():
    stopped = []
    full = []
    for truth, losses in STUDIES[:6]:
        early = losses + 0.5 + 0.1 * RATES
        worst = early.max(1, keepdims=True)
        known = np.where(early == worst, np.nan, losses)
        fit = fit_responses(known, X, early=early)
        chosen = of_setting(known, fit.best)
        assert np.isfinite(chosen).all()
        stopped.append(regret(truth, fit.best))
        of_all = together(losses)
        full.append(regret(truth, of_all))
    assert np.mean(stopped) < np.mean(full) + 0.003


@pytest.mark.parametrize("seed", range(4))
def test_a_point_that_still_falls_does_not_predict_the_stopped_runs_of_the_others(seed):
    truth = parabolas(8, seed)
    losses = noisy(truth, seed, sd=0.002)
    early = losses + 0.01
    # Its task is solved late, and best at low rates.
    early[0] = 2.0
    losses[0] = [0.2, 0.9, 0.7, 1.7, 1.6]
    losses[:, 0] = np.nan
    fit = fit_responses(losses, X, early=early)
    of_others = fit_responses(losses[1:], X, early=early[1:])
    np.testing.assert_allclose(fit.mean[1:, 0], of_others.mean[:, 0], atol=0.03)


@pytest.mark.parametrize("seed", range(4))
def test_a_point_that_fails_with_some_seeds_is_not_called_sure_among_points_that_do_not(seed):
    losses = noisy(1e-4 * parabolas(8, seed), seed, sd=1e-5)
    losses[0] = [0.6, 0.05, 0.02, 0.37, 0.56]
    assert fit_responses(losses, X).tuning_sd[0] > 0.002


@pytest.mark.parametrize("trained", [2, 3])
def test_a_stopped_run_informs_the_fit_if_the_variance_of_its_prediction_is_known(trained):
    """Three runs leave one degree of freedom after a level and a slope."""
    runs = trained + 1
    x = X[:runs]
    both = np.array(rows(CASES, "stopped"))
    # Of one point.
    losses, early = both[:, None, :runs]
    losses[:, trained] = np.nan
    fit = fit_responses(losses, x, early=early)
    # Only the run that stopped early differs.
    early[:, trained] += 0.1
    other = fit_responses(losses, x, early=early)
    says_nothing = np.array_equal(fit.mean, other.mean)
    assert says_nothing == (trained == 2)


@cases(CASES, "without_a_difference", "losses")
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
    found = regret(truth, fit.best)
    assert found.mean() < 0.3 * lucky.mean()
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
        # A quarter of the settings is that of all points.
        x[:, :25] = x[0, :25]
        best = 0.2 * rng.standard_normal((12, 1, fields))
        from_best = x - best
        squares = from_best**2
        first = from_best[..., 0]
        beyond_wall = np.maximum(first - 0.3, 0)
        steep = wall * beyond_wall**0.7
        truth = 2 + 0.2 * squares.sum(-1) + steep
        losses = noisy(truth, seed)
        fit = fit_responses(losses, x, shared=25)
        regrets[seed] = regret(truth, fit.best)
        lucky[seed] = regret(truth, measured(losses))
        stated[seed] = fit.tuning_sd
    points = regrets.size
    exceeding = (regrets > 4 * stated).sum()
    error = (points * 3 / 16) ** 0.5
    assert exceeding < points / 4 + 3 * error
    differ = (regrets != lucky).sum()
    better = (regrets < lucky).sum()
    error = (differ / 4) ** 0.5
    assert better > differ / 2 + 3 * error


@pytest.mark.parametrize(("count", "most"), [(7, 0.0024), (9, 0.0013)])
def test_more_settings_make_a_better_choice_and_its_error_is_stated(count, most):
    ends_and_middles = np.linspace(-1, 1, 2 * count + 1)
    # The middles of equal cells.
    rates = ends_and_middles[1::2]
    added = []
    stated = []
    for seed in range(12):
        rng = RNG([seed, count])
        best = 0.15 + 0.2 * rng.standard_normal((8, 1))
        truth = 0.12 * (rates - best) ** 2
        noise = 0.015 * rng.standard_normal(truth.shape)
        fit = fit_responses(truth + noise, rates[:, None])
        # The least loss is 0, at a setting that nobody tried.
        added.append(of_setting(truth, fit.best))
        stated.append(fit.tuning_sd)
    assert np.mean(added) < most
    lost = np.square(added)
    variances = np.square(stated)
    assert lost.mean() < 1.6 * variances.mean()
