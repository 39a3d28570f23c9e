"""Series of decisions: an incumbent, and 50 candidates one after the other.

    nulls    all candidates are no-ops: new seeds of the incumbent's configuration
    p        a share p of real improvements, by 0.2 to 4 standard deviations of the incumbent; the
             others are no-ops and changes for the worse by as much, half each

The incumbent's runs are used again for each candidate, and the winner's runs become those of the
incumbent; `--stream` takes new ones. A change has the seeds of the incumbent, a no-op other ones.
The loss at the end is that of the configuration on the seeds that no judge sees there. Seeds are
drawn from those of a study, so that its series are resamples: intervals are over studies.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.crash_test.decisions import FLOOR, Pool, no_ops
from benchmarks.crash_test.judges import BUDGET, JUDGES, Array, Case
from benchmarks.crash_test.population import JUDGED
from lmzoo.base.seeds import derive_seed

LENGTH = 50
NULLS = 3
"""Series of nulls for each other series."""
SHARES = (0.0, 0.05, 0.2)
EFFECTS = 0.2, 4.0
STREAM = "lmzoo judge --stream"
IN_SERIES = (
    *("keep if lower", "mean of three", "two sigma", "Welch", "paired t", "speed-run rule"),
    *("lmzoo judge", STREAM),
)


class Series(NamedTuple):
    """What a judge did in a series."""

    judge: str
    share: float
    """Of real improvements; −1: nulls only."""
    keeps: int
    false_keeps: int
    """Keeps of no-ops and of changes for the worse."""
    change: float
    """Of the true loss, in standard deviations of the first incumbent; negative is better."""
    seeds: int
    """Runs of candidates and incumbents."""


def run_all(
    pool: Pool, repeats: int, length: int, judges: tuple[str, ...] = IN_SERIES
) -> Iterator[Series]:
    """Yield the series of a study: `repeats` of nulls and of each share."""
    names = pool.configurations
    if len(names) < 4 or next(no_ops(pool), None) is None:
        return
    order = sorted(names, key=lambda name: pool.unseen(name).mean())
    for share in (-1.0, *SHARES):
        for repeat in range(NULLS * repeats if share < 0 else repeats):
            for judge in judges:
                random = np.random.default_rng(derive_seed(0, pool.study, share, repeat))
                # A start in the better half: most changes are for the worse, as near an optimum.
                start = order[int(random.integers(len(order) // 4, len(order) // 2 + 1))]
                yield _run(pool, judge, start, share, length, random)


def _run(
    pool: Pool, judge: str, start: str, share: float, length: int, random: np.random.Generator
) -> Series:
    decide, incumbent = JUDGES[judge].decide, start
    shared = sorted(set.intersection(*(set(pool.losses[name]) for name in pool.configurations)))
    shared = [seed for seed in shared if seed < JUDGED]

    def draw(name: str, other_than: Sequence[int] = ()) -> list[int]:
        """Return new seeds; where changes are judged, those that all configurations have."""
        usable = {*(shared if share >= 0 else pool.losses[name])} - {*other_than}
        return random.choice(sorted(usable), BUDGET, replace=False).tolist()

    def losses(name: str, seeds: Sequence[int]) -> Array:
        return np.array([pool.losses[name][seed] for seed in seeds])

    own = draw(incumbent)
    keeps = false = 0
    seeds = BUDGET
    for place in range(1, length + 1):
        kind, candidate = _candidate(pool, incumbent, share, random)
        new = draw(candidate, own) if candidate == incumbent else own
        runs, other = losses(incumbent, own), losses(candidate, new)
        floor = losses(incumbent, draw(incumbent)[:FLOOR])
        case = Case(runs, other, floor, pool.sigma, pool.failure, new == own, place, keeps)
        word, used = decide(case)
        seeds += used
        if word > 0:
            keeps += 1
            false += kind != "better"
            incumbent, own = candidate, new
            if judge == STREAM:
                own = draw(incumbent)
                seeds += BUDGET
    sd = float(pool.unseen(start).std(ddof=1)) or 1e-12
    change = float(pool.unseen(incumbent).mean() - pool.unseen(start).mean()) / sd
    return Series(judge, share, keeps, false, change, seeds)


def _candidate(
    pool: Pool, incumbent: str, share: float, random: np.random.Generator
) -> tuple[str, str]:
    """Return the kind of the next candidate and its configuration."""
    kind = "no-op"
    if share >= 0:
        kind = str(random.choice(["better", "no-op", "worse"], p=_shares(share)))
    if kind == "no-op":
        return kind, incumbent
    sign = -1 if kind == "better" else 1
    low, high = EFFECTS
    fitting = [
        name
        for name in pool.configurations
        if name != incumbent and low <= sign * pool.effect(incumbent, name)[0] <= high
    ]
    return (kind, str(random.choice(fitting))) if fitting else ("no-op", incumbent)


def _shares(share: float) -> list[float]:
    return [share, (1 - share) / 2, (1 - share) / 2]
