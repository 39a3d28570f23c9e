r"""Responses: how the loss of each point depends on its setting, fitted to all points together.

One training of each setting says little: the spread between seeds exceeds the difference between
neighbouring settings. So a point borrows strength from neighbouring settings and from the other
points of its study. The loss of point p at setting x is modelled as

    y_p(x) = μ_p + g(x) + t_p(x) + ε
    g   ~ GP(0, σ_g² k(x, x'; ℓ_g))     what the points have in common
    t_p ~ GP(0, σ_t² k(x, x'; ℓ_t))     how a point deviates
    ε   ~ N(0, σ²),   k(x, x'; ℓ) = exp(−|x − x'|² / 2ℓ²)

with a wide prior for μ_p. σ_g, σ_t, σ, ℓ_g and ℓ_t maximise the marginal likelihood times weak
priors. x is in [−1, 1] along each searched field; the priors expect ℓ_g ≈ 1 and ℓ_t ≈ 1.5, half and
three quarters of the range.

A loss far above the best one of its point is lowered before the fit to

    min_x y_p(x) + CAP · median_p(third best y_p − best y_p),

because the response is smooth near its minimum only. A diverged run has the loss infinity, which
becomes this value too.

The chosen setting has the least posterior mean. A setting is ruled out if its own loss exceeds the
best one of the point by `NEAR` σ or more: a point that differs from all others keeps its own
optimum.

Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, chapter 2; Swersky et al. 2013
(NeurIPS 26) share a process among tasks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, optimize

Array = NDArray[np.float64]

CAP = 2.0
"""Height of the cap, in median distances of the third best setting from the best."""
NEAR = 3 * 2**0.5
"""Observed distance from the best setting, in units of σ, above which a setting is ruled out."""
CONSTANT = 1.0
"""Prior standard deviation of μ_p around the mean of the point's losses, in units of the range."""
REPETITIONS = 400
"""Simulated repetitions of the tuning."""
PRIOR = np.log([1.0, 0.3, 1.0, 1.5, 0.5])
"""Centre of the priors of log σ_g, log σ_t, log ℓ_g, log ℓ_t, log σ; losses have the cap 1."""
PRIOR_SD = np.array([1.0, 1.0, 0.3, 0.3, 1.0])


@dataclass(frozen=True)
class Responses:
    """The fitted responses of P points at J settings."""

    mean: Array
    """Posterior mean of μ_p + g(x_j) + t_p(x_j), (P, J); losses above the cap count as the cap."""
    order: NDArray[np.int64]
    """The settings in the order of their posterior means, those that are ruled out last, (P, J)."""
    tuning_sd: Array
    """Standard deviation of the loss at the chosen setting if the tuning is repeated, (P,)."""

    @property
    def best(self) -> NDArray[np.int64]:
        """The chosen setting, (P,)."""
        return self.order[:, 0]


def fit_responses(losses: ArrayLike, settings: ArrayLike, seed: int = 0) -> Responses:
    """Fit the responses of the points of a study that share their settings.

    Args:
        losses: (P, J), one training each; infinity for a diverged run, NaN for one that is missing.
            Each point needs one finite loss.
        settings: Coordinates of the settings in [−1, 1], (J, D).
        seed: Random seed of the simulated repetitions.
    """
    losses, x = np.asarray(losses, np.float64), np.asarray(settings, np.float64)
    assert np.isfinite(losses).any(1).all()
    height = _cap_height(losses)
    least = np.where(np.isnan(losses), np.inf, losses).min(1, keepdims=True)
    if height == 0 or len(x) < 2:
        capped = np.minimum(losses, least + height)
        order = np.argsort(np.where(np.isnan(losses), np.inf, losses), 1, kind="stable")
        return Responses(capped, order, np.zeros(len(losses)))
    y = np.minimum((losses - least) / height, 1.0)
    known = ~np.isnan(y)
    centre = np.where(known, y, 0).sum(1, keepdims=True) / known.sum(1, keepdims=True)
    fit = _Fit(np.where(known, y - centre, 0.0), known, x)
    mean = fit.smooth(np.where(known, y - centre, 0.0))
    near = (losses - least) / height <= NEAR * fit.noise  # not if missing or diverged
    order = np.lexsort((mean, ~near))
    rng = np.random.default_rng(seed)
    truth = mean + fit.draw(REPETITIONS, rng)
    repeated = truth + fit.noise * rng.standard_normal(truth.shape)
    possible = np.where(np.isfinite(losses), 0.0, np.inf)
    near = repeated + possible <= (repeated + possible).min(2, keepdims=True) + NEAR * fit.noise
    again = np.argmin(np.where(near, fit.smooth(repeated), np.inf), 2)[..., None]
    regret = np.take_along_axis(truth, again, 2)[..., 0] - (truth + possible).min(2)
    return Responses(least + height * (mean + centre), order, height * regret.std(0))


def _cap_height(losses: Array) -> float:
    """Return the height of the cap above a point's least loss; 0 if no losses differ."""
    ordered = np.sort(np.where(np.isnan(losses), np.inf, losses), 1)
    finite = np.empty(0)
    for place in (2, 1):  # the second best where most settings diverged
        if not finite.size and place < losses.shape[1]:
            known = np.isfinite(ordered[:, place])
            finite = ordered[known, place] - ordered[known, 0]
    return CAP * float(np.median(finite)) if finite.size else 0.0


class _Fit:
    """The hyperparameters for centred losses (P, J), and the posterior that they give.

    The mean over the points and the deviations from it are independent if every point has all
    settings. A missing loss is replaced by its posterior mean, in a few iterations.
    """

    def __init__(self, y: Array, known: NDArray[np.bool_], x: Array) -> None:
        self._points, self._known = len(y), known
        self._square = ((x[:, None] - x[None]) ** 2).sum(-1)
        h, filled = PRIOR, y
        bounds = [(p - 3 * s, p + 3 * s) for p, s in zip(PRIOR, PRIOR_SD, strict=True)]
        for _ in range(1 if known.all() else 5):
            h = optimize.minimize(self._loss, h, (filled,), method="L-BFGS-B", bounds=bounds).x
            shared, own, noise = self._covariances(h)
            self._gains = [np.linalg.solve(k + noise, k) for k in (shared, own)]
            self._errors = [
                k - k @ gain for k, gain in zip((shared, own), self._gains, strict=True)
            ]
            self.noise = float(np.exp(h[-1]))
            filled = np.where(known, y, self._smooth(filled))

    def smooth(self, values: Array) -> Array:
        """Return the posterior means for losses (..., P, J)."""
        for _ in range(0 if self._known.all() else 10):
            values = np.where(self._known, values, self._smooth(values))
        return self._smooth(values)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return draws from the posterior around its mean, (count, P, J)."""
        own, shared = (
            rng.multivariate_normal(np.zeros(len(error)), error, shape, method="eigh")
            for error, shape in zip(self._errors[::-1], ((count, self._points), count), strict=True)
        )
        common = (shared / np.sqrt(self._points))[:, None]
        return own - own.mean(1, keepdims=True) + common

    def _smooth(self, values: Array) -> Array:
        mean = values.mean(-2, keepdims=True)
        return mean @ self._gains[0] + (values - mean) @ self._gains[1]

    def _covariances(self, h: Array) -> tuple[Array, Array, Array]:
        """Return those of √P times the mean, of a deviation, and of the noise, (J, J) each."""
        common, own, ell_common, ell_own, noise = np.exp(h)
        deviation = own**2 * np.exp(-0.5 * self._square / ell_own**2) + CONSTANT**2
        shared = self._points * common**2 * np.exp(-0.5 * self._square / ell_common**2)
        return shared + deviation, deviation, noise**2 * np.eye(len(deviation))

    def _loss(self, h: Array, filled: Array) -> float:
        """Return the negative log posterior of the hyperparameters, without its constant."""
        shared, deviation, noise = self._covariances(h)
        mean = filled.mean(0)
        value = 0.5 * float((((h - PRIOR) / PRIOR_SD) ** 2).sum())
        value += _negative_log_likelihood(np.sqrt(self._points) * mean[:, None], shared + noise, 1)
        if self._points > 1:
            rest = (filled - mean).T
            value += _negative_log_likelihood(rest, deviation + noise, self._points - 1)
        return value


def _negative_log_likelihood(columns: Array, covariance: Array, count: int) -> float:
    """Return −log N(columns; 0, covariance) without the constant, for `count` free columns."""
    factor = linalg.cholesky(covariance, lower=True)
    whitened = linalg.solve_triangular(factor, columns, lower=True)
    return 0.5 * float((whitened**2).sum()) + count * float(np.log(np.diag(factor)).sum())
