"""Series of decisions: an incumbent, and 50 candidates one after the other.

    nulls    all candidates are no-ops: new seeds of the incumbent's configuration
    p        a share p of real improvements, by 0.2 to 4 standard deviations of the incumbent; the
             others are no-ops and changes for the worse by as much, half each

The incumbent's runs are used again for each candidate, and the winner's runs become those of the
incumbent; `--stream` takes new ones. The loss at the end is that of the configuration on the seeds
that no judge sees there. Seeds are drawn with replacement from those that a study has, so series of
one study are resamples: intervals are over studies.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.crash_test.decisions import FLOOR, Pool, no_ops
from benchmarks.crash_test.judges import BUDGET, JUDGES, Case
from benchmarks.crash_test.population import JUDGED
from benchmarks.crash_test.population import STREAM as SECOND
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


def run_all(pool: Pool, repeats: int, judges: tuple[str, ...] = IN_SERIES) -> Iterator[Series]:
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
                yield _run(pool, judge, start, share, random)


def _run(pool: Pool, judge: str, start: str, share: float, random: np.random.Generator) -> Series:
    decide, incumbent = JUDGES[judge].decide, start
    drawn = {
        name: np.array([x for seed, x in pool.losses[name].items() if _may_use(seed, share)])
        for name in pool.configurations
    }
    runs = random.choice(drawn[incumbent], BUDGET)
    keeps = false = 0
    seeds = BUDGET
    for place in range(1, LENGTH + 1):
        kind, candidate = _candidate(pool, incumbent, share, random)
        other = random.choice(drawn[candidate], BUDGET)
        floor = random.choice(drawn[incumbent], FLOOR)
        case = Case(runs, other, floor, pool.sigma, pool.failure, False, place, keeps)  # noqa: FBT003
        word, used = decide(case)
        seeds += used
        if word > 0:
            keeps += 1
            false += kind != "better"
            incumbent, runs = candidate, other
            if judge == STREAM:
                runs = random.choice(drawn[incumbent], BUDGET)
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


def _may_use(seed: int, share: float) -> bool:
    """Return whether a judge may see a seed: all if nothing but no-ops is judged."""
    return share < 0 or not JUDGED <= seed < SECOND
