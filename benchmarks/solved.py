"""How often verdicts are wrong where each seed solves its task or does not.

    python -m benchmarks.solved --tables 200

Of 12 points each seed solves the task with the same probability; its loss is then log-normal near
0, and else near ln 2. The rule counts the seeds (`lmzoo/lab/statistics/counts.py`); the rule before
compared the means of all losses.

    errors   some point of a table has a sign that is confirmed
    power    a point that solves the task with another probability has the right sign, confirmed
"""

from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from lmzoo.base.command_line import run_command
from lmzoo.base.streams import echo
from lmzoo.lab.statistics.compared import compared, spend

Array = NDArray[np.float64]
POINTS = 12
LEAST = 0.3
"""Loss above which a run has not solved the task."""
CASES = (
    *((q, q) for q in (0.1, 0.3, 0.5, 0.7, 0.9, 0.97)),
    *((1.0, 0.0), (0.9, 0.1), (0.9, 0.3), (0.2, 0.9), (0.95, 0.5)),
)
"""Probability to solve the task: of all points, of one of them."""


def draw(all_points: float, one: float, own: int, rng: np.random.Generator) -> Array:
    """Return losses (POINTS, own): the reference is first, the point that differs last."""
    chance = np.full((POINTS, 1), all_points)
    chance[-1] = one
    size = (POINTS, own)
    solved = 0.01 * np.exp(rng.standard_normal(size))
    unsolved = np.log(2) + 0.05 * np.abs(rng.standard_normal(size))
    return np.where(rng.random(size) < chance, solved, unsolved)


def measure(case: tuple[float, float], seeds: int, tables: int, *, counts: bool) -> float:
    """Return the rate of tables with an error, or with the right sign of the point that differs."""
    rng = np.random.default_rng([seeds, *(round(100 * q) for q in case)])
    plan = spend([seeds], contrasts=POINTS - 1)
    most = plan[0].of_reference
    of_points = np.where(np.arange(POINTS), seeds, most)
    known = np.arange(most) < of_points[:, None]
    hits = 0
    for _ in range(tables):
        x = np.where(known, draw(*case, most, rng), np.nan)
        if counts:
            x = np.where(x > LEAST, np.inf, x)
        found = compared(x, 0, looks=plan)
        signs = np.where(found.confirmed, found.sign, 0)
        if case[0] == case[1]:
            hits += bool(signs.any())
        else:
            hits += bool(signs[-1] == np.sign(case[0] - case[1]))
    return hits / tables


def main(
    tables: Annotated[int, typer.Option(min=1, help="Simulated tables of a condition.")] = 200,
    seeds: Annotated[list[int] | None, typer.Option(min=2, help="Repeat it; 3, 5, 20.")] = None,
) -> None:
    """Print the rates of all cases."""
    for number in seeds or [3, 5, 20]:
        for case in CASES:
            plain, counted = (measure(case, number, tables, counts=x) for x in (False, True))
            what = "errors" if case[0] == case[1] else "power"
            named = f"{number} seeds, solved with {case[0]} and {case[1]}"
            echo(f"{named}: {what} {plain:.3f}, counted {counted:.3f}")


if __name__ == "__main__":
    run_command(main)
