r"""Verdicts on looking again: more seeds where a contrast is undecided, with the error of one look.

Looks at n_1 < ... < n_K seeds spend the error α between them:

    α_k = α (n_k − n_{k−1}) / n_K,   n_0 = 0          Σ α_k = α

At look k, the difference tests (Holm over the family) and the tests within the margin both use α_k.
By the union bound the error over all looks is at most α for the family's differences, and at most α
for each "equivalent", under any dependence between looks and any rule that ends a contrast. A
verdict is final. The linear spending is the power family with ρ = 1.

A planner calls `more_seeds` whenever runs have ended and trains the seeds that are missing:

    schedule = looks(study.seeds, max_seeds)
    wanted = more_seeds(losses, reference, schedule, margin, tuning_sd, family, ended).seeds
    # point p needs its first wanted[p] confirm seeds; done if all have ended

It is a pure function of the losses. It replays all looks, so the order in which runs end is of no
importance, and tables get the same verdicts by the same call.

Lan and DeMets 1983 (Biometrika 70:659); Kim and DeMets 1987 (Biometrika 74:149); Jennison and
Turnbull 1993 (Biometrics 49:31) for equivalence.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmzoo.statistics.contrasts import contrasts
from lmzoo.statistics.verdicts import ERROR, MARGIN, UNDECIDED, verdicts


class MoreSeeds(NamedTuple):
    """What the looks so far have decided."""

    seeds: NDArray[np.int64]
    """The number of confirm seeds that each point needs, (P,): one of the looks."""
    verdict: NDArray[np.str_]
    """The verdicts, (P,), as in `verdicts.py`; "" before the first look."""


def looks(start: int, most: int) -> tuple[int, ...]:
    """Return the numbers of seeds at which to look: `start`, doubled until `most`."""
    schedule = [start]
    while schedule[-1] < most:
        schedule.append(min(2 * schedule[-1], most))
    return tuple(schedule)


def spent_errors(schedule: Sequence[int], error: float = ERROR) -> tuple[float, ...]:
    """Return α_k of each look."""
    before = (0, *schedule[:-1])
    return tuple(error * (n - m) / schedule[-1] for n, m in zip(schedule, before, strict=True))


def more_seeds(
    losses: ArrayLike,
    reference: int,
    schedule: Sequence[int],
    margin: float = MARGIN,
    tuning_sd: ArrayLike = 0.0,
    family: ArrayLike | None = None,
    ended: ArrayLike | None = None,
) -> MoreSeeds:
    """Return the seeds that each point needs, and the verdicts so far.

    Args:
        losses: (P, S) in nats, confirm seeds in their order; infinity for a run that diverged, NaN
            for one that failed or has not ended.
        reference: index of the reference; it has the seeds of every undecided point.
        schedule: increasing numbers of seeds, `looks(start, most)`.
        margin: difference in nats within which points are equivalent.
        tuning_sd: standard deviation in nats of the loss over repetitions of the tuning, (P,).
        family: the contrasts that were asked, bool (P,); other points get the first look's seeds.
        ended: number of the point's first runs that have ended, int (P,); None: up to the last
            number in its row.
    """
    x = np.asarray(losses, np.float64)
    asked = np.ones(len(x), bool) if family is None else np.array(family, bool)
    asked[reference] = False
    columns = np.arange(1, x.shape[1] + 1)
    done = np.where(np.isnan(x), 0, columns).max(1, initial=0) if ended is None else ended
    seeds = np.full(len(x), schedule[0])
    verdict = np.full(len(x), "", dtype="<U10")
    active = asked.copy()
    for n, error in zip(schedule, spent_errors(schedule), strict=True):
        needing = active.copy()
        needing[reference] = True
        seeds[needing] = n
        if (np.asarray(done)[needing] < n).any():
            break
        look = verdicts(contrasts(x[:, :n], reference, tuning_sd), margin, asked, error)
        verdict = np.where(active, look.verdict, verdict)
        active = active & np.isin(verdict, [UNDECIDED, ""])
        if not active.any():
            break
    return MoreSeeds(seeds, verdict)
