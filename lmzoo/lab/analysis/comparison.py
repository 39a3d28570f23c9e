"""Compare every point with one reference, over seeds and test sequences.

    difference   over the seeds both have and the sequences of the test split (two-way), and over
                 the tuning
    better       P(difference < 0)
    p            with Holm's correction over all points but baselines and leaking rows
    rank         interval by the same tests of all pairs, with Holm's correction
    from_seeds   the share of the variance that is due to the seeds
    from_tuning  the share that is due to the choice of the setting; sequences have the rest

`lmzoo/lab/statistics/two_way.py` has the equations. The losses are those of the confirm runs, over
the seeds that both points have:

    test-EPOCH.npy   float32 (2, N): NLL of each test sequence in nats, tokens scored in it

A run that diverged, or that an older version trained, has no such file and counts as missing.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.caveats import caveats, next_command
from lmzoo.lab.analysis.columns import (
    add_values,
    in_unit,
    json_columns,
    legends,
    shown_columns,
    text_table,
)
from lmzoo.lab.analysis.formatting import UNITS, metric_of, table_title
from lmzoo.lab.analysis.load import StudyFolder, against, load_study
from lmzoo.lab.analysis.ranking import (
    TABLE_KEYS,
    accuracy_lines,
    asked_contrasts,
    rank_points,
    tuning_sds,
)  # fmt: skip
from lmzoo.lab.analysis.ranking_table import account_of
from lmzoo.lab.analysis.render import Report
from lmzoo.lab.analysis.stored import run_files
from lmzoo.lab.statistics.contrasts import holm
from lmzoo.lab.statistics.intervals import Array
from lmzoo.lab.statistics.two_way import (
    loss_contributions,
    two_way_difference,
    two_way_rank_intervals,
)
from lmzoo.lab.store.records import TEST_LOSSES

P = 0.05
"""Largest p of a difference that the answer counts."""
NUMBERS = ("difference", "difference_low", "difference_high", "p_raw", "better")
"""The columns of the first numbers of a `TwoWayDifference`."""
SCHEMA = pl.Schema(
    {"point": pl.String, "reference": pl.Boolean, "seeds": pl.Int64, "sequences": pl.Int64}
    | dict.fromkeys((*NUMBERS, "from_seeds", "from_tuning"), pl.Float64)
)


class SequenceLosses(NamedTuple):
    """Contribution of each test sequence to the loss, for all seeds of one point."""

    seeds: tuple[int, ...]
    contributions: Array
    """(S, N) nats per token, rows in the order of `seeds`."""


def compare_points(
    folder: StudyFolder, ranked: pl.DataFrame, *, metric: str = "token"
) -> pl.DataFrame:
    """Compare the points of the reference's table with the reference, one row per point.

    `ranked` is their ranking. A `UserError` says that the reference has no stored losses of test
    sequences.
    """
    epoch = ranked["epoch"].item(0)
    reference_id = folder.study["reference"]
    losses = read_sequence_losses(folder.path, folder.study, folder.runs.collect(), epoch, metric)
    if reference_id not in losses:
        raise UserError(
            f"{str(folder.path)!r} has no per-sequence test losses of its reference point; "
            "run its confirm stage with this version, or give another --reference"
        )
    home = ranked.filter(pl.col("point") == reference_id).select(TABLE_KEYS)
    part = ranked.join(home, on=TABLE_KEYS, how="semi", maintain_order="left")
    tuning = dict(zip(part["point"], tuning_sds(part, folder.study) ** 2, strict=True))
    rows = []
    for p in part["point"]:
        uncertain = tuning[p] + tuning[reference_id]
        found = _difference(losses.get(p), losses[reference_id], uncertain)
        rows.append({"point": p, "reference": p == reference_id, **found})
    compared = pl.DataFrame(rows, SCHEMA)
    compared = compared.hstack(_ranks(compared["point"], losses, losses[reference_id], tuning))
    asked = asked_contrasts(part, folder.study)
    p = compared["p_raw"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    adjusted = pl.Series("p", holm(np.where(asked, p, np.nan)))
    compared = compared.with_columns(adjusted).fill_nan(None)
    facts = part.drop((set(compared.columns) & set(part.columns)) - {"point"})
    return add_values(facts.join(compared, on="point", maintain_order="left"), "comparison")


def _difference(
    point: SequenceLosses | None, reference: SequenceLosses, tuning: float
) -> dict[str, Any]:
    if point is reference:
        return {"seeds": len(reference.seeds)}
    values, others = paired_losses(point, reference) if point else (np.empty((0, 0)),) * 2
    if not values.size:
        return {"seeds": 0}
    result = two_way_difference(values, others, tuning=tuning)
    total = result.error_seeds**2 + result.error_sequences**2 + tuning
    parts = {"from_seeds": result.error_seeds**2, "from_tuning": tuning}
    return {
        "seeds": len(values),
        "sequences": values.shape[1],
        **dict(zip(NUMBERS, result, strict=False)),
        **{name: x / total if total > 0 else None for name, x in parts.items()},
    }


def _ranks(
    points: pl.Series, losses: Mapping[str, SequenceLosses], reference: SequenceLosses,
    tuning: Mapping[str, float],
) -> pl.DataFrame:  # fmt: skip
    """Return rank intervals of the points that have all sequences, over the seeds of most points.

    The reference has more seeds than the others: of those, at least half of the points have each.
    """
    kept = [losses[p].seeds for p in points if p in losses]
    rows = [i for i, s in enumerate(reference.seeds) if 2 * sum(s in x for x in kept) >= len(kept)]
    if rows:
        seeds = tuple(reference.seeds[i] for i in rows)
        reference = SequenceLosses(seeds, reference.contributions[rows])
    paired = {p: paired_losses(losses[p], reference)[0] for p in points if p in losses}
    shape = reference.contributions.shape
    complete = {p: values for p, values in paired.items() if values.shape == shape}
    square = [tuning[p] for p in complete]
    low, high = two_way_rank_intervals(np.stack(list(complete.values())), square)
    ends = {p: (a, b) for p, a, b in zip(complete, low, high, strict=True) if not np.isnan(a)}
    intervals = [ends.get(p, (None, None)) for p in points]
    schema = {"rank_low": pl.Int64, "rank_high": pl.Int64}
    return pl.DataFrame([(a and int(a), b and int(b)) for a, b in intervals], schema, orient="row")


def study_comparison(path: Path, *, unit: str = "token", reference: str | None = None) -> Report:
    """Return the comparison of the study in folder `path` with a reference.

    Args and errors are those of `compare_points`; `unit` is one of `UNITS` but `ppl`.
    """
    metric = metric_of(unit, linear=True)
    folder = against(load_study(path), reference)
    ranked = rank_points(folder.runs, folder.events, folder.study, metric=metric)
    frame = in_unit(compare_points(folder, ranked, metric=metric), "comparison", unit)
    return comparison_report(folder, ranked, frame)


def comparison_report(folder: StudyFolder, ranked: pl.DataFrame, frame: pl.DataFrame) -> Report:
    """Return the report of a comparison, with the caveats of the ranking."""
    found = caveats(folder, ranked)
    aim, command = next_command(folder, ranked, found)
    rows = frame.to_dicts()
    reference = next(row["label"] for row in rows if row["reference"])
    columns = shown_columns("comparison", "compared")
    first = rows[0]
    table = text_table(table_title(first), rows, columns, digits="4f")
    known = frame["p"].drop_nulls()
    differ = (known < P).sum()
    return Report(
        question=folder.study["question"],
        answer=f"{differ} of {len(known)} points differ from {reference!r} with p < {P}, over "
        "seeds and test sequences.",
        heading=(
            f"{folder.study['name']}: {UNITS[first['metric']]}, test at epoch "
            f"{first['epoch']}; difference: to {reference!r}, paired over seeds and test "
            "sequences, 95 % intervals; p: with Holm's correction",
        ),
        tables=(table,),
        legend=(*legends([table], columns), *accuracy_lines(frame)),
        frame=frame,
        json_columns=json_columns("comparison"),
        warnings=tuple(caveat.text for caveat in found),
        grave=sum(caveat.is_grave for caveat in found),
        account=account_of(folder),
        aim=aim,
        next_command=command,
        says_version=True,
    )


def read_sequence_losses(
    path: Path, study: Mapping[str, Any], runs: pl.DataFrame, epoch: int, metric: str
) -> dict[str, SequenceLosses]:
    """Return the losses of the confirm runs, point -> losses, for points that have any file."""
    seeds = dict(runs.select("run", "seed").iter_rows())
    losses: dict[str, SequenceLosses] = {}
    contents = run_files(path, TEST_LOSSES.format(epoch))
    for point, chosen in study.get("chosen", {}).items():
        rows: dict[int, Array] = {}
        for run in chosen["runs"]:
            stored = _read(contents.pop(run, b""))
            if stored is not None and run in seeds:
                rows[seeds[run]] = loss_contributions(stored[:1], stored[1], metric)[0]
        if len({len(row) for row in rows.values()}) == 1:
            order = sorted(rows)
            stacked = np.stack([rows[seed] for seed in order])
            losses[point] = SequenceLosses(tuple(order), stacked)
    return losses


def paired_losses(point: SequenceLosses, reference: SequenceLosses) -> tuple[Array, Array]:
    """Return both points' contributions for their common seeds; empty if the splits differ."""
    seeds = [seed for seed in point.seeds if seed in reference.seeds]
    if not seeds or point.contributions.shape[1] != reference.contributions.shape[1]:
        empty = np.empty((0, 0))
        return empty, empty
    rows = [point.seeds.index(seed) for seed in seeds]
    reference_rows = [reference.seeds.index(seed) for seed in seeds]
    return point.contributions[rows], reference.contributions[reference_rows]


def _read(content: bytes) -> NDArray[np.float32] | None:
    """Return the two rows of a file; None if it does not exist or is damaged."""
    try:
        stored = np.load(io.BytesIO(content), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    valid = stored.ndim == 2 and stored.shape[0] == 2 and np.isfinite(stored).all()
    return stored if valid else None
