"""Search the noise for which verdicts are wrong most often, or intervals miss most often.

    python -m benchmarks.worst_noise --seeds 5 --tables 60 --rounds 4

A condition says how the losses of points with equal means vary: a family of noise for the reference
and one for the points, how much noisier the reference and a share of the points are, how much the
variances spread, and what part of the variance seeds share. The search draws conditions, keeps the
worst, changes them a little, and measures the worst ones again with new tables: what a search finds
is partly luck. The reference has the seeds that a study gives it.

    errors   some point of a table without effects has a sign that is confirmed
    said     the same with signs that no fresh seeds have repeated: the rule of earlier versions,
             but for the residuals that speak against a sign
    runs     further runs of a table that confirm signs
    cover    the 95 % interval of a difference holds it: the worst point
"""

import itertools
import sys
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError
from lmzoo.base.streams import echo
from lmzoo.lab.statistics.compared import compared, looks, spend

Array = NDArray[np.float64]
RNG = np.random.default_rng
SD = 0.0311
FAMILIES = (
    *("normal", "log-normal", "-log-normal", "t with 3 df", "gamma", "grid"),
    *("one seed in five fails", "one seed in ten fails", "two modes", "recorded"),
)
SMOOTH = FAMILIES[:6]
"""Families of points for which few seeds show how much they vary."""
SCALES = (0.2, 0.3, 1.0, 1.0, 2.0, 3.0, 5.0, 10.0)


@dataclass(frozen=True)
class Condition:
    """How the losses of points with equal means vary."""

    of_reference: str = "normal"
    of_points: str = "normal"
    of_some: str = ""
    """Family of a share of the points; "": that of the points."""
    some: float = 0.0
    ratio: float = 1.0
    """How much noisier these points are."""
    reference: float = 1.0
    """How much noisier the reference is."""
    spread: float = 0.0
    """Standard deviation of the logarithm of the points' standard deviations."""
    shared: float = 0.1
    """Part of the variance that seeds share."""

    def draw(self, points: int, seeds: int, rng: np.random.Generator) -> Array:
        """Return losses (points, seeds); the first row is the reference."""
        x = np.stack([_noise(self.of_points, seeds, rng) for _ in range(points)])
        x *= np.exp(self.spread * rng.standard_normal((points, 1)))
        others = 1 + rng.permutation(points - 1)[: round(self.some * (points - 1))]
        for p in others:
            x[p] = self.ratio * _noise(self.of_some or self.of_points, seeds, rng)
        x[0] = self.reference * _noise(self.of_reference, seeds, rng)
        common = (self.shared / (1 - self.shared)) ** 0.5 * rng.standard_normal(seeds)
        return SD * (x + common)


@cache
def recorded() -> list[Array]:
    """Return the losses of each variant of the crash test, with mean 0 and variance 1."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for `benchmarks`, if this runs as a file
    studies = import_module("benchmarks.verdicts").real_noise()
    rows = [row for study in studies for row in study if np.isfinite(row).all() and row.std()]
    return [row / row.std() for row in rows]


def _noise(family: str, seeds: int, rng: np.random.Generator) -> Array:
    """Return numbers with mean 0 and, but for modes, variance 1."""
    z = rng.standard_normal(seeds)
    if family.endswith("log-normal"):
        skewed = (np.exp(z) - np.exp(0.5)) / (np.exp(2) - np.exp(1)) ** 0.5
        return -skewed if family.startswith("-") else skewed
    if family == "gamma":
        return (rng.gamma(0.3, 1, seeds) - 0.3) / 0.3**0.5
    if family == "t with 3 df":
        return rng.standard_t(3, seeds) / 3**0.5
    if family == "one seed in five fails":
        return z + 8 * ((rng.random(seeds) < 0.2) - 0.2)
    if family == "one seed in ten fails":
        return z + 15 * ((rng.random(seeds) < 0.1) - 0.1)
    if family == "recorded":
        rows = recorded()
        return rng.choice(rows[rng.integers(len(rows))], seeds)
    if family == "two modes":
        return 0.3 * z + 5 * ((rng.random(seeds) < 0.5) - 0.5)
    return z.round() if family == "grid" else z


def random_condition(
    rng: np.random.Generator,
    near: Condition | None = None,
    *,
    modes: bool = False,
    only: tuple[str, ...] = (),
) -> Condition:
    """Return any condition, or one that differs from another in one or two of its fields.

    `modes`: points, too, may fail or have two modes, all or a share of them. `only` these families.
    """
    new = Condition(
        str(rng.choice(only or FAMILIES)),
        str(rng.choice(only or (FAMILIES if modes else SMOOTH))),
        str(rng.choice(FAMILIES)) if modes else "",
        some=float(rng.choice([0, 1 / 11, 2 / 11, 0.34, 0.5])),
        ratio=float(rng.choice(SCALES)),
        reference=float(rng.choice(SCALES)),
        spread=float(rng.choice([0, 0, 0.3, 0.6, 1.0])),
        shared=float(rng.choice([0, 0.1, 0.3, 0.5])),
    )
    if near is None:
        return new
    names = [field.name for field in fields(Condition)]
    changed = rng.choice(names, rng.integers(1, 3), replace=False)
    return replace(near, **{str(name): getattr(new, str(name)) for name in changed})


def measure(
    condition: Condition, points: int, seeds: int, tables: int, rng: np.random.Generator
) -> tuple[float, float, float, float]:
    """Return the rate of tables with an error, the cover of the worst point, and two more rates.

    These are errors of signs that no fresh seeds have repeated, and the further runs of a table.
    """
    plan = spend([seeds], contrasts=points - 1)
    own = plan[0].of_reference
    wrong, said, runs, held = 0, 0, 0, np.zeros(points)
    for _ in range(tables):
        x = condition.draw(points, 2 * own, rng)
        ended = np.where(np.arange(points), seeds, own)
        first = compared(_until(x, ended), 0, looks=plan, ended=ended)
        asked = np.maximum(first.seeds, ended)
        found = compared(_until(x, asked), 0, looks=plan, ended=asked)
        wrong += bool((found.confirmed & (found.sign != 0)).any())
        said += bool(first.sign.any())
        runs += int((asked - ended).sum())
        held += (first.low <= 0) & (first.high >= 0)
    return wrong / tables, float(held[1:].min() / tables), said / tables, runs / tables


def _until(losses: Array, seeds: NDArray[np.int64]) -> Array:
    """Return the losses of the first seeds of each point."""
    return np.where(np.arange(losses.shape[1]) < seeds[:, None], losses, np.nan)


def measure_looking(condition: Condition, tables: int, rng: np.random.Generator) -> float:
    """Return the rate of errors of `--until-decided`, 12 points, 3 to 24 seeds."""
    schedule = spend(looks(3, 24), contrasts=11)
    wrong = 0
    for _ in range(tables):
        x = condition.draw(12, schedule[-1].of_reference, rng)
        seeds = np.array([schedule[0].of_reference, *[3] * 11])
        while True:
            known = np.where(np.arange(x.shape[1]) < seeds[:, None], x, np.nan)
            found = compared(known, 0, looks=schedule, ended=seeds)
            if (found.seeds <= seeds).all():
                break
            seeds = np.maximum(seeds, found.seeds)
        wrong += bool((found.confirmed & (found.sign != 0)).any())
    return wrong / tables


def search(
    points: int,
    seeds: int,
    tables: int,
    rounds: int,
    *,
    least_cover: bool,
    modes: bool = False,
    only: tuple[str, ...] = (),
    seed: int = 0,
) -> list[tuple[Condition, float, float, float, float]]:
    """Return the worst conditions with their rates in new tables, the worst first."""
    rng = RNG([seed, points, seeds, least_cover, modes])
    rank = (lambda rates: rates[1]) if least_cover else (lambda rates: -rates[0])
    known: dict[Condition, tuple[float, float, float, float]] = {}
    for turn in range(rounds):
        best = sorted(known, key=lambda c: rank(known[c]))[:4]
        for i in range(16):
            near = best[i % len(best)] if turn else None
            condition = random_condition(rng, near, modes=modes, only=only)
            if condition not in known:
                known[condition] = measure(condition, points, seeds, tables, rng)
    worst = sorted(known, key=lambda c: rank(known[c]))[:3]
    again = [(c, *measure(c, points, seeds, 4 * tables, rng)) for c in worst]
    return sorted(again, key=lambda row: rank(row[1:]))


def main(
    points: Annotated[list[int] | None, typer.Option(min=2, help="Repeat it; 12.")] = None,
    seeds: Annotated[list[int] | None, typer.Option(min=2, help="Repeat it; 3, 5.")] = None,
    tables: Annotated[int, typer.Option(min=1, help="Simulated tables of a condition.")] = 60,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of 16 conditions.")] = 4,
    modes: Annotated[
        bool, typer.Option("--modes", help="Points, too, may fail or have two modes.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="Only these families.")] = None,
) -> None:
    """Print the worst conditions."""
    unknown = set(only or ()) - set(FAMILIES)
    if unknown:
        raise UserError(f"no family {min(unknown)!r}; known: {', '.join(FAMILIES)}")
    families = tuple(only or ())
    for number, size in itertools.product(points or [12], seeds or [3, 5]):
        for least_cover in (False, True):
            found = search(
                number,
                size,
                tables,
                rounds,
                least_cover=least_cover,
                modes=modes,
                only=families,
            )
            for condition, *rates in found:
                echo(f"{number} points, {size} seeds: {describe(condition, *rates)}")


def describe(condition: Condition, errors: float, cover: float, said: float, runs: float) -> str:
    """Return the rates of a condition and its fields."""
    facts = [f"{field.name} {getattr(condition, field.name)}" for field in fields(condition)]
    rates = f"errors {errors:.3f}, cover {cover:.3f}, said {said:.3f}, runs {runs:.1f}"
    return f"{rates}: {', '.join(facts)}"


if __name__ == "__main__":
    run_command(main)
