"""Every point against one reference, over seeds and test sequences: a pure function.

    difference   crossed over the seeds both have and the test split's sequences
    better       P(difference < 0)
    win rate     of paired seeds; one that diverged loses
    rank         interval when seeds and sequences are drawn anew
    from_seeds   the share of the uncertainty that more seeds would shrink

frames/crossed.py and frames/agreement.py hold the equations.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from lmzoo.analysis.agreement import win_rate
from lmzoo.analysis.load import Folder
from lmzoo.analysis.ranking import TABLE, ranking, with_status
from lmzoo.analysis.seeds_by_sequences import crossed_difference, crossed_ranks
from lmzoo.analysis.sequences import Scored, common, scored
from lmzoo.analysis.statistics import holm
from lmzoo.errors import UserError

FOUND = pl.Schema(
    {
        **{"point": pl.String, "label": pl.String, "reference": pl.Boolean},
        **{"seeds": pl.Int64, "sequences": pl.Int64},
        **{"difference": pl.Float64, "difference_low": pl.Float64, "difference_high": pl.Float64},
        **{"p_raw": pl.Float64, "better": pl.Float64, "from_seeds": pl.Float64},
        **{"win_rate": pl.Float64, "win_low": pl.Float64, "win_high": pl.Float64},
        "paired": pl.Int64,
    }
)


def comparison(
    folder: Folder, *, metric: str = "token", reference: str | None = None
) -> pl.DataFrame:
    """A row per point that is compared with the reference of its table.

    Args:
        folder: the study, as `load` reads it.
        metric: `token` or `sentence`.
        reference: label of the point to compare with; None is the study's.

    Raises:
        UserError: no such point, or it kept no losses of its sequences.
    """
    frame = ranking(folder.runs, folder.events, folder.study, metric=metric)
    chosen = _reference(folder.study, reference)
    losses = scored(
        folder.path, folder.study, folder.runs.collect(), frame["epoch"].item(0), metric
    )
    if chosen not in losses:
        raise UserError(
            f"{str(folder.path)!r} keeps no per-sequence test losses of its reference point; "
            "run its confirm stage with this version, or give another --reference"
        )
    of_seed = _by_seed(folder, frame["epoch"].item(0), metric)
    home = frame.filter(pl.col("point") == chosen).select(TABLE)
    part = frame.join(home, on=TABLE, how="semi", maintain_order="left")
    rows = [
        {
            "point": row["point"],
            "label": row["label"],
            "reference": row["point"] == chosen,
            **_against(losses.get(row["point"]), losses[chosen]),
            **_wins(of_seed.get(row["point"], {}), of_seed.get(chosen, {})),
        }
        for row in part.to_dicts()
    ]
    found = pl.DataFrame(rows, FOUND)
    found = found.hstack(_ranks(found["point"], losses, losses[chosen]))
    adjusted = pl.Series("p", holm(found["p_raw"].to_numpy()))
    found = found.drop("label").with_columns(adjusted).fill_nan(None)
    facts = ["point", "label", *TABLE, "corpus", "vocab", "length", "epoch", "metric", "floor"]
    return part.select(facts).join(found, on="point", maintain_order="left")


def _reference(study: Mapping[str, Any], label: str | None) -> str:
    if label is None:
        return study["reference"]
    ids = {point["label"]: point["id"] for point in study["points"]}
    if label not in ids:
        raise UserError(f"no point {label!r} in {study['name']!r}; there are: {', '.join(ids)}")
    return ids[label]


def _against(one: Scored | None, other: Scored) -> dict[str, Any]:
    if one is other:
        return {"seeds": len(other.seeds)}
    values, against = common(one, other) if one else (np.empty((0, 0)), np.empty((0, 0)))
    if not values.size:
        return {"seeds": 0}
    found = crossed_difference(values, against)
    total = found.error_seeds**2 + found.error_sequences**2
    return {
        "seeds": len(values),
        "sequences": values.shape[1],
        "difference": found.mean,
        "difference_low": found.low,
        "difference_high": found.high,
        "p_raw": found.p,
        "better": found.better,
        "from_seeds": found.error_seeds**2 / total if total > 0 else None,
    }


def _wins(one: Mapping[int, float], other: Mapping[int, float]) -> dict[str, Any]:
    seeds = sorted(one.keys() & other.keys())
    found = win_rate([one[seed] for seed in seeds], [other[seed] for seed in seeds])
    return {
        "win_rate": found.rate,
        "win_low": found.low,
        "win_high": found.high,
        "paired": found.seeds,
    }


def _by_seed(folder: Folder, epoch: int, metric: str) -> dict[str, dict[int, float]]:
    """Point -> seed -> test loss of its confirm runs; infinite where the run diverged."""
    tests = folder.events.filter((pl.col("event") == "test") & (pl.col("epoch") == epoch))
    runs = (
        with_status(folder.runs, folder.events, epoch)
        .drop("point")
        .join(tests.select("run", loss=metric), on="run", how="left")
    )
    loss = pl.when(pl.col("status") == "diverged").then(float("inf")).otherwise("loss")
    known = {row["run"]: row for row in runs.with_columns(loss=loss).collect().to_dicts()}
    found: dict[str, dict[int, float]] = {}
    for point, chosen in folder.study["chosen"].items():
        own = [known[run] for run in chosen["runs"] if run in known]
        found[point] = {row["seed"]: row["loss"] for row in own if row["loss"] is not None}
    return found


def _ranks(points: pl.Series, losses: Mapping[str, Scored], like: Scored) -> pl.DataFrame:
    """Rank intervals among the points that have every seed of the reference, on its split."""
    whole = [
        p for p in points if p in losses and common(losses[p], like)[0].shape == like.shares.shape
    ]
    low, high = crossed_ranks(np.stack([common(losses[p], like)[0] for p in whole]))
    ends = {p: (a, b) for p, a, b in zip(whole, low, high, strict=True) if not np.isnan(a)}
    spans = [ends.get(p, (None, None)) for p in points]
    schema = {"rank_low": pl.Int64, "rank_high": pl.Int64}
    return pl.DataFrame([(a and int(a), b and int(b)) for a, b in spans], schema, orient="row")
