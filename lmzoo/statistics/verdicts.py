r"""Verdicts on the differences of points to a reference: worse, better, equivalent or undecided.

    equivalent   |δ̂| + t_{1−α, ν} √Var < Δ          two one-sided tests at α; Δ is the margin
    worse        Holm's p < α and δ̂ > 0
    better       Holm's p < α and δ̂ < 0
    undecided    none of these

A difference that is both significant and within the margin is equivalent: it exists, and it is too
small to matter. Holm's family is the contrasts asked. So "worse" and "better" are wrong somewhere
in a table with a probability of at most α, and "equivalent" with at most α for each contrast.

A point that lost a seed by divergence is never better or equivalent; one that lost all its seeds is
worse. An exact difference needs no test.

    seeds needed   the least m with |δ̂| ≥ (t_{1−α/2k} + z_.8) √Var(n + m)
                                or |δ̂| + (t_{1−α} + z_.8) √Var(n + m) ≤ Δ
                   k: the number of contrasts that Holm does not reject

If the estimate is right, m further seeds decide in about four studies of five. The part of the
variance that is due to tuning remains, so no number of seeds may be enough; the number is NaN then.
If seeds would be enough with a setting that is certain, τ = 0, the point needs more tuning runs.

Schuirmann 1987 (J. Pharmacokinet. Biopharm. 15:657); Holm 1979 (Scand. J. Statist. 6:65).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmzoo.statistics.contrasts import Contrasts
from lmzoo.statistics.families import holm
from lmzoo.statistics.intervals import Array, t_quantile

WORSE, BETTER, EQUIVALENT, UNDECIDED = "worse", "better", "equivalent", "undecided"
MARGIN = 0.02
"""The default margin, in nats."""
ERROR = 0.05
POWER = 0.8
MOST_SEEDS = 1000
"""A greater number of seeds counts as none."""


class Verdicts(NamedTuple):
    """The verdicts on P points."""

    verdict: NDArray[np.str_]
    """(P,); "" for the reference, for points outside the family and without an interval."""
    p: Array
    """p-values after Holm over the family, (P,); NaN outside it."""
    seeds_needed: Array
    """Further seeds of an undecided point, (P,); NaN if it is decided or seeds do not suffice."""
    needs_tuning: NDArray[np.bool_]
    """(P,): whether seeds do not suffice because of τ, the uncertain choice of the setting."""


def verdicts(
    differences: Contrasts,
    margin: float = MARGIN,
    family: ArrayLike | None = None,
    error: float = ERROR,
) -> Verdicts:
    """Return a verdict on each contrast of a family.

    Args:
        differences: the contrasts with one reference.
        margin: Δ in nats; 0 or less: nothing is equivalent.
        family: the contrasts that were asked, bool (P,); None: all.
        error: α.
    """
    c = differences
    asked = np.ones(len(c.mean), bool) if family is None else np.asarray(family, bool)
    p = holm(np.where(asked, c.p, np.nan))
    exact = c.error == 0
    sure = exact | (p < error)
    with np.errstate(invalid="ignore"):
        reach = np.abs(c.mean) + t_quantile(1 - 2 * error, c.freedom) * c.error
        reach = np.where(exact, np.abs(c.mean), reach)
        # Divergence may have turned the sign; then p is of a difference in its direction.
        sign = np.where(c.lost != 0, c.lost, np.sign(c.mean))
    gone = (c.seeds == 0) & (c.lost != 0)
    verdict = np.select(
        [
            ~asked,
            gone & (c.lost > 1),
            gone & (c.lost < -1),
            np.isnan(c.error),
            (reach < margin) & (c.lost == 0),
            sure & (sign > 0),
            sure & (sign < 0),
        ],
        ["", WORSE, BETTER, "", EQUIVALENT, WORSE, BETTER],
        UNDECIDED,
    )
    left = int((asked & ~np.isnan(p) & ~sure).sum())
    needed, with_certain_settings = (
        np.where(verdict == UNDECIDED, _seeds_needed(of, margin, error, left), np.nan)
        for of in (c, c._replace(tuning=np.zeros_like(c.tuning)))
    )
    needs_tuning = np.isnan(needed) & ~np.isnan(with_certain_settings)
    return Verdicts(verdict, p, needed, needs_tuning)


def _seeds_needed(c: Contrasts, margin: float, error: float, left: int) -> Array:
    further = np.arange(1, MOST_SEEDS + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        after = np.sqrt(c.noise[:, None] / (c.seeds[:, None] + further) + c.tuning[:, None])
        z = float(special.ndtri(POWER))
        apart = t_quantile(1 - error / max(left, 1), c.freedom) + z
        within = t_quantile(1 - 2 * error, c.freedom) + z
        size = np.abs(c.mean)[:, None]
        enough = size >= np.asarray(apart)[:, None] * after
        enough |= (size + np.asarray(within)[:, None] * after <= margin) & (c.lost == 0)[:, None]
    return np.where(enough.any(1), further[enough.argmax(1)], np.nan)
