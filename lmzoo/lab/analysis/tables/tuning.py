"""Tuning curves: the loss of each point against the number of its tuning runs, and the order.

A point whose curve still falls needs more `--samples`; a verdict about a point whose side of the
reference changes with the number of runs is one about the tuning. The losses are those of the
validation split: the lowest of each run, also of one that was stopped early.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.records.load import load_study
from lmzoo.lab.analysis.records.units import METRIC, metric_unit
from lmzoo.lab.analysis.tables.columns import Column, text_table
from lmzoo.lab.analysis.text.formatting import format_number, status_counts
from lmzoo.lab.analysis.text.render import Report
from lmzoo.lab.statistics.tuning_curves import LEVEL, TuningCurve, probability_above, tuning_curve

SHOWN = (1, 2, 3, 5, 8, 12, 20, 40)
"""Numbers of runs in the text table, with the largest."""


def study_tuning(path: Path) -> Report:
    """Return the tuning curves of the points of a study.

    Raises:
        UserError: No tune run has a loss.
    """
    folder = load_study(path)
    epochs = folder.events.filter(pl.col("event") == "epoch")
    best = epochs.group_by("run").agg(loss=pl.col("valid_token").min())
    runs = folder.runs.filter(
        (pl.col("stage") == "tune") & pl.col("status").is_in(["finished", "pruned", "diverged"])
    )
    runs = runs.join(best, on="run", how="left")
    runs = runs.with_columns(
        loss=pl.when(pl.col("status") != "diverged").then("loss").fill_null(np.inf)
    )
    tuned = runs.collect()
    losses = {point: own["loss"].to_list() for (point,), own in tuned.group_by("point")}
    points = [point for point in folder.study["points"] if point["id"] in losses]
    if not np.isfinite(tuned["loss"].to_numpy()).any():
        raise UserError(f"study {folder.study['name']!r}: no tune run has a loss; run the sweep")
    most = max(map(len, losses.values()))
    curves = {p["id"]: tuning_curve(losses[p["id"]], most) for p in points}
    reference = curves.get(folder.study.get("reference", ""))
    chosen = folder.study.get("chosen", {})
    rows = [_row(p, curves[p["id"]], reference, chosen.get(p["id"], {})) for p in points]
    rows.sort(key=lambda row: row["loss"][-1])
    shown = [k for k in SHOWN if k < most] + [most]
    columns = [
        Column("label", None, "point", lambda row, _: row["label"], is_text=True),
        Column("runs", None, "runs", "d"),
        *(_loss_after(k) for k in shown),
        Column("settled", None, "same side from", "d"),
        Column("above", None, "above ref.", lambda row, _: format_number(row["above"][-1], ".0%")),
        Column("tuning_sd", None, "tuning sd", ".4f"),
    ]
    late = [r["label"] for r in rows if (r["settled"] or 0) > 1]
    changes = f"the side of the reference changes with the number of runs: {', '.join(late)}"
    own_metric = (tuned["score"] == METRIC).all()
    unit = metric_unit(folder.study) if own_metric else "nats per token"
    legend = (
        f"k: expected lowest validation loss of k tuning runs, in {unit}, and the range of "
        f"{LEVEL:.0%} of tunings",
        "same side from: the number of runs from which the point's curve stays on one side of the "
        "reference's",
        f"above ref.: share of tunings of {most} runs that find a higher loss than the reference",
        "tuning sd: what the choice of the setting adds to the interval of a verdict",
        changes if late else "no point changes its side of the reference with the number of runs",
    )
    frame = pl.DataFrame(rows).explode("k", "loss", "low", "high", "above")
    return Report(
        heading=(
            folder.study["question"],
            f"{folder.study['name']}: {len(tuned)} tune runs of {len(points)} points, of which "
            f"{status_counts(tuned['status'])}",
        ),
        tables=(text_table("tuning", rows, columns),),
        legend=legend,
        frame=frame,
    )


def _row(
    point: Mapping[str, Any],
    curve: TuningCurve,
    reference: TuningCurve | None,
    chosen: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the curve of a point, as lists over the number of runs."""
    most, settled = len(curve.weight), None
    above: list[float | None] = [None] * most
    if reference is not None and reference is not curve:
        above = [*probability_above(curve, reference).tolist()]
        with np.errstate(invalid="ignore"):
            side = np.sign(curve.mean - reference.mean)
        changes = np.flatnonzero(side != side[-1])
        settled = int(changes[-1]) + 2 if len(changes) else 1
    return {
        "label": point["label"],
        "runs": len(curve.losses),
        "tuning_sd": chosen.get("tuning_sd"),
        "settled": settled,
        "k": list(range(1, most + 1)),
        "loss": curve.mean.tolist(),
        "low": curve.quantile((1 - LEVEL) / 2).tolist(),
        "high": curve.quantile((1 + LEVEL) / 2).tolist(),
        "above": above,
    }


def _loss_after(k: int) -> Column:
    """Return the column of the text table for k runs."""

    def cell(row: Mapping[str, Any], digits: int) -> str:
        low, loss, high = (
            format_number(row[name][k - 1], f".{digits}f") for name in ("low", "loss", "high")
        )
        return f"{loss} ({low}-{high})"

    return Column(f"after_{k}", None, f"{k}", cell)
