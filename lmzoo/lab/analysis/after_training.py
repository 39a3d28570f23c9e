"""What cuts cost trained models, as `lmzoo ablate` measured it: lines -> means over seeds.

    cost    loss of the cut model − loss of the whole one, of the same run
            `trained`: both after as many further steps
    ends    95 % t-interval over the runs of the point

A run that was trained further since, so that its best epoch is another one, is measured again; its
earlier lines do not count.
"""

import json
from collections.abc import Collection
from pathlib import Path

import polars as pl
from polars import DataFrame, Float64, Int64, String, col

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.columns import AFTER_TRAINING_ENDS
from lmzoo.lab.analysis.formatting import MISSING, add_columns, format_mean
from lmzoo.lab.analysis.load import StudyFolder, chosen_runs
from lmzoo.lab.analysis.render import Report, ReportFrame, TextTable
from lmzoo.lab.analysis.stored import study_file
from lmzoo.lab.statistics.intervals import mean_interval
from lmzoo.lab.store.records import ABLATIONS, parse_json

NOTHING = "nothing"
"""The cut that cuts nothing."""
ZERO = "zero"
"""A way of `lmzoo/train/ablation.py`."""
ENDS = ("mean", "low", "high")
KEYS = ["cut", "model", "way", "steps"]
WAYS = {
    "zero": "zero",
    "mean": "mean",
    "other": "other sequence",
    "trained": "{steps} more steps",
}
"""Way -> its heading."""
MOST = 1e3
"""Nats above which a cost is that of a model that exploded."""
SCHEMA = {
    "run": String,
    "cut": String,
    "way": String,
    "why": String,
    "model": String,
    "epoch": Int64,
    "steps": Int64,
    "loss": Float64,
}
"""A line; `loss` is null where `why` says that the way has no meaning. `model` is JSON."""


def read_lines(folder: Path | str) -> DataFrame:
    """Return the lines of the models in a folder, each once: the last one counts."""
    text = study_file(folder, ABLATIONS)
    rows = []
    for line in text.splitlines():
        row = parse_json(line)
        if not isinstance(row, dict):
            continue
        if SCHEMA.keys() <= row.keys():
            rows.append(row)
    lines = DataFrame(rows, SCHEMA)
    # A run that was trained further since is measured again.
    last_epoch = pl.last("epoch").over("run")
    latest = lines.filter(col("epoch") == last_epoch)
    return latest.unique(["run"] + KEYS, keep="last", maintain_order=True)


def costs(lines: DataFrame) -> DataFrame:
    """Return one row a cut and way: mean cost with its interval, number of seeds, reason."""
    is_whole = col("cut") == NOTHING
    # By steps: a repaired cut was trained on, and so must the whole model have been.
    whole = col("loss").filter(is_whole).first()
    cost = col("loss") - whole.over("run", "steps")
    of_cuts = lines.with_columns(cost=cost).filter(~is_whole)
    by_cut = of_cuts.group_by(KEYS, maintain_order=True)
    by_cut = by_cut.agg("cost", pl.first("why"))
    rows = []
    for cost in by_cut["cost"]:
        # A way that has no meaning for a cut has no loss.
        known = cost.drop_nulls()
        interval = mean_interval(known.to_numpy())
        mean, low, high = map(float, interval)
        rows.append((mean, low, high, len(known)))
    schema = dict.fromkeys(ENDS, Float64) | {"seeds": pl.UInt32}
    ends = DataFrame(rows, schema, orient="row")
    return by_cut.drop("cost").hstack(ends.fill_nan(None))


def format_cost(mean: float | None, low: float | None, high: float | None) -> str:
    """Return a cost in nats; of one that exploded, two digits and an exponent."""
    form = "+.3f"
    if mean is not None and mean > MOST:
        form = "+.2g"
    return format_mean(mean, low, high, form)


def ablation_report(lines: DataFrame, steps: int, heading: Collection[str]) -> Report:
    """Return the table of cuts, those that cost most after training first."""
    # Only further training has steps; a cut alone has 0.
    of_steps = lines.filter(col("steps").is_in([0, steps]))
    known = costs(of_steps)
    frame = _wide(known)
    rows = []
    for row in frame.to_dicts():
        cells = [row["cut"]]
        for way in WAYS:
            cells.append(format_cost(row[way], row[f"{way}_low"], row[f"{way}_high"]))
        cells.append(str(row["seeds"]))
        rows.append(cells)
    header = ["cut"]
    for heading_of_way in WAYS.values():
        header.append(heading_of_way.format(steps=steps))
    header.append("seeds")
    table = TextTable("", tuple(header), rows, frozenset({"cut"}))
    missing = known.filter(col("why") != "")
    by_reason = missing.group_by("why", maintain_order=True)
    cuts = col("cut").unique(maintain_order=True)
    reasons = by_reason.agg(cuts, col("way").unique())
    legend = [
        f"{MISSING}: {', '.join(sorted(ways))}: {why}: {', '.join(cuts)}"
        for why, cuts, ways in reasons.iter_rows()
    ]
    return Report(tuple(heading), (table,), tuple(legend), frame)


def _wide(known: DataFrame) -> DataFrame:
    """Return one row a cut, with the mean and the ends of each way."""
    keys = ["cut", "model"]
    by_cut = known.group_by(keys, maintain_order=True)
    frame = by_cut.agg(pl.max("seeds"))
    for way in WAYS:
        mean = col("mean").alias(way)
        ends = col("low", "high").name.prefix(f"{way}_")
        of_way = known.filter(way=way).select(col(keys), mean, ends)
        frame = add_columns(frame, of_way, keys)
    return frame.sort(ZERO, descending=True, nulls_last=True, maintain_order=True)


class Ablation(ReportFrame):
    """The costs of cuts after training, one row a cut."""


def add_after_training(frame: DataFrame, folder: StudyFolder) -> DataFrame:
    """Return a ranking with what each cut costs the trained models of the reference.

    A `UserError` says that they were not cut yet.
    """
    reference = folder.study.get("reference")
    runs = chosen_runs(folder.study).filter(point=reference)
    measured = read_lines(folder.path)
    lines = measured.join(runs, on="run", how="semi", maintain_order="left")
    if lines.is_empty():
        raise UserError(
            f"{folder.address}: no part of the reference's models was cut after training; "
            f"run lmzoo ablate {folder.address}"
        )
    known = costs(lines.filter(way=ZERO))
    # By the model: a cut after training has no point, but a point may have its model.
    by_model = {
        _key(row["model"]): (row["mean"], row["low"], row["high"]) for row in known.to_dicts()
    }
    runs = folder.runs.select("point", "model").collect()
    models = dict(runs.iter_rows())
    keys = [_key(models.get(point)) for point in frame["point"]]
    # A point that is no cut of the reference has no cost here.
    found = [by_model.get(key, (None, None, None)) for key in keys]
    names = ["after_training"] + list(AFTER_TRAINING_ENDS)
    schema = dict.fromkeys(names, Float64)
    ends = DataFrame(found, schema, orient="row")
    return frame.with_columns(ends)


def has_ablations(folder: StudyFolder) -> bool:
    """Return whether parts of trained models of a study were cut."""
    return not read_lines(folder.path).is_empty()


def _key(model: str | None) -> str:
    config = json.loads(model or "null")
    # Sorted, as in the lines of `lmzoo ablate`.
    return json.dumps(config, sort_keys=True)
