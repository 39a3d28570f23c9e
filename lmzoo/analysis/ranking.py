"""Records -> one row per point, the best first: a pure function.

    loss         mean over the point's confirm runs, with its t-interval
    difference   paired with the reference point over common seeds, p by Holm over the table,
                 and the probability that the point is the better of the two
    rank         within a table; a table is one kind of score on one body of data
    marks        edge       the chosen setting lies on the edge of a searched range
                 leaks      the model sees what it predicts
                 diverged   confirm runs that diverged: they have no loss
                 missing    confirm runs that have no number, for another reason
                 unconfirmed  no setting is chosen yet, or none survived
                 fixed      every seed gives the same loss, as of a count model

A confirm run that diverged leaves its point's mean to the survivors, so it is counted
and marked, and its point stands behind all whose runs have all survived, whatever the
survivors' mean; a point without any number is listed last, unranked. Tune runs are counted,
never averaged. statistics.py says what the intervals are.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lmzoo.analysis.baseline_comparison import AGAINST, against_counting
from lmzoo.analysis.confirm_runs import chosen_runs, losses_of
from lmzoo.analysis.statistics import holm, mean_interval, paired_difference, rank_intervals
from lmzoo.errors import UserError

METRICS = ("token", "sentence")
TABLE = ["score", "fingerprint"]
"""What two points must share to be ranked against each other."""
KINDS = ("exact", "bound", "reconstruction", "conditional")
"""Kinds of score, in the order their tables are shown."""


def ranking(
    runs: pl.LazyFrame,
    events: pl.LazyFrame,
    study: Mapping[str, Any],
    *,
    metric: str = "token",
    at: int | None = None,
) -> pl.DataFrame:
    """Rank a study's points by the test loss at its budget, or the last that has one.

    Args:
        runs: as `load` gives them.
        events: likewise.
        study: the content of `study.json`.
        metric: `token` or `sentence`.
        at: rank by the validation loss at this epoch instead.

    Raises:
        UserError: an unknown metric, nothing confirmed yet, or no loss to rank by.
    """
    if metric not in METRICS:
        raise UserError(f"no metric {metric!r}; known: {', '.join(METRICS)}")
    chosen = chosen_runs(study)
    losses, epoch = losses_of(chosen, events, study, metric, at)
    runs = with_status(runs, events, epoch if at is None else None)
    confirm = chosen.join(runs.drop("point"), on="run", how="left")
    sound = pl.when(pl.col("status").ne_missing("diverged")).then("loss")
    confirm = confirm.join(losses, on="run", how="left").with_columns(loss=sound).collect()
    table = _points(study, runs, confirm)
    # Seeds in one order, whatever order the joins left: the bootstrap draws them by place.
    wide = (
        confirm.drop_nulls("seed")
        .sort("seed", "point", "run")
        .pivot("seed", index="point", values="loss", aggregate_function="mean")
    )
    parts = table.partition_by(TABLE, maintain_order=True)
    compared = [_compare(part, wide, study.get("reference")) for part in parts]
    compared = pl.concat(map(against_counting, compared))
    return _finish(compared, metric, "test" if at is None else "validation", epoch)


def with_status(
    runs: pl.LazyFrame, events: pl.LazyFrame, budget: int | None = None
) -> pl.LazyFrame:
    """The runs, each with the status it was last left in (null: it has not ended).

    For a budget, a run that was pruned or diverged behind it has finished.
    """
    ends = events.filter(pl.col("event") == "end")
    if budget is not None:
        behind = (pl.col("epoch") > budget) & pl.col("status").is_in(["pruned", "diverged"])
        ends = ends.with_columns(
            status=pl.when(behind).then(pl.lit("finished")).otherwise("status")
        )
    return runs.join(ends.group_by("run").agg(pl.col("status").last()), on="run", how="left")


def _points(study: Mapping[str, Any], runs: pl.LazyFrame, confirm: pl.DataFrame) -> pl.DataFrame:
    """What is known of each point that has any run, before any comparison."""
    facts = ["point", *TABLE, "model", "corpus", "vocab", "length", "parameters", "leaks"]
    facts += ["floor_token", "floor_sentence"]
    own = runs.collect()
    known = pl.concat([confirm.select(facts), own.select(facts)]).drop_nulls("score")
    ended = pl.col("status")
    counts = own.group_by("point").agg(
        tune=(pl.col("stage") == "tune").sum(),
        pruned=(ended == "pruned").sum(),
        diverged=(ended == "diverged").sum(),
        failed=(ended == "failed").sum(),
    )
    confirmed = confirm.group_by("point").agg(
        confirm=pl.len(),
        runs=pl.col("loss").count(),
        confirm_diverged=(ended == "diverged").sum(),
    )
    return (
        _described(study)
        .join(known.unique("point", keep="first"), on="point", maintain_order="left")
        .join(counts, on="point", how="left", maintain_order="left")
        .join(confirmed, on="point", how="left", maintain_order="left")
        .with_columns(pl.col(pl.UInt32).fill_null(0).cast(pl.Int64))
        .with_columns(missing=pl.col("confirm") - pl.col("runs") - pl.col("confirm_diverged"))
    )


def _described(study: Mapping[str, Any]) -> pl.DataFrame:
    """What study.json says of each point."""
    chosen = study["chosen"]
    rows = [
        {
            "point": point["id"],
            "label": point["label"],
            "aliases": point.get("aliases", []),
            "setting": json.dumps(chosen[point["id"]]["setting"])
            if point["id"] in chosen
            else None,
            "edge": chosen.get(point["id"], {}).get("edge", []),
        }
        for point in study["points"]
    ]
    texts = pl.List(pl.String)
    schema = {"point": pl.String, "label": pl.String, "aliases": texts}
    return pl.DataFrame(rows, {**schema, "setting": pl.String, "edge": texts})


def _compare(part: pl.DataFrame, wide: pl.DataFrame, reference: str | None) -> pl.DataFrame:
    """The points of one table with everything that needs the others; NaN becomes null."""
    seeds = part.select("point").join(wide, on="point", how="left", maintain_order="left")
    losses = seeds.drop("point").cast(pl.Float64).to_numpy()
    is_reference = (part["point"] == (reference or "")).to_numpy()
    against = losses[is_reference].reshape(-1, losses.shape[1])
    own = mean_interval(losses)
    others = np.where(is_reference[:, None], np.nan, losses)
    difference = paired_difference(others, against if len(against) else np.nan)
    ordered = _behind(losses, (part["confirm_diverged"] > 0).to_numpy())
    rank_low, rank_high = rank_intervals(ordered)
    numbers = pl.DataFrame(
        {
            "loss": own.mean,
            "low": own.low,
            "high": own.high,
            "difference": difference.mean,
            "difference_low": difference.low,
            "difference_high": difference.high,
            "p_raw": difference.p,
            "p": holm(difference.p),
            "better": difference.better,
            "rank_low": rank_low,
            "rank_high": rank_high,
            "rank": mean_interval(ordered).mean,
        }
    )
    whole = pl.col("rank_low", "rank_high").cast(pl.Int64)
    place = pl.col("rank").rank("min").cast(pl.Int64)
    return part.hstack(numbers.fill_nan(None).with_columns(whole, place)).with_columns(
        reference=pl.Series(is_reference)
    )


def _behind(losses: NDArray[np.float64], lost: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The losses (P, S), those of points that lost a seed set behind all others'."""
    if np.isnan(losses).all():
        return losses
    return losses + np.where(lost, np.nanmax(losses) - np.nanmin(losses) + 1, 0)[:, None]


def _finish(table: pl.DataFrame, metric: str, split: str, epoch: int) -> pl.DataFrame:
    """Columns that follow from others, and the order."""
    perplexity = pl.col("loss").exp()
    marks = {
        "edge": pl.col("edge").list.len() > 0,
        "leaks": pl.col("leaks") != "",
        "diverged": pl.col("confirm_diverged") > 0,
        "missing": pl.col("missing") > 0,
        "unconfirmed": pl.col("confirm") == 0,
        "fixed": (pl.col("runs") > 1) & (pl.col("low") == pl.col("high")),
    }
    kind = pl.col("score").replace_strict({k: i for i, k in enumerate(KINDS)}, default=len(KINDS))
    return (
        table.with_columns(
            perplexity=pl.when(perplexity.is_finite()).then(perplexity),
            floor=pl.col(f"floor_{metric}"),
            gap=pl.col("loss") - pl.col(f"floor_{metric}"),
            marks=pl.concat_list(
                pl.when(held).then(pl.lit(mark)) for mark, held in marks.items()
            ).list.drop_nulls(),
            metric=pl.lit(metric),
            split=pl.lit(split),
            epoch=pl.lit(epoch),
        )
        .sort(kind, "fingerprint", "rank", nulls_last=True, maintain_order=True)
        .select(COLUMNS)
    )


COLUMNS = (
    *("score", "corpus", "fingerprint", "vocab", "length", "split", "epoch", "metric"),
    *("rank", "rank_low", "rank_high", "point", "label", "aliases", "reference"),
    *(
        "loss",
        "low",
        "high",
        "difference",
        "difference_low",
        "difference_high",
        "p_raw",
        "p",
        "better",
    ),
    *("perplexity", "floor", "gap", "parameters", "setting", "edge", "confirm", "runs"),
    *("confirm_diverged", "missing", "tune", "pruned", "diverged", "failed", "leaks", "marks"),
    *AGAINST,
)
"""The columns of a ranking, in order; intervals are null where there is one seed."""
