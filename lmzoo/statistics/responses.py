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

The points of a study differ in how much their losses vary, with the setting and with the seed. So
the losses of a point are divided by its height h_p, which is a geometric mean with the median over
the points, because one point's own range is a noisy estimate:

    d_p = third best y_p − best y_p,   h_p = CAP · √(d_p · median_q d_q)

A loss above min_x y_p(x) + h_p is lowered to this value before the fit, because the response is
smooth near its minimum only. A diverged run has the loss infinity, which becomes this value too.

The chosen setting has the least posterior mean. A setting is ruled out if its own loss exceeds the
best one of the point by `NEAR` σ or more, with σ in nats at most that of the median point: a point
that differs from all others keeps its own optimum.

Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, chapter 2; Swersky et al. 2013
(NeurIPS 26) share a process among tasks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, optimize

Array = NDArray[np.float64]

CAP = 2.0
"""Height of the cap, in distances of the third best setting from the best."""
RANGE = 20.0
"""Largest ratio, and its inverse the smallest, of a point's distance to the median one."""
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
    heights = _cap_heights(losses)
    least = np.where(np.isnan(losses), np.inf, losses).min(1, keepdims=True)
    if not heights.any() or len(x) < 2:
        order = np.argsort(np.where(np.isnan(losses), np.inf, losses), 1, kind="stable")
        return Responses(np.minimum(losses, least), order, np.zeros(len(losses)))
    y = np.minimum((losses - least) / heights, 1.0)
    known = ~np.isnan(y)
    centre = np.where(known, y, 0).sum(1, keepdims=True) / known.sum(1, keepdims=True)
    fit = _Fit(np.where(known, y - centre, 0.0), known, x)
    mean = fit.smooth(np.where(known, y - centre, 0.0))
    far = NEAR * fit.noise * np.minimum(1.0, np.median(heights) / heights)
    near = (losses - least) / heights <= far  # not if missing or diverged
    order = np.lexsort((mean, ~near))
    rng = np.random.default_rng(seed)
    truth = mean + fit.draw(REPETITIONS, rng)
    repeated = truth + fit.noise * rng.standard_normal(truth.shape)
    possible = np.where(np.isfinite(losses), 0.0, np.inf)
    near = repeated + possible <= (repeated + possible).min(2, keepdims=True) + far
    again = np.argmin(np.where(near, fit.smooth(repeated), np.inf), 2)[..., None]
    regret = np.take_along_axis(truth, again, 2)[..., 0] - (truth + possible).min(2)
    return Responses(least + heights * (mean + centre), order, heights[:, 0] * regret.std(0))


def _cap_heights(losses: Array) -> Array:
    """Return the height of the cap above each point's least loss, (P, 1); 0 if no losses differ."""
    ordered = np.sort(np.where(np.isfinite(losses), losses, np.inf), 1)
    for place in (2, 1):  # the second best where most settings diverged
        if place < losses.shape[1] and np.isfinite(ordered[:, place]).any():
            own = ordered[:, place] - ordered[:, 0]
            median = float(np.median(own[np.isfinite(own)]))
            own = np.where(np.isfinite(own), own, median)
            own = np.clip(own, median / RANGE, median * RANGE)
            return CAP * np.sqrt(own * median)[:, None]
    return np.zeros((len(losses), 1))


class _Fit:
    """The hyperparameters for centred losses (P, J), and the posterior that they give.

    Given g at the settings, the points are independent. With the known settings o of a point,
    D = K[o, o] + σ² I and K the covariance of μ_p + t_p, the posterior of g has the precision
    A = K_g⁻¹ + Σ_p D⁻¹ and the mean A⁻¹ Σ_p D⁻¹ y_p, where a point adds to its settings o only. The
    posterior mean of a point is g + K[:, o] D⁻¹ (y_p − g[o]).
    """

    def __init__(self, y: Array, known: NDArray[np.bool_], x: Array) -> None:
        self._square = ((x[:, None] - x[None]) ** 2).sum(-1)
        patterns, group = np.unique(known, axis=0, return_inverse=True)
        self._groups = [
            (np.flatnonzero(pattern), np.flatnonzero(group == i))
            for i, pattern in enumerate(patterns)
        ]
        bounds = [(p - 3 * s, p + 3 * s) for p, s in zip(PRIOR, PRIOR_SD, strict=True)]
        h = optimize.minimize(self._loss, PRIOR, (y,), method="L-BFGS-B", bounds=bounds).x
        common, self._own = self._covariances(h)
        self.noise = float(np.exp(h[-1]))
        self._inverses = [np.linalg.inv(self._with_noise(o)) for o, _ in self._groups]
        precision = np.linalg.inv(common)
        for (o, members), inverse in zip(self._groups, self._inverses, strict=True):
            precision[np.ix_(o, o)] += len(members) * inverse
        self._common: Array = np.asarray(np.linalg.inv(precision), np.float64)
        """Posterior covariance of g, A⁻¹."""

    def smooth(self, values: Array) -> Array:
        """Return the posterior means for losses (..., P, J); unknown losses are not read."""
        weighted = np.zeros((*values.shape[:-2], values.shape[-1]))
        for (o, members), inverse in zip(self._groups, self._inverses, strict=True):
            weighted[..., o] += values[..., members[:, None], o].sum(-2) @ inverse
        return self._given(weighted @ self._common, values)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return draws from the posterior around its mean, (count, P, J)."""
        points = sum(len(members) for _, members in self._groups)
        common = _normal(rng, self._common, (count,))
        drawn = self._given(common, np.zeros((count, points, len(self._own))))
        for (o, members), inverse in zip(self._groups, self._inverses, strict=True):
            error = np.asarray(self._own - self._own[:, o] @ inverse @ self._own[o], np.float64)
            drawn[:, members] += _normal(rng, error, (count, len(members)))
        return drawn

    def _given(self, common: Array, values: Array) -> Array:
        """Return the posterior means of the points for g = `common` (..., J)."""
        result = np.broadcast_to(common[..., None, :], values.shape).copy()
        for (o, members), inverse in zip(self._groups, self._inverses, strict=True):
            residual = values[..., members[:, None], o] - common[..., None, o]
            result[..., members, :] += residual @ inverse @ self._own[o]
        return result

    def _covariances(self, h: Array) -> tuple[Array, Array]:
        """Return those of g and of μ_p + t_p, (J, J) each."""
        common, own, ell_common, ell_own, _ = np.exp(h)
        jitter = 1e-8 * common**2 * np.eye(len(self._square))
        return (
            common**2 * np.exp(-0.5 * self._square / ell_common**2) + jitter,
            own**2 * np.exp(-0.5 * self._square / ell_own**2) + CONSTANT**2,
        )

    def _with_noise(self, o: NDArray[np.int64]) -> Array:
        return self._own[np.ix_(o, o)] + self.noise**2 * np.eye(len(o))

    def _loss(self, h: Array, y: Array) -> float:
        """Return the negative log posterior of the hyperparameters, without its constant."""
        common, self._own = self._covariances(h)
        self.noise = float(np.exp(h[-1]))
        value = 0.5 * float((((h - PRIOR) / PRIOR_SD) ** 2).sum())
        precision, weighted = np.zeros_like(common), np.zeros(len(common))
        for o, members in self._groups:
            factor = linalg.cho_factor(self._with_noise(o), lower=True)
            solved = np.asarray(linalg.cho_solve(factor, y[np.ix_(members, o)].T))
            value += 0.5 * float((solved * y[np.ix_(members, o)].T).sum())
            value += len(members) * float(np.log(np.diag(factor[0])).sum())
            weighted[o] += solved.sum(1)
            precision[np.ix_(o, o)] += len(members) * linalg.cho_solve(factor, np.eye(len(o)))
        # log |I + K_g Σ D⁻¹| and bᵀ (K_g⁻¹ + Σ D⁻¹)⁻¹ b
        system = np.eye(len(common)) + common @ precision
        value += 0.5 * float(np.linalg.slogdet(system)[1])
        return value - 0.5 * float(weighted @ np.linalg.solve(system, common @ weighted))


def _normal(rng: np.random.Generator, covariance: Array, shape: tuple[int, ...]) -> Array:
    mean = np.zeros(len(covariance))
    return rng.multivariate_normal(mean, covariance, shape, method="eigh", check_valid="ignore")
