"""Search the noise for which a walk to the smallest cell cuts most often what is not free.

    python -m benchmarks.walks --parts 4 --free 2 --seeds 8

A cell has parts of which some are free and all others lose just the margin, in each combination.
A walk is wrong if it makes a cut that loses the margin: `lmzoo shrink` promises that at most 5 % of
walks are. The search draws noise as `worst_noise.py` does, keeps the worst, changes it a little,
and measures the worst conditions again with new walks: what a search finds is partly luck.

    wrong    walks that cut a part which loses the margin
    cut      free parts that a walk cuts, of those that there are
"""

from typing import Annotated

import numpy as np
import polars as pl
import typer

from benchmarks.worst_noise import RNG, SD, Condition, random_condition
from lmzoo.base.command_line import run_command
from lmzoo.base.streams import echo
from lmzoo.lab.analysis.ranking import verdict_columns
from lmzoo.lab.statistics.compared import ERROR, MARGIN, Look, compared, spend
from lmzoo.shrinking import judged


def walk(
    condition: Condition, parts: int, free: int, seeds: int, rng: np.random.Generator
) -> tuple[bool, int]:
    """Return whether a walk cuts a part that loses the margin, and the free parts that it cuts."""
    error = ERROR / (parts * (parts + 1) / 2)
    left = [0.0] * free + [MARGIN] * (parts - free)
    path: list[float] = []
    while True:
        # The cell of the step before is tried again.
        costs = [*path[-1:], *left]
        look = spend([seeds], contrasts=len(costs))[0]
        losses = condition.draw(len(costs) + 1, look.of_reference, rng)
        losses[1:] += np.array(costs)[:, None]
        losses[1:, seeds:] = np.nan
        points = judge(losses, look._replace(error=error))
        if path and not points["repeats"][0]:
            path.pop()
            break
        new = points.tail(len(left))
        good = new.filter("good").sort("difference")
        if good.is_empty():
            break
        # The rows of a step are its costs, after that of the whole cell.
        path.append(costs[good["row"][0] - 1])
        left.remove(path[-1])
    return MARGIN in path, len(path) - path.count(MARGIN)


def judge(losses: np.ndarray, look: Look) -> pl.DataFrame:
    """Return which points of a step are good, as a walk judges them; the first row is the whole."""
    found = compared(losses, 0, looks=[look])
    ranked = pl.DataFrame(verdict_columns(found)).with_row_index("row")
    # No run fails.
    ranked = ranked.with_columns(
        reference=pl.col("row") == 0,
        is_baseline=False,
        runs=look.seeds,
        confirm=look.seeds,
        solved=pl.lit(None, pl.Int64),
        confirm_diverged=0,
    )
    return judged(ranked, look.error)


def measure(
    condition: Condition, parts: int, free: int, seeds: int, walks: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the share of walks that are wrong, and of the free parts that are cut."""
    wrong = 0
    cut = 0
    for _ in range(walks):
        is_wrong, own = walk(condition, parts, free, seeds, rng)
        wrong += is_wrong
        cut += own
    return wrong / walks, cut / (walks * max(free, 1))


def main(
    parts: Annotated[int, typer.Option(min=1, help="Parts of the cell.")] = 4,
    free: Annotated[int, typer.Option(min=0, help="Those that lose nothing.")] = 2,
    seeds: Annotated[int, typer.Option(min=2, help="Seeds of a point.")] = 8,
    walks: Annotated[int, typer.Option(min=1, help="Walks of a condition.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of 16 conditions.")] = 4,
) -> None:
    """Print the worst conditions."""
    rng = RNG([parts, free, seeds])
    known: dict[Condition, float] = {}
    for turn in range(rounds):
        best = sorted(known, key=lambda condition: -known[condition])[:4]
        for number in range(16):
            near = None
            if turn:
                near = best[number % len(best)]
            condition = random_condition(rng, near)
            if condition not in known:
                known[condition], _ = measure(condition, parts, free, seeds, walks, rng)
    usual = Condition(shared=0.0)
    worst = sorted(known, key=lambda condition: -known[condition])[:3]
    for condition in [usual, *worst]:
        wrong, cut = measure(condition, parts, free, seeds, 8 * walks, rng)
        echo(
            f"{parts} parts, {free} free, {seeds} seeds, sd {SD}: "
            f"wrong {wrong:.3f}, cut {cut:.2f}: {condition}"
        )


if __name__ == "__main__":
    run_command(main)
