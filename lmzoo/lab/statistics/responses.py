r"""Responses: how the loss of each point depends on its setting, fitted to all points together.

One training of each setting says little: the spread between seeds exceeds the difference between
neighbouring settings. So a point borrows strength from neighbouring settings and from the other
points of its study. The loss of point p at setting x with training seed s is modelled as

    y_ps(x) = μ_p + g(x) + t_p(x) + u_ps + ε
    g   ~ GP(0, σ_g² k(x, x'; ℓ_g))     what the points have in common
    t_p ~ GP(0, σ_t² k(x, x'; ℓ_t))     how an ordinary point deviates, probability 1 − DEVIANT
    t_p ~ GP(0, max(σ_d, σ_t)² k(x, x'; ℓ_d))   a point that differs, probability DEVIANT
    u, ε ~ N(0, σ²),   k(x, x'; ℓ) = exp(−|x − x'|² / 2ℓ²)

with a wide prior for μ_p. Settings that are trained with the same seed share u_ps, because their
losses are correlated by about a half. σ_g, σ_t, σ, ℓ_g and ℓ_t maximise a lower bound of the
marginal likelihood, in which g and the kinds of the points are independent (mean field), times
weak priors. x is in [−1, 1] along each searched field; the priors expect ℓ_g ≈ 1 and ℓ_t ≈ 1.5,
half and three quarters of the range. Repeated trainings of a setting are further observations.

The points of a study differ in how much their losses vary, with the setting and with the seed. So
the losses of a point are divided by its height h_p, which is a geometric mean with the median over
the points, because one point's own range is a noisy estimate:

    d_p = third best y_p − best y_p,   h_p = CAP · √(d_p · median_q d_q)

Here y_p are the losses of the shared settings: a further good setting near the best one says
nothing of the height, and would hide that a point differs. Of nine shared settings or more the best
third takes the place of the third best: among many settings these differ by the noise only.
The noise of a point with a large height is at most that of the median point. A response is smooth
near its minimum only. So a loss above min_x y_p(x) + h_p is lowered to this value before the fit,
and a setting beyond a cliff, whose loss exceeds the best one by `CLIFF` times the noise, is left
out, as is a diverged one. Here the noise is bounded without the fit, by the small differences
between neighbouring settings. A height is at least this bound.

A second optimum is seen where the shared settings of one range have a worse one between two better
ones: by a t-test over the points of its excess over the worse neighbour, because in one point this
is luck. How deep the optima are between these settings is then unknown, up to the range R of their
losses; stated is R min(1, gap/gap_0)², with the largest gaps between all settings of the point and
between the shared ones.

The chosen setting has the least posterior mean. A setting is ruled out if its own mean loss exceeds
the best one of the point by `NEAR` standard deviations of their difference: measurements that are
clear are never overruled. So is the first or last setting of the point, if it is outside the shared
ones, one field is searched and its own mean loss is not the least of the point: a smooth fit
continues a slope beyond a cliff. It may be the challenger. Where the noise is unknown, the least
measured loss is chosen.

A run that was stopped early has the final loss e_pj + a_p + b_j, where e_pj is its loss at the
rung; a_p and b_j, which is linear in x_j, are fitted to the runs that were trained to the end. The
deviation of a point is taken as proportional to how far its losses still fall, so that one that
fails with some seeds does not predict the others. A stopped run informs the fit, with the variance
of this prediction, and is not chosen.

Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, chapter 2; Swersky et al. 2013
(NeurIPS 26) share a process among tasks; Quiñonero-Candela and Rasmussen 2005 (JMLR 6): g at
settings that only some points have follows from g at the shared ones.
"""

from math import inf, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from lmzoo.lab.statistics.intervals import (
    Array,
    Indices,
    Mask,
    mean_and_error,
    undefined_is_nan,
)
from lmzoo.lab.statistics.ties import settled

CAP = 4.0
"""Height of the cap, in distances of the third best setting, or best third, from the best.

With 2, seven settings or more gave a worse choice than five, and a third of its error was stated.
"""
RANGE = 8.0
"""Largest ratio, and its inverse the smallest, of a point's distance to the median one.

A cliff among the three best settings does not make the point high.
"""
CLIFF = 10.0
"""Distance from the best setting, in units of the noise, above which a setting is left out."""
NEAR = 3.0
"""Distance from the best setting, in standard deviations, above which a setting is ruled out."""
DEVIANT = 0.1
"""Probability of a point that differs from the others."""
SIGMA_D = 0.7
ELL_D = 0.6
ALIKE = 2.0
"""Ratio of the noise bounds of two points that chance explains."""
CAUTION = 1.5
"""The noise bound is multiplied by this, because few differences are known."""
CONSTANT = 1.0
"""Prior standard deviation of μ_p around the mean of the point's losses, in units of the range."""
SECOND = 0.95
"""Level of the test for a second optimum."""
DRAWS = 200
"""Draws from the posterior."""
MOST = 64
"""Points whose losses decide the hyperparameters. The fit itself reads all runs."""
SETTINGS = 32
"""Settings of each of them; fewer points give more settings at the same cost, P N³."""
STEPS = 3
"""Mean-field updates of the kinds of the points."""
PRIOR = np.log([1.0, 0.3, 1.0, 1.5, 0.5])
"""Centre of the priors of log σ_g, log σ_t, log ℓ_g, log ℓ_t, log σ; losses have the cap 1."""
PRIOR_SD = np.array([1.0, 1.0, 0.3, 0.3, 1.0])
SAME = 1e-9
"""Coordinates that differ by less are those of one setting."""


class Responses(NamedTuple):
    """The fitted responses of P points, each with N runs."""

    mean: Array
    """Posterior mean of μ_p + g + t_p at the setting of each run, (P, N), in nats."""
    order: Indices
    """The runs in the order of their posterior means, those that are ruled out last, (P, N)."""
    challenger: Indices
    """The run whose setting is the most likely to be better than the chosen one, (P,).

    It is that of the least measured loss if this is another setting. A run that was stopped early
    may be one. It is the chosen run itself if there is no other setting.
    """
    regret: Array
    """Expected loss of the chosen setting less that of the best one tried, (P,), in nats."""
    tuning_sd: Array
    """Root mean square of the loss that the choice adds, (P,), in nats per token.

    The loss is that of the chosen setting less the least one of the settings that are not ruled out
    and, if one range is searched, between them and their neighbours, and up to the bound of the
    range if the chosen setting is the first or last tried; if several are, of settings that fill
    the space. So it contains the noise and the bias of the choice and the error of the grid. A
    point with a second optimum has at least what that may hide.
    """

    @property
    def best(self) -> Indices:
        """A run with the chosen setting, (P,)."""
        return self.order[:, 0]


def fit_responses(
    losses: ArrayLike,
    settings: ArrayLike,
    *,
    seeds: ArrayLike | None = None,
    early: ArrayLike | None = None,
    elsewhere: ArrayLike | None = None,
    shared: int = 0,
) -> Responses:
    """Fit the responses of the points of a study that share their first settings.

    Args:
        losses: (P, N), one training each; infinity for a diverged run, NaN for one that is missing
            or was stopped early. Each point needs one finite loss.
        settings: Coordinates of the settings in [−1, 1], (N, D) or (P, N, D).
        seeds: Number of the training seed of each run, (P, N); None: one seed for each point.
        early: Losses at the rung, (P, N); not finite for runs that have none.
        elsewhere: Settings of the whole space, (M, D), among which the best one may be; None: those
            around the chosen one, if one field is searched.
        shared: The number of first settings that all points have; 0: all.
    """
    y = settled(losses)
    assert np.isfinite(y).any(1).all()
    points, count = y.shape
    x = np.asarray(settings, np.float64)
    shape = (points, count, x.shape[-1])
    x = np.broadcast_to(x, shape)
    if early is not None:
        early = settled(early)
    runs = _Runs.read(y, x, seeds, early, shared or count)
    if count < 2 or not runs.height.any():
        return _as_measured(y, runs)
    fit = _Fit(runs)
    near = runs.near(fit.noise)
    in_heights = fit.mean(x) + runs.centre
    nats = runs.least + runs.height * in_heights
    # What has no setting beyond it must be the best one that was measured, too.
    is_guess = runs.outside() & (runs.mean > runs.least)
    is_out = is_guess | ~near
    # The last key comes first: what has no loss is last.
    keys = (settled(nats), is_out, np.isinf(y), np.isnan(y))
    order = np.lexsort(keys)
    best = order[:, 0]
    rng = np.random.default_rng(0)
    neighbours = _around(x, best)
    drawn = fit.draw(np.concatenate([x, neighbours], 1), rng)
    possible = near | (runs.known & ~runs.trained)
    of_runs = drawn[..., :count]
    within = np.where(possible, of_runs, inf)
    rows = np.arange(points)
    chosen = drawn[:, rows, best]
    gains = chosen[..., None] - within
    challenger = _challengers(runs, best, gains)
    regret = chosen - within.min(2)
    if elsewhere is not None:  # drawn apart: no plan depends on it
        whole = np.broadcast_to(elsewhere, (points, *np.shape(elsewhere)))
        drawn = fit.draw(np.concatenate([x, whole], 1), rng)
        of_runs = drawn[..., :count]
        chosen = drawn[:, rows, best]
    of_runs[:, ~possible] = inf
    added = chosen - drawn.min(2)
    height = runs.height[:, 0]
    mean_square = (added**2).mean(0)
    tuning_sd = height * np.sqrt(mean_square)
    size = np.median(np.abs(runs.least))
    return Responses(
        mean=nats,
        order=order,
        challenger=challenger,
        regret=settled(height * regret.mean(0), size),
        tuning_sd=np.maximum(tuning_sd, runs.hidden()),
    )


def _as_measured(y: Array, runs: "_Runs") -> Responses:
    """Return responses without a fit: losses that do not differ, or single settings."""
    known = np.where(np.isnan(y), inf, y)
    order = np.argsort(known, 1, kind="stable")
    return Responses(
        mean=np.minimum(runs.mean, runs.least),
        order=order,
        challenger=order[:, 0],
        regret=np.zeros(len(y)),
        tuning_sd=runs.known_noise()[:, 0],
    )


def _challengers(runs: "_Runs", best: Indices, gains: Array) -> Indices:
    """Return the challenger of each point from draws of what a run gains, (DRAWS, P, N)."""
    rows = np.arange(len(best))
    gain = np.maximum(gains, 0).mean(0)
    is_chosen = runs.same[rows, best]
    # The chosen setting is no challenger, in whatever run.
    gain[is_chosen] = -1.0
    is_measured = runs.trained & runs.known
    measured = np.where(is_measured, runs.mean, inf)
    measured_best = measured.argmin(1)
    most_likely = gain.argmax(1)
    is_same = is_chosen[rows, measured_best]
    challenger = np.where(is_same, most_likely, measured_best)
    has_other = gain.max(1) > 0
    return np.where(has_other, challenger, best)


class _Runs(NamedTuple):
    """The runs of all points, their settings and what the fit reads of them."""

    x: Array
    trained: Mask
    """Runs that were trained to the end and did not diverge, (P, N)."""
    known: Mask
    """Runs that the fit reads."""
    same: Mask
    """Whether two runs of a point have the same setting, (P, N, N)."""
    one_seed: Mask
    """Whether two runs of a point have the same training seed, (P, N, N)."""
    mean: Array
    """Mean loss of the runs of a setting, (P, N)."""
    least: Array
    """The least of the means, (P, 1)."""
    height: Array
    noise: Array
    """Bound of the noise from differences between neighbours, (P, 1)."""
    variance: Array
    """Variance of a predicted loss, in units of the height, (P, N)."""
    ratio: Array
    """Noise of the point in units of its height, over that of the median point, (P, 1)."""
    centre: Array
    z: Array
    """Losses in units of the height, capped and centred, 0 where unknown, (P, N)."""
    shared: int

    @staticmethod
    def read(
        y: Array,
        x: Array,
        seeds: ArrayLike | None,
        early: Array | None,
        shared: int,
    ) -> "_Runs":
        trained: Mask = np.isfinite(y)
        variance = np.zeros_like(y)
        if early is not None:
            y, variance = _predict(y, early, x)
        finite: Mask = np.isfinite(y)
        same = _equal_settings(x, finite)
        mean = _setting_means(np.where(finite, y, 0.0), same)
        mean[~finite] = inf
        # A predicted loss is no measured one.
        measured = np.where(trained, mean, inf)
        least = measured.min(1, keepdims=True)
        several = shared
        if several < 2:  # one setting has neither noise nor height
            several = y.shape[1]
        diverged: Mask = np.isinf(y[:, :several])
        own = np.arange(y.shape[1])
        # Of the runs of a setting, the first one stands for it.
        first = finite & (same.argmax(2) == own)
        of_settings = np.where(first, mean, nan)
        noise = _noise_bound(of_settings[:, :several], x[:, :several], diverged)
        # A cliff is no smooth response.
        known = finite & (mean <= least + CLIFF * noise)
        smooth = np.where(first & known, mean, inf)
        height = _heights(smooth[:, :several])
        # The median would make a point that fails with some seeds too low.
        is_low = np.isfinite(noise) & (height > 0)
        height = np.where(is_low, np.maximum(height, noise), height)
        scale = np.where(height > 0, height, 1.0)
        excess = np.where(known, y - least, 0.0)
        # Capped: far from the best, only the direction matters.
        z = np.minimum(excess / scale, 1.0)
        runs = known.sum(1, keepdims=True)
        total = (z * known).sum(1, keepdims=True)
        centre = total / runs
        group = np.zeros(y.shape)
        if seeds is not None:
            group = np.asarray(seeds)
        return _Runs(
            x=x,
            trained=trained,
            known=known,
            same=same,
            one_seed=group[:, :, None] == group[:, None],
            mean=mean,
            least=least,
            height=height,
            noise=noise,
            variance=variance / scale**2,
            ratio=np.minimum(1.0, np.median(height) / scale),
            centre=centre,
            z=np.where(known, z - centre, 0.0),
            shared=shared,
        )

    def near(self, sigma: float) -> Mask:
        """Return which runs are not ruled out for noise `sigma`, in heights, (P, N)."""
        trained = self.same & self.trained[:, None]
        # Two trainings of a setting have half the variance.
        repeats = np.maximum(trained.sum(2), 1)
        usable = self.known & self.trained
        measured = np.where(usable, self.mean, inf)
        best = measured.argmin(1)[:, None]
        of_best = np.take_along_axis(repeats, best, 1)
        own = sigma * self.ratio * self.height
        nats = np.minimum(own, self.known_noise())
        sd = nats * np.sqrt(1 / repeats + 1 / of_best)
        return usable & (self.mean <= self.least + NEAR * sd)

    def known_noise(self) -> Array:
        """Return the bound of the noise, (P, 1); 0 where it is unknown, so that none is claimed."""
        is_known = np.isfinite(self.noise)
        return np.where(is_known, self.noise, 0.0)

    def outside(self) -> Mask:
        """Return which settings are outside the shared ones and have none beyond them, (P, N)."""
        place = self.x[..., 0]
        shared = place[:, : self.shared]
        measured = self.trained & self.known
        first = np.where(measured, place, inf).min(1, keepdims=True)
        last = np.where(measured, place, -inf).max(1, keepdims=True)
        is_below = (place < shared.min(1, keepdims=True)) & (place <= first)
        is_above = (place > shared.max(1, keepdims=True)) & (place >= last)
        # Settings of several fields have no order.
        return (is_below | is_above) & (self.x.shape[2] == 1)

    def hidden(self) -> Array:
        """Return the loss that a second optimum may hide, (P,); 0 for points that have none."""
        fields = self.x.shape[2]
        # Two neighbours and a middle.
        if self.shared < 3 or fields != 1:
            return np.zeros(len(self.x))
        place = self.x[..., 0]
        order = np.argsort(place[0, : self.shared])
        known = np.where(self.known, self.mean, nan)
        losses = known[:, order]
        before = losses[:, :-2]
        after = losses[:, 2:]
        excess = losses[:, 1:-1] - np.maximum(before, after)
        # Over the points: in one point a hump is luck.
        count, mean, error = mean_and_error(excess.T)
        with undefined_is_nan():
            is_large = mean / error > special.stdtrit(count - 1, SECOND)
        shown = (count > 2) & is_large
        # Nobody has measured how deep the optima are within a gap between settings.
        shared_gap = np.diff(place[0, order]).max()
        gaps = np.diff(np.sort(place, 1))
        gap = np.minimum(gaps.max(1) / shared_gap, 1.0)
        most = np.fmax.reduce(losses, 1)
        span = most - np.fmin.reduce(losses, 1)
        has_two = (shown & (excess > 0)).any(1)
        return np.where(has_two, span * gap**2, 0.0)


def _equal_settings(x: Array, finite: Mask) -> Mask:
    """Return whether two runs of a point have the same setting and a loss, (P, N, N)."""
    distance = np.abs(x[:, :, None] - x[:, None])
    is_same = (distance < SAME).all(-1)
    both_finite = finite[:, :, None] & finite[:, None]
    # A diverged run repeats nothing.
    return is_same & both_finite


def _setting_means(losses: Array, same: Mask) -> Array:
    """Return the mean loss of the runs with the setting of each run, (P, N)."""
    of_setting = np.where(same, losses[:, None], 0.0)
    count = np.maximum(same.sum(2), 1)
    return of_setting.sum(2) / count


def _predict(y: Array, early: Array, x: Array) -> tuple[Array, Array]:
    """Return the losses with predicted ones of the runs stopped early, and their variances.

    y − early = a_p + b(x_j) with b linear in the setting, by least squares. The size of a point's
    residuals is that of its y − early, if this is more than that of the median point.
    """
    is_early: Mask = np.isfinite(early)
    both = is_early & np.isfinite(y)
    count = both.sum(1)
    has_both = count > 0
    wanted = is_early & np.isnan(y) & has_both[:, None]
    if not wanted.any():
        return y, np.zeros_like(y)
    # Centred within each point, so that a_p falls out of the least squares.
    point, run = np.nonzero(both)
    later = np.zeros_like(y)
    later[both] = y[both] - early[both]
    runs = np.maximum(count, 1)
    of_both = np.where(both[..., None], x, 0.0)
    centre = of_both.sum(1) / runs[:, None]
    level = later.sum(1) / runs
    # A point that is still falling says little about those that have ended.
    size = np.sqrt((later**2).sum(1) / runs)
    size = np.maximum(size, np.median(size[has_both]))
    size = np.where(size > 0, size, 1.0)
    distance = x[point, run] - centre[point]
    design = distance / size[point, None]
    rest = (later[point, run] - level[point]) / size[point]
    # Pseudoinverse: a field may be constant where both losses are known.
    inverse = np.linalg.pinv(design.T @ design)
    slope = inverse @ design.T @ rest
    parameters = has_both.sum() + np.linalg.matrix_rank(design)
    freedom = len(point) - parameters
    if freedom < 1:
        return y, np.zeros_like(y)
    residual = rest - design @ slope
    variance = (residual**2).sum() / freedom
    point, run = np.nonzero(wanted)
    far = x[point, run] - centre[point]
    # Prediction far from the fitted settings is less sure.
    of_slope = np.einsum("ni,ij,nj->n", far, inverse, far)
    predicted = early[point, run] + level[point]
    y = y.copy()
    y[point, run] = predicted + far @ slope
    of_prediction = size[point] ** 2 * (1 + 1 / runs[point]) + of_slope
    variances = np.zeros_like(y)
    variances[point, run] = variance * of_prediction
    return y, variances


def _heights(means: Array) -> Array:
    """Return the height of the cap above each point's least loss, (P, 1); 0 if no losses differ."""
    ordered = np.sort(means, 1)
    points, settings = means.shape
    best = ordered[:, 0]
    best = np.where(np.isfinite(best), best, 0.0)
    # The second best where most settings diverged.
    for place in (max(2, settings // 3), 2, 1):
        if place >= settings:
            continue
        distance = ordered[:, place] - best
        if np.isfinite(distance).any():
            return CAP * _with_median(distance)
    return np.zeros((points, 1))


def _noise_bound(means: Array, x: Array, diverged: Mask) -> Array:
    """Return a bound of the noise of each point, (P, 1); infinity if nothing is known.

    The differences between neighbouring settings contain the noise of both; the second differences
    of one range, over √3, have the same variance. The lower quartile of their sizes, over that of
    |N(0, 2)| at its rank, is about the noise if the response is flat or straight, and more if it is
    not. It is multiplied by `CAUTION`. Points within a factor `ALIKE` of the median one count as
    equally noisy. A point of which a setting diverged has the noise of the median point if it has
    fewer than four others.
    """
    bounds = np.full(len(means), nan)
    for point, losses in enumerate(means):
        known = np.isfinite(losses)
        least = 2
        if diverged[point].any():
            least = 4
        if known.sum() < least:
            continue
        size = _neighbour_differences(losses[known], x[point, known])
        rank = len(size) // 4
        share = (rank + 0.7) / (len(size) + 0.4)
        quantile = float(special.ndtri(0.5 + 0.5 * share))
        # Of this order statistic, if there were noise only.
        expected = quantile * 2**0.5
        bounds[point] = CAUTION * size[rank] / expected
    median = 0.0
    if np.isfinite(bounds).any():
        median = float(np.nanpercentile(bounds, 50, method="lower"))
    if not median:
        return np.full((len(means), 1), inf)
    filled = np.where(np.isnan(bounds), median, bounds)
    ratio = np.clip(filled / median, 1e-6, 1e6)
    far = np.log(ratio)
    beyond_chance = np.abs(far) - np.log(ALIKE)
    # Bounds that chance explains become the median one.
    far = np.sign(far) * np.maximum(beyond_chance, 0.0)
    return (median * np.exp(far))[:, None]


def _neighbour_differences(losses: Array, x: Array) -> Array:
    """Return sizes of differences between neighbouring settings (N, D), the least first."""
    if x.shape[1] == 1:
        ordered = losses[np.argsort(x[:, 0])]
        first = np.diff(ordered)
        second = np.diff(ordered, 2) / 3**0.5
        differences = np.concatenate([first, second])
    else:
        apart = x[:, None] - x
        distance = (apart**2).sum(-1)
        np.fill_diagonal(distance, inf)
        differences = losses - losses[distance.argmin(1)]
    return np.sort(np.abs(differences))


def _with_median(distances: Array) -> Array:
    """Return the geometric mean of each value and the median; the median for unknown ones."""
    known = np.isfinite(distances)
    median = float(np.median(distances[known]))
    # A point whose third best setting diverged is like the others.
    filled = np.where(known, distances, median)
    clipped = np.clip(filled, median / RANGE, median * RANGE)
    return np.sqrt(clipped * median)[:, None]


class _Fit:
    """The hyperparameters, and the posterior that they give.

    g is represented by its values at the shared settings s: g(x) = B g(s), B = K_g[x, s] K_g⁻¹.
    Given g, the points and their two kinds c are independent. With the covariance D_pc of the runs
    of point p, weighted by the probability w_pc of the kind, g(s) has the precision
    A = K_g⁻¹ + Σ w B'D⁻¹B and the mean A⁻¹ Σ w B'D⁻¹ z.
    """

    def __init__(self, runs: _Runs):
        self.runs = runs
        self._shared = runs.x[0, _evenly(runs.shared, MOST)]
        points, count = runs.z.shape
        few = _evenly(points, MOST)
        # N³ P stays the same.
        more = (MOST / len(few)) ** (1 / 3)
        some = _evenly(count, int(SETTINGS * more))
        reach = 3 * PRIOR_SD
        found = optimize.minimize(
            self._solve,
            PRIOR,
            (np.ix_(few, some),),
            method="L-BFGS-B",
            bounds=np.transpose([PRIOR - reach, PRIOR + reach]),
            options={"maxiter": 40, "ftol": 1e-6},
        )
        self.noise = float(np.exp(found.x[-1]))
        all_runs = np.ix_(range(points), range(count))
        # Again with all runs, for the posterior.
        self._solve(found.x, all_runs)

    def mean(self, x: Array) -> Array:
        """Return the posterior means at settings (P, M, D), (P, M)."""
        means, _ = self._posterior(x)
        return (self._weights[..., None] * means).sum(0)

    def draw(self, x: Array, rng: np.random.Generator) -> Array:
        """Return draws from the posterior at settings (P, M, D), (DRAWS, P, M)."""
        means, covariances = self._posterior(x)
        _, points, count = means.shape
        noise = rng.standard_normal((DRAWS, points, count))
        share = self._weights[0]
        chance = rng.random((DRAWS, points, 1))
        value, vector = np.linalg.eigh(covariances)
        # Rounding makes some eigenvalues negative.
        sd = np.sqrt(np.maximum(value, 0))
        root = vector * sd[..., None, :]
        around = root @ noise.transpose(1, 2, 0)
        drawn = around.transpose(0, 3, 1, 2) + means[:, None]
        # Each draw of a point is of one of its kinds.
        is_ordinary = chance < share[:, None]
        return np.where(is_ordinary, drawn[0], drawn[1])

    def _posterior(self, x: Array) -> tuple[Array, Array]:
        """Return means (2, P, M) and covariances (2, P, M, M) of the two kinds."""
        known = self.runs.known[:, None]
        b = self._onto(x)
        residual = self.runs.z - self._b @ self._g
        means = []
        covariances = []
        for inverse, kind in zip(self._inverses, self._kinds, strict=True):
            across = _of_kind(x, self.runs.x, kind)
            across = np.where(known, across, 0.0)
            gain = across @ inverse
            of_residual = np.einsum("pmn,pn->pm", gain, residual)
            means.append(b @ self._g + of_residual)
            prior = _of_kind(x, x, kind)
            given_g = prior - gain @ across.swapaxes(1, 2)
            rest = b - gain @ self._b
            of_g = rest @ self._covariance @ rest.swapaxes(1, 2)
            covariances.append(given_g + of_g)
        return np.array(means), np.array(covariances)

    def _onto(self, x: Array) -> Array:
        """Return B for settings x, (P, M, J)."""
        across = _kernel(x, self._shared[None], self._ell)
        return self._variance * across @ self._precision

    def _solve(self, hyper: Array, read: tuple[Indices, ...]) -> float:
        """Compute the posterior of g and the kinds; return minus the bound of the log posterior.

        `hyper` are the logarithms of σ_g, σ_t, ℓ_g, ℓ_t and σ; `read` are the points (P, 1) and the
        runs (1, N) that are read.
        """
        sigma_g, sigma_t, self._ell, ell_t, sigma = np.exp(hyper)
        self._variance = sigma_g**2
        deviant = max(SIGMA_D, sigma_t), ELL_D
        self._kinds = (sigma_t, ell_t), deviant
        prior = _kernel(self._shared, self._shared, self._ell)
        prior += 1e-8 * np.eye(len(prior))  # settings that are close make it singular
        prior *= self._variance
        self._precision = np.linalg.inv(prior)
        z = self.runs.z[read]
        b = self._onto(self.runs.x[read])
        self._b = b
        covariances = self._covariances(sigma, read)
        inverses = self._inverses
        of_z = inverses @ z[..., None]
        _, log_determinant = np.linalg.slogdet(covariances)
        of_residual = (z * of_z[..., 0]).sum(2)
        size = log_determinant + of_residual
        across = b.swapaxes(1, 2)
        linear = (across @ of_z)[..., 0]
        square = across @ inverses @ b
        shares = np.log([[1 - DEVIANT], [DEVIANT]])
        weights = np.broadcast_to(np.exp(shares), size.shape)
        total, vector = self._update(weights, square, linear)
        # Kinds given g, then g given the kinds.
        for _ in range(STEPS - 1):
            outer = np.outer(self._g, self._g)
            second = outer + self._covariance
            of_square = (square * second).sum((2, 3))
            fit = size - 2 * linear @ self._g + of_square
            log = shares - 0.5 * fit
            # Without overflow.
            weights = np.exp(log - log.max(0))
            weights = weights / weights.sum(0)
            total, vector = self._update(weights, square, linear)
        self._weights = weights
        log_ratio = np.log(np.maximum(weights, 1e-300)) - shares
        deviation = (hyper - PRIOR) / PRIOR_SD
        of_prior = (deviation**2).sum()
        of_runs = (weights * size).sum()
        of_kinds = (weights * log_ratio).sum()
        unit = np.eye(len(prior))
        # |K_g A|: stable where K_g is nearly singular.
        _, of_g = np.linalg.slogdet(unit + prior @ total)
        value = 0.5 * of_prior + 0.5 * of_runs + of_kinds + 0.5 * of_g
        return float(value - 0.5 * vector @ self._g)

    def _covariances(self, sigma: float, read: tuple[Indices, ...]) -> Array:
        """Return D of the two kinds, (2, P, N, N), and keep its inverses, 0 for unknown runs."""
        few, some = read
        x = self.runs.x[read]
        known = self.runs.known[read]
        both = known[:, :, None] & known[:, None]
        pairs = few[..., None], some[..., None], some[:, None]
        one_seed = self.runs.one_seed[pairs]
        unit = np.eye(some.size)
        variance = sigma**2 * self.runs.ratio[few] ** 2
        # A seed's effect u and the rest ε have the variance σ² each.
        noise = variance * (one_seed + unit)
        predicted = self.runs.variance[read]
        noise += predicted[..., None] * unit
        covariances = [np.where(both, _of_kind(x, x, kind) + noise, unit) for kind in self._kinds]
        self._inverses = np.where(both, np.linalg.inv(covariances), 0.0)
        return np.array(covariances)

    def _update(self, weights: Array, square: Array, linear: Array) -> tuple[Array, Array]:
        """Compute the posterior of g for the probabilities of the kinds; return its sums."""
        total = np.tensordot(weights, square, 2)
        vector = np.tensordot(weights, linear, 2)
        precision = self._precision + total
        self._covariance = np.asarray(np.linalg.inv(precision))
        self._g = self._covariance @ vector
        return total, vector


def _of_kind(a: Array, b: Array, kind: tuple[float, float]) -> Array:
    """Return the covariance of μ_p + t_p of a kind (σ, ℓ) between settings."""
    sigma, ell = kind
    return sigma**2 * _kernel(a, b, ell) + CONSTANT**2


def _kernel(a: Array, b: Array, ell: float) -> Array:
    difference = a[..., :, None, :] - b[..., None, :, :]
    square = (difference**2).sum(-1)
    return np.exp(-0.5 * square / ell**2)


def _evenly(count: int, most: int) -> Indices:
    """Return at most `most` of the numbers 0 .. count − 1, evenly spaced."""
    places = np.linspace(0, count - 1, most).round()
    return np.unique(places.astype(int))


def _around(x: Array, best: Indices) -> Array:
    """Return settings between the chosen one and its neighbours or the bounds, (P, M, 1).

    There are none if several fields are searched.
    """
    if x.shape[2] != 1:
        return np.zeros((len(x), 0, x.shape[2]))
    tried = x[..., 0]
    centre = np.take_along_axis(tried, best[:, None], 1)
    below = np.where(tried < centre - SAME, tried, -inf)
    low = below.max(1, keepdims=True)
    lower_bound = np.minimum(-1.0, centre)
    low = np.where(np.isfinite(low), low, lower_bound)
    above = np.where(tried > centre + SAME, tried, inf)
    high = above.min(1, keepdims=True)
    upper_bound = np.maximum(1.0, centre)
    high = np.where(np.isfinite(high), high, upper_bound)
    share = np.array([0.25, 0.5, 0.75])
    to_low = centre + share * (low - centre)
    to_high = centre + share * (high - centre)
    places = np.concatenate([to_low, to_high], 1)
    return places[..., None]
