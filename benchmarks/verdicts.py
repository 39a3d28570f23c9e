"""Simulate studies: how often verdicts are wrong, intervals miss, and effects are found.

    python -m benchmarks.verdicts --studies 700

12 points, the first is the reference, which has the seeds that a study gives it. The sd of a point
is 0.031 nats, as on captions; a tenth of the variance is common to the points, as recorded. Every
rate is that of `compared`, which `lmzoo rank` calls. ± is at most the Monte-Carlo standard error.

    errors       some point of a study without effects has a verdict with a sign
    cover        the 95 % interval of a difference holds it: the worst point
    power        a point 0.1 nats above the others has the sign "worse"
    negligible   a point at the margin, 0.1 nats, is called negligible
"""

from functools import cache
from typing import Annotated

import numpy as np
import polars as pl
import typer
from numpy.typing import NDArray

from benchmarks.crash_test.trainings import FILE
from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError
from lmzoo.lab.statistics.compared import (
    NEGLIGIBLE,
    Compared,
    Look,
    compared,
    looks,
    reference_seeds,
    spend,
)

Array = NDArray[np.float64]
SD, EFFECT = 0.044 / np.sqrt(2), 0.1
CONDITIONS = {
    "equal": "equal noise",
    "point": "one point 5x",
    "reference": "reference 3x",
    "failing": "reference: one seed in five fails",
    "long": "log-normal reference",
    "spread": "log-normal spread 0.6",
    "skewed": "skewed noise",
    "heavy": "t3 noise",
    "diverging": "2 % of runs diverge",
    "trained": "noise of real trainings",
    "cliffs": "those of them on parity",
}


def draw(condition: str, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Return the losses (P, S) of points with equal means."""
    if condition in ("trained", "cliffs"):
        studies = real_noise(("parity",) if condition == "cliffs" else ())
        x = studies[rng.integers(len(studies))]
        points = np.append(0, rng.choice(np.arange(1, len(x)), shape[0] - 1))
        return x[points][:, np.resize(rng.permutation(x.shape[1]), shape[1])]
    sd = np.full((shape[0], 1), SD)
    sd[5] *= 5 if condition == "point" else 1
    sd[0] *= 3 if condition == "reference" else 1
    if condition == "spread":
        sd = sd * np.exp(rng.normal(0, 0.6, sd.shape))

    def noise(shape: tuple[int, int]) -> Array:
        if condition == "heavy":
            return rng.standard_t(3, shape) / np.sqrt(3)
        if condition == "skewed":  # log-normal, skewness 2.9
            s = 0.7
            x = rng.lognormal(0, s, shape) - np.exp(s**2 / 2)
            return x / np.sqrt(np.exp(s**2) * np.expm1(s**2))
        return rng.standard_normal(shape)

    x = SD / 3 * noise((1, shape[1])) + sd * noise(shape)
    if condition == "failing":
        x[0] += 8 * SD * ((rng.random(shape[1]) < 0.2) - 0.2)
    if condition == "long":
        x[0] = 2 * SD * (rng.lognormal(0, 1, shape[1]) - np.exp(0.5))
    if condition == "diverging":
        x[rng.random(shape) < 0.02] = np.inf
    return x


@cache
def real_noise(tasks: tuple[str, ...] = ()) -> list[Array]:
    """Return the losses of each study of the crash test: its base and changes, on equal seeds.

    `tasks` are those of the studies; (): all.
    All means are 0, and the median standard deviation of a paired difference is that of the others.
    """
    frame = pl.read_parquet(FILE).filter(
        pl.col("kind").is_in(["base", "change"]), pl.col("seed") < 64
    )
    frame = frame.filter(pl.col("task").is_in(tasks)) if tasks else frame
    found = []
    for _, part in frame.group_by("study", maintain_order=True):
        wide = part.pivot(on="variant", index="seed", values="loss", sort_columns=False)
        columns = wide.select("base", pl.exclude("base", "seed")).drop_nulls().to_numpy()
        x = columns.T.astype(np.float64)
        x -= x.mean(1, keepdims=True)
        found.append(x * SD * np.sqrt(2) / np.median((x[1:] - x[0]).std(1)))
    return found


def measure(
    condition: str, seeds: int, studies: int, points: int = 12, seed: int = 0
) -> dict[str, float]:
    """Return the rates over simulated studies with one look."""
    rng = np.random.default_rng([seed, seeds, points, [*CONDITIONS].index(condition)])
    wrong = found = negligible = 0
    held, known = np.zeros(points), np.zeros(points)
    for _ in range(studies):
        x = draw(condition, (points, reference_seeds(seeds, points - 1)), rng)
        x[1:, seeds:] = np.nan
        null = compared(x, 0)
        wrong += null.sign.any()
        known += ~np.isnan(null.low)
        held += (null.low <= 0) & (null.high >= 0)
        x[1] += EFFECT
        one = compared(x, 0, margin=EFFECT)
        found += one.sign[1] > 0
        negligible += one.verdict[1] == NEGLIGIBLE
    return {
        "errors": wrong / studies,
        "cover": float((held[1:] / known[1:]).min()),
        "power": found / studies,
        "negligible": negligible / studies,
    }


def measure_looking(
    condition: str,
    schedule: tuple[int, ...],
    studies: int,
    *,
    by_hand: bool,
    seed: int = 0,
) -> dict[str, float]:
    """Return the rates over studies that look again, and mean numbers of seeds at the end.

    By hand, each number of seeds is one more plan, for all points. Else undecided points get more,
    *runs* are those of a study with an effect.
    """
    rng = np.random.default_rng([seed, len(schedule), by_hand, [*CONDITIONS].index(condition)])
    rows = []
    for _ in range(studies):
        null = draw(condition, (12, 4 * schedule[-1]), rng)
        effect = null.copy()
        effect[1] += EFFECT
        ends = [_look_again(x, schedule, by_hand=by_hand) for x in (null, effect)]
        (found, first), (shown, last) = ends
        held = (found.low <= 0) & (found.high >= 0)
        row = [found.sign.any(), held[1:].mean(), shown.sign[1] > 0]
        rows.append([*row, first[1:].mean(), first[0], last[1], last.sum()])
    names = (
        "errors",
        "cover (mean)",
        "power",
        "seeds null",
        "seeds reference",
        "seeds 0.1",
        "runs",
    )
    return dict(zip(names, np.mean(rows, 0).tolist(), strict=True))


def _look_again(
    x: Array, schedule: tuple[int, ...], *, by_hand: bool
) -> tuple[Compared, NDArray[np.int64]]:
    """Return the comparison at the end, and the seeds of each point."""
    made: tuple[Look, ...] = ()
    if by_hand:
        for n in schedule:
            made = spend([n], made, len(x) - 1)
        seeds = np.full(len(x), schedule[-1])
        assert made
        seeds[0] = made[-1].of_reference
        known = np.where(np.arange(x.shape[1]) < seeds[:, None], x, np.nan)
        return compared(known, 0, looks=made), seeds
    made = spend(schedule, contrasts=len(x) - 1)
    seeds = np.full(len(x), schedule[0])
    seeds[0] = made[0].of_reference
    while True:
        known = np.where(np.arange(x.shape[1]) < seeds[:, None], x, np.nan)
        found = compared(known, 0, looks=made, ended=seeds)
        if (found.seeds <= seeds).all():
            return found, seeds
        seeds = np.maximum(seeds, found.seeds)


def main(
    studies: Annotated[int, typer.Option(min=1, help="Simulated studies of each row.")] = 700,
    seeds: Annotated[list[int] | None, typer.Option(help="Repeat it; 2, 3, 5, 10.")] = None,
    points: Annotated[int, typer.Option(min=6)] = 12,
    conditions: Annotated[list[str] | None, typer.Option(help="Repeat it; all.")] = None,
    looking: Annotated[bool, typer.Option("--looking", help="Studies that look again.")] = False,
) -> None:
    """Print the tables."""
    unknown = set(conditions or ()) - set(CONDITIONS)
    if unknown:
        raise UserError(f"no condition {min(unknown)!r}; known: {', '.join(CONDITIONS)}")
    first = True
    for condition in conditions or CONDITIONS:
        if looking:
            rows = {
                f"{kind} {'-'.join(map(str, schedule))}": measure_looking(
                    condition, schedule, studies, by_hand=by_hand
                )
                for kind, schedule, by_hand in (
                    ("by hand", (3, 5, 10, 20), True),
                    ("until decided", looks(3, 24), False),
                )
            }
        else:
            rows = {
                str(seeds): measure(condition, seeds, studies, points)
                for seeds in seeds or (2, 3, 5, 10)
            }
        for key, rates in rows.items():
            if first:
                _print("condition", "looks" if looking else "seeds", *rates)
                _print(*["---"] * (2 + len(rates)))
            first = False
            _print(CONDITIONS[condition], key, *(f"{x:.3f}" for x in rates.values()))


def _print(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)  # noqa: T201


if __name__ == "__main__":
    run_command(main)
