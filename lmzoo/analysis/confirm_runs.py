"""The runs that a study's table reads: those of the chosen settings, at the study's budget."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from lmzoo.errors import UserError


def chosen_runs(study: Mapping[str, Any]) -> pl.LazyFrame:
    """A row per (point, confirm run).

    Raises:
        UserError: no point has got so far.
    """
    pairs = [
        {"point": point, "run": run}
        for point, chosen in study.get("chosen", {}).items()
        for run in chosen["runs"]
    ]
    if not pairs:
        raise UserError(
            f"study {study['name']!r} has confirmed no point yet; run its sweep again, "
            "it goes on where it stopped"
        )
    return pl.LazyFrame(pairs, {"point": pl.String, "run": pl.String})


def losses_of(
    runs: pl.LazyFrame, events: pl.LazyFrame, study: Mapping[str, Any], metric: str, at: int | None
) -> tuple[pl.LazyFrame, int]:
    """The loss of each of these runs that has one (run, loss), and the epoch they are of.

    It is the test loss at the study's budget; while no run has been tested there, at the
    largest smaller one that has a test. `at` asks for the validation loss of that epoch.

    Raises:
        UserError: no run has such a loss.
    """
    event, column = ("test", metric) if at is None else ("epoch", f"valid_{metric}")
    of_runs = events.filter(pl.col("event") == event).join(runs, on="run", how="semi")
    found = of_runs.select("run", "epoch", loss=column).drop_nulls().collect()
    epoch = _budget(study, found) if at is None else at
    if epoch not in found["epoch"]:
        known = f"{found['epoch'].min()} to {found['epoch'].max()}" if len(found) else "none"
        raise UserError(f"no confirm run has a validation loss at epoch {at}; there is: {known}")
    return found.filter(pl.col("epoch") == epoch).unique("run").drop("epoch").lazy(), epoch


def _budget(study: Mapping[str, Any], tests: pl.DataFrame) -> int:
    if tests.is_empty():
        raise UserError(
            f"study {study['name']!r} has no test results yet; run its sweep again until the "
            "confirm stage is done, or rank by validation with --at EPOCH"
        )
    asked = study["budget"]["epochs"]
    reached = [epoch for epoch in tests["epoch"] if epoch <= asked]
    if not reached:
        there = ", ".join(map(str, sorted(set(tests["epoch"]))))
        raise UserError(
            f"study {study['name']!r} was last asked for {asked} epochs, and is tested at {there} "
            f"only; run its sweep again with --epochs {there.rpartition(' ')[2]}"
        )
    return max(reached)
