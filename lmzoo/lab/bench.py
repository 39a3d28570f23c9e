"""A recorded study as a tabular benchmark: replay a search method in seconds, without training.

    table = lmzoo.lab.bench.load("docs/results/records/state_tracking-parity.parquet")
    replay = Replay(table)
    replay.train(run, 5)         the validation loss after 5 epochs, and the price of these epochs
    replay.regret(run)           how far a choice is from the best one of the table

The candidates of a search are the runs of the table: a point, its setting and its seed. The records
are real, so the table has what a sweep left: runs that early stopping ended have fewer epochs. A
study with `pruner="none"` has complete curves. Confirm runs have the setting that the sweep chose;
a method that chooses settings is replayed on tune runs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.records.load import load_study

STAGES = ("tune", "confirm")


@dataclass(frozen=True)
class Run:
    """One recorded training."""

    name: str
    point: str
    """Label of its point."""
    stage: str
    seed: int
    setting: Mapping[str, Any]
    """Value of each searched field."""
    status: str
    """finished, pruned, diverged or failed; "" if it has not ended."""
    losses: tuple[float, ...] = field(repr=False)
    """Validation loss after each epoch; inf from the epoch that diverged.

    In nats per token, or the metric of a program, negated if higher is better.
    """
    seconds: tuple[float, ...] = field(repr=False)
    """Training time of each epoch; runs of a pack share an epoch's time."""


@dataclass(frozen=True)
class Table:
    """The recorded runs of a study."""

    question: str
    epochs: int
    """Epochs of a complete run."""
    runs: tuple[Run, ...]

    def candidates(self, stage: str = "tune", *, complete: bool = True) -> list[Run]:
        """Return the runs of a stage with a loss; those of all epochs, if `complete`.

        Raises:
            UserError: The stage is unknown, or there is no such run.
        """
        if stage not in STAGES:
            raise UserError(f"stage={stage!r} is not one of {', '.join(STAGES)}")
        least = self.epochs if complete else 1
        found = [run for run in self.runs if run.stage == stage and len(run.losses) >= least]
        if not found:
            raise UserError(
                f"no {stage} run has {least} epochs; use a study with pruner='none', or "
                "complete=False"
            )
        return found


def load(path: str | Path) -> Table:
    """Return the table of a study's store or file of records.

    Raises:
        UserError: See `lmzoo.lab.analysis.records.load.load_study`.
    """
    study = load_study(Path(path))
    labels = {point["id"]: point["label"] for point in study.study["points"]}
    epochs = study.study["budget"]["epochs"]
    events = study.events.filter(pl.col("event") == "epoch").sort("epoch")
    curves = events.group_by("run").agg("epoch", "valid_token", "seconds").collect()
    known = {run: rest for run, *rest in curves.iter_rows()}
    runs = []
    for row in study.runs.filter(pl.col("point").is_in([*labels])).collect().to_dicts():
        numbers, losses, seconds = known.get(row["run"], ([], [], []))
        # A curve ends before the first epoch without a record; models of counts have the last only.
        whole = next((i for i, n in enumerate(numbers) if n != i + 1), len(numbers))
        curve = [np.inf if loss is None else loss for loss in losses[:whole]]
        if row["status"] == "diverged":
            curve += [np.inf] * (epochs - len(curve))
        runs.append(
            Run(
                row["run"], labels[row["point"]], row["stage"], row["seed"],
                json.loads(row["setting"] or "{}"), row["status"] or "", tuple(curve),
                tuple(second or 0.0 for second in seconds[:whole]),
            )
        )  # fmt: skip
    return Table(study.study["question"], epochs, tuple(sorted(runs, key=lambda run: run.name)))


class Replay:
    """Answers what training would have measured, and counts what it would have cost.

    Training a run further costs the further epochs only, as with checkpoints.
    """

    def __init__(self, table: Table, stage: str = "tune") -> None:
        self.table, self.candidates = table, table.candidates(stage)
        self.trained: dict[str, int] = {}
        """Name of a run -> its epochs so far."""
        self.epochs, self.seconds = 0, 0.0

    def train(self, run: Run, epochs: int) -> float:
        """Train a run up to this epoch and return the validation loss there.

        Raises:
            UserError: The run has no such epoch.
        """
        if not 1 <= epochs <= len(run.losses):
            known = f"it has 1 to {len(run.losses)}" if run.losses else "it has none"
            raise UserError(f"epoch {epochs} of run {run.name} is not recorded; {known}")
        done = self.trained.get(run.name, 0)
        self.epochs += max(0, epochs - done)
        self.seconds += sum(run.seconds[done:epochs])
        self.trained[run.name] = max(done, epochs)
        return run.losses[epochs - 1]

    def regret(self, run: Run) -> float:
        """Return the last loss of a run minus the lowest last loss of all candidates."""
        return run.losses[-1] - min(other.losses[-1] for other in self.candidates)
