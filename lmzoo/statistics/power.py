r"""How many seeds show a difference: planning, before anything is trained.

    Var(n)  = (v_p + v_r)/n + τ_p² + τ_r²                    v: `noise.py`, τ: the tuning's sd
    power   = P(|T_ν(δ/√Var(n))| > t_{1−α/2k, ν})            noncentral t; k contrasts
    ν       = (n − 1)(m − 1) (paired), (n − 1)m (unpaired)     m points share their noise, or 2

The least n whose power reaches the target is the plan. v_p + v_r is the median of what a pilot says
of it: the expectation, which is larger, plans too many seeds more often than too few.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmzoo.statistics.compared import ERROR, MOST_SEEDS
from lmzoo.statistics.contrasts import Contrasts, contrasts
from lmzoo.statistics.intervals import Array


def planned_seeds(
    losses: ArrayLike,
    reference: int,
    effect: float,
    power: float = 0.8,
    *,
    family: ArrayLike | None = None,
    tuning_sd: ArrayLike = 0.0,
    paired: bool = True,
    count: int | None = None,
) -> tuple[Array, Array]:
    """Return the seeds that each contrast needs, and the sd of its difference of one seed, (P,).

    Args:
        losses: the pilot, (P, S), as in `compared`.
        reference: index of the reference.
        effect: δ, the difference to be shown, in the unit of the losses.
        power: probability that a difference of this size is shown.
        family: the contrasts of the planned study, bool (P,); None: all.
        tuning_sd: standard deviation of the loss over repetitions of the tuning, (P,).
        paired: whether the columns are seeds that all points share.
        count: k, the number of contrasts of the new study; None: those of the pilot.

    Returns:
        NaN where no number up to `MOST_SEEDS` is enough, or the pilot has fewer than two seeds; 2
        for a difference without noise.
    """
    x = np.asarray(losses, np.float64)
    asked = np.ones(len(x), bool) if family is None else np.array(family, bool)
    asked[reference] = False
    sharing = asked | (np.arange(len(x)) == reference)
    c = contrasts(x, reference, tuning_sd, family=sharing, paired=paired)
    k = max(1, int(asked.sum()) if count is None else count)
    n = np.arange(2, MOST_SEEDS + 1)
    noise = _median_noise(c)
    one_seed = np.sqrt(np.maximum(noise, 0.0))
    result = np.full(len(x), np.nan)
    for i in np.flatnonzero(asked & ~np.isnan(noise)):
        sd = np.sqrt(np.maximum(noise[i] / n + c.tuning[i], 1e-300))
        m = k + 1 if np.isnan(c.freedom[i]) else 2
        freedom = (n - 1) * max(1, m - paired)
        critical = special.stdtrit(freedom, 1 - ERROR / 2 / k)
        far = effect / sd > 30  # the noncentral t is then hard to compute, and certain
        reached = 1 - special.nctdtr(freedom, np.where(far, 1.0, effect / sd), critical)
        reached = np.where(far, 1.0 * (effect / sd > critical), reached)
        if (reached >= power).any():
            result[i] = n[(reached >= power).argmax()]
    return result, np.where(asked, one_seed, np.nan)


def _median_noise(c: Contrasts) -> Array:
    """Return the median of v_p + v_r, (P,): of its posterior, or as s² ν / median(χ²_ν)."""
    with np.errstate(invalid="ignore"):
        result = c.noise * c.freedom / special.chdtri(c.freedom, 0.5)
        of_one = (c.sd**2 - c.tuning[:, None]) * c.seeds[:, None]
    for i in np.flatnonzero(np.isnan(c.freedom) & (c.noise > 0)):
        order = np.argsort(of_one[i])
        weight = c.weight[i][order]
        middle = np.cumsum(weight) - weight / 2
        result[i] = np.exp(np.interp(0.5, middle, np.log(np.maximum(of_one[i][order], 1e-300))))
    return np.where(c.noise > 0, result, c.noise)
