"""The confirm runs of a study, those of the chosen settings, and their losses."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import status_at


def _chosen_runs(study: Mapping[str, Any]) -> pl.LazyFrame:
    """Return one row (point, run) for each confirm run.

    Raises:
        UserError: No point has a chosen setting yet.
    """
    pairs = [
        {"point": point, "run": run}
        for point, chosen in study.get("chosen", {}).items()
        for run in chosen["runs"]
    ]
    if not pairs:
        raise UserError(
            f"study {study['name']!r} has no confirmed point yet; "
            "run its sweep again to continue it"
        )
    return pl.LazyFrame(pairs, {"point": pl.String, "run": pl.String})


def confirm_runs(
    runs: pl.LazyFrame,
    events: pl.LazyFrame,
    study: Mapping[str, Any],
    metric: str,
    at: int | None = None,
) -> tuple[pl.DataFrame, int]:
    """Return the confirm runs with their losses, and the epoch of the losses.

    The loss is the test loss at the study's budget. While no run has been tested at the budget, it
    is the test loss at the largest smaller epoch that has a test.

    Returns:
        One row (point, facts of the run, loss) for each point and confirm run. The loss is infinite
        for a diverged run and null for a missing one.

    Raises:
        UserError: No point has a chosen setting yet, or no run has such a loss.
    """
    chosen = _chosen_runs(study)
    event, column = ("test", metric) if at is None else ("epoch", f"valid_{metric}")
    of_runs = events.filter(pl.col("event") == event).join(chosen, on="run", how="semi")
    losses = of_runs.select("run", "epoch", loss=column).drop_nulls().collect()
    epoch = _test_epoch(study, losses) if at is None else at
    if epoch not in losses["epoch"]:
        known = f"{losses['epoch'].min()} to {losses['epoch'].max()}" if len(losses) else "none"
        raise UserError(
            f"no confirm run has a validation loss at epoch {at}; available epochs: {known}"
        )
    of_epoch = losses.lazy().filter(pl.col("epoch") == epoch).unique("run").drop("epoch")
    status = status_at(epoch) if at is None else pl.col("status")
    loss = pl.when(pl.col("status") == "diverged").then(float("inf")).otherwise("loss")
    known = runs.drop("point").with_columns(status=status).join(of_epoch, on="run", how="left")
    confirm = chosen.join(known, on="run", how="left", maintain_order="left")
    return confirm.with_columns(loss=loss).collect(), epoch


def _test_epoch(study: Mapping[str, Any], tests: pl.DataFrame) -> int:
    if tests.is_empty():
        raise UserError(
            f"study {study['name']!r} has no test results yet; run its sweep again until the "
            "confirm stage is done, or rank by validation with --at EPOCH"
        )
    budget = study["budget"]["epochs"]
    reached = [epoch for epoch in tests["epoch"] if epoch <= budget]
    if not reached:
        tested = sorted(set(tests["epoch"]))
        raise UserError(
            f"the last sweep of study {study['name']!r} had a budget of {budget} epochs, but its "
            f"test results are at epochs {', '.join(map(str, tested))} only; "
            f"run its sweep again with --epochs {tested[-1]}"
        )
    return max(reached)
