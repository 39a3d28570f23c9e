"""What `--until-decided` gains by further settings, in simulated studies of seven equal points.

    python benchmarks/further.py [--studies 40]

The loss of a point is 2 + curvature · ln²(rate / optimum) plus the luck of a seed. The optima of
the points differ, so the choice of a rate errs, and no number of seeds decides. All points are
equal at their optima: the right word is `negligible`, and a sign is false. The planner of a sweep
plans each condition twice: with seeds only, and with settings, too. The rival is the row above.

    undecided   contrasts
    false       studies with a sign
    runs        of a study, a pruned one counts half
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Annotated
from unittest.mock import patch

import numpy as np
import optuna
import search
import typer
from simulated_cluster import MemoryStore

from lmzoo.base.command_line import run_command
from lmzoo.lab.statistics.compared import UNDECIDED
from lmzoo.lab.study.planned_run import Answer, PlannedRun
from lmzoo.lab.study.planner import Planner, comparison

POINTS = 7
EPOCHS = 10
LOW = 0.002
HIGH = 0.06
SEEDS = 5
MOST = 24
CONDITIONS = ((0.05, 0.02, 0.4), (0.1, 0.02, 0.7), (0.2, 0.03, 0.0))
"""Curvature; the standard deviation of a seed, and that of the logarithm of an optimum."""


def main(studies: Annotated[int, typer.Option(help="Studies of a condition.")] = 40) -> None:
    """Print a row for each condition and rule."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    typer.echo("| curvature | sd of a seed | sd of the optimum | rule | undecided | false | runs |")
    typer.echo("|---:|---:|---:|---|---:|---:|---:|")
    for curvature, noise, spread in CONDITIONS:
        for name, cells in rules(studies, curvature, noise, spread):
            typer.echo(f"| {curvature} | {noise} | {spread} | {name} | {' | '.join(cells)} |")


def rules(
    studies: int, curvature: float, noise: float, spread: float
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the cells of both rules."""
    for name in ("seeds", "settings and seeds"):
        undecided = 0
        false = 0
        runs = 0.0
        for number in range(studies):
            if name == "seeds":
                with patch("lmzoo.lab.study.planner.uncertain_choices", return_value=()):
                    words, signs, count = simulate(number, curvature, noise, spread)
            else:
                words, signs, count = simulate(number, curvature, noise, spread)
            undecided += words.count(UNDECIDED)
            false += any(signs)
            runs += count
        contrasts = studies * (POINTS - 1)
        yield (
            name,
            [f"{undecided} of {contrasts}", f"{false} of {studies}", f"{runs / studies:.0f}"],
        )


def simulate(
    number: int, curvature: float, noise: float, spread: float
) -> tuple[list[str], list[int], float]:
    """Return the words and signs of a study's contrasts, and its runs."""
    study, points = search.simulated_study(POINTS, EPOCHS, LOW, HIGH)
    study = dataclasses.replace(study, seed=number, seeds=SEEDS, max_seeds=MOST)
    planner = Planner(study, points, MemoryStore())  # pyright: ignore[reportArgumentType]
    middle = np.log(np.sqrt(LOW * HIGH))
    runs = 0.0

    def end(run: PlannedRun) -> float:
        """Train a run as far as the planner lets it; return which part of a run it is."""
        optimum = middle + spread * luck(number, run.label)
        distance = np.log(run.config["recipe"]["lr"]) - optimum
        level = 2 + curvature * distance**2
        loss = level + noise * luck(number, run.label, run.config["seed"], distance)
        answer = Answer.CONTINUE
        while answer is Answer.CONTINUE and run.last_epoch < EPOCHS:
            epoch = run.last_epoch + 1
            answer = planner.report(run.id, {"epoch": epoch, "valid_token": loss + np.exp(-epoch)})
        if run.last_epoch == EPOCHS:
            planner.end(run.id, "finished", test_loss=loss)
            return 1.0
        if answer is Answer.WAIT:
            planner.requeue(run.id)
            return 0.0
        planner.end(run.id, "pruned")
        return 0.5

    while not planner.done:
        for run in planner.new_ready():
            planner.start(run)
            runs += end(run)
    facts = {point: point.point.facts() for point in planner.points}
    alike, found = comparison(facts, planner.reference, planner.looks, study.margin)
    rows = [row for row, point in enumerate(alike) if point is not planner.reference]
    return [str(found.verdict[row]) for row in rows], [int(found.sign[row]) for row in rows], runs


def luck(*key: object) -> float:
    """Return a normal draw that depends on the key only."""
    digest = hashlib.md5(repr(key).encode()).digest()
    return float(np.random.default_rng(int.from_bytes(digest[:8])).normal())


if __name__ == "__main__":
    run_command(main)
