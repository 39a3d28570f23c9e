"""Simulate rankings: coverage, family-wise error, power, false equivalence, looking again.

    python -m benchmarks.verdicts --studies 1000

12 points, the first is the reference. The sd of a paired difference is 0.044 nats, as on captions;
half of a seed's variance is common to all points. The tuning adds `TUNING_SD` to each point's loss.

    errors       a null point is called worse or better, in any contrast of a study without effects
    power        a point 0.1 nats above ten equal ones is called worse
    equivalent   the same point is called equivalent where the margin is 0.1
    contrasts    a 95 % interval holds the true difference
    own          a 95 % interval holds the point's true mean over seeds, at its setting
    ranks        a rank interval holds the true rank, 12 means 0.02 apart: mean and worst point
    looking      the same errors with looks at 3, 6, 12, 24 seeds, and mean seeds of a point
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from lmzoo.statistics.contrasts import contrasts
from lmzoo.statistics.moderation import moderated_intervals
from lmzoo.statistics.ranks import rank_intervals
from lmzoo.statistics.sequential import looks, more_seeds
from lmzoo.statistics.verdicts import EQUIVALENT, MARGIN, UNDECIDED, WORSE, verdicts

Array = NDArray[np.float64]
POINTS, PAIRED_SD, TUNING_SD, EFFECT = 12, 0.044, 0.006, 0.1
NOISES = ("normal", "skewed", "heavy")


def draw(noise: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return noise with mean 0 and variance 1: normal, log-normal (skewness 2.9), or t3."""
    if noise == "normal":
        return rng.standard_normal(shape)
    if noise == "heavy":
        return rng.standard_t(3, shape) / np.sqrt(3)
    sigma = 0.7
    mean, scale = np.exp(sigma**2 / 2), np.sqrt(np.exp(sigma**2) * np.expm1(sigma**2))
    return (rng.lognormal(0, sigma, shape) - mean) / scale


def study(
    means: Array, seeds: int, noise: str, tuning_sd: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the losses (P, S) of a study and the means at its tuned settings (P,)."""
    sd = PAIRED_SD / np.sqrt(2)
    at_setting = means + tuning_sd * rng.standard_normal(len(means))
    common = sd * draw(noise, (1, seeds), rng)
    return at_setting[:, None] + common + sd * draw(noise, (len(means), seeds), rng), at_setting


def measure(
    noise: str, seeds: int, studies: int, tuning_sd: float = TUNING_SD, seed: int = 0
) -> dict[str, float]:
    """Return the rates over simulated studies."""
    rng = np.random.default_rng([seed, seeds, NOISES.index(noise)])
    null, spaced = np.zeros(POINTS), 0.02 * np.arange(POINTS)
    mixed = np.zeros(POINTS)
    mixed[1] = EFFECT
    rows: list[list[float]] = []
    ranks = np.zeros(POINTS)
    for _ in range(studies):
        x, _ = study(null, seeds, noise, tuning_sd, rng)
        c = contrasts(x, 0, tuning_sd)
        held = (c.low <= 0) & (c.high >= 0)
        wrong = np.isin(verdicts(c).verdict, ["worse", "better"]).any()
        y, at_setting = study(mixed, seeds, noise, tuning_sd, rng)
        effects = contrasts(y, 0, tuning_sd)
        own = moderated_intervals(y)
        rows.append(
            [
                wrong,
                verdicts(effects).verdict[1] == WORSE,
                verdicts(effects, EFFECT).verdict[1] == EQUIVALENT,
                held[1:].mean(),
                ((own.low <= at_setting) & (own.high >= at_setting)).mean(),
            ]
        )
        z, _ = study(spaced, seeds, noise, tuning_sd, rng)
        low, high = rank_intervals(z, tuning_sd)
        rank = np.arange(1, POINTS + 1)
        ranks += (low <= rank) & (rank <= high)
    names = ("errors", "power", "equivalent", "contrasts", "own")
    result = dict(zip(names, np.mean(rows, 0).tolist(), strict=True))
    return {
        **result,
        "ranks": float(ranks.mean()) / studies,
        "worst rank": float(ranks.min()) / studies,
    }


def measure_looking(
    noise: str, studies: int, tuning_sd: float = TUNING_SD, seed: int = 1
) -> dict[str, float]:
    """Return the rates when undecided contrasts get more seeds, up to 24."""
    rng = np.random.default_rng([seed, NOISES.index(noise)])
    schedule = looks(3, 24)
    mixed = np.zeros(POINTS)
    mixed[1] = EFFECT
    rows = []
    for _ in range(studies):
        x, _ = study(np.zeros(POINTS), schedule[-1], noise, tuning_sd, rng)
        null = more_seeds(x, 0, schedule, MARGIN, tuning_sd)
        y, _ = study(mixed, schedule[-1], noise, tuning_sd, rng)
        some = more_seeds(y, 0, schedule, MARGIN, tuning_sd)
        wide = more_seeds(y, 0, schedule, EFFECT, tuning_sd)
        rows.append(
            [
                np.isin(null.verdict, ["worse", "better"]).any(),
                some.verdict[1] == WORSE,
                wide.verdict[1] == EQUIVALENT,
                (null.verdict == UNDECIDED).sum() / (POINTS - 1),
                null.seeds[1:].mean(),
                some.seeds[1],
            ]
        )
    names = ("errors", "power", "equivalent", "undecided", "seeds null", "seeds 0.1")
    return dict(zip(names, np.mean(rows, 0).tolist(), strict=True))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--tuning-sd", type=float, default=TUNING_SD)
    options = parser.parse_args()
    rows = [
        ([noise, str(seeds)], measure(noise, seeds, options.studies, options.tuning_sd))
        for noise in NOISES
        for seeds in (3, 5, 10)
    ]
    show(("noise", "seeds"), rows, options.studies)
    looking = [
        ([noise, "3 to 24"], measure_looking(noise, options.studies, options.tuning_sd))
        for noise in NOISES
    ]
    show(("noise", "seeds"), looking, options.studies)


def show(head: tuple[str, ...], rows: list[tuple[list[str], dict[str, float]]], n: int) -> None:
    """Print a Markdown table; a rate has its Monte-Carlo standard error."""
    names = list(rows[0][1])
    print("| " + " | ".join([*head, *names]) + " |")  # noqa: T201
    print("|---" * (len(head) + len(names)) + "|")  # noqa: T201
    for keys, values in rows:
        cells = [
            f"{v:.1f}" if name.startswith("seeds") else f"{v:.3f} ±{np.sqrt(v * (1 - v) / n):.3f}"
            for name, v in values.items()
        ]
        print("| " + " | ".join([*keys, *cells]) + " |")  # noqa: T201


if __name__ == "__main__":
    main()
