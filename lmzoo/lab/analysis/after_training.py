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
from lmzoo.lab.analysis.formatting import MISSING, format_mean
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
WAYS = {"zero": "zero", "mean": "mean", "other": "other sequence", "trained": "{steps} more steps"}
SCHEMA = (
    dict.fromkeys(("run", "cut", "way", "why", "model"), String)
    | dict.fromkeys(("epoch", "steps"), Int64)
    | {"loss": Float64}
)
"""A line; `loss` is null where `why` says that the way has no meaning. `model` is JSON."""


def read_lines(folder: Path | str) -> DataFrame:
    """Return the lines of the models in a folder, each once: the last one counts."""
    text = study_file(folder, ABLATIONS)
    rows = []
    for line in text.splitlines():
        row = parse_json(line)
        if isinstance(row, dict) and SCHEMA.keys() <= row.keys():
            rows.append(row)
    lines = DataFrame(rows, SCHEMA)
    # A run that was trained further since is measured again.
    latest = col("epoch") == pl.last("epoch").over("run")
    keys = ["run", "cut", "model", "way", "steps"]
    return lines.filter(latest).unique(keys, keep="last", maintain_order=True)


def costs(lines: DataFrame) -> DataFrame:
    """Return one row a cut and way: mean cost with its interval, number of seeds, reason."""
    is_whole = col("cut") == NOTHING
    # By steps: a repaired cut was trained on, and so must the whole model have been.
    whole = col("loss").filter(is_whole).first().over("run", "steps")
    paired = lines.with_columns(cost=col("loss") - whole).filter(~is_whole)
    keys = ["cut", "model", "way", "steps"]
    by_cut = paired.group_by(keys, maintain_order=True).agg("cost", pl.first("why"))
    rows = []
    for cost in by_cut["cost"]:
        # A way that has no meaning for a cut has no loss.
        known = cost.drop_nulls()
        mean, low, high = map(float, mean_interval(known.to_numpy()))
        rows.append((mean, low, high, len(known)))
    schema = dict.fromkeys(ENDS, Float64) | {"seeds": pl.UInt32}
    ends = DataFrame(rows, schema, orient="row").fill_nan(None)
    return by_cut.drop("cost").hstack(ends)


def ablation_report(lines: DataFrame, steps: int, heading: Collection[str]) -> Report:
    """Return the table of cuts, those that cost most after training first."""
    # Only further training has steps; a cut alone has 0.
    known = costs(lines.filter(col("steps").is_in([0, steps])))
    frame = _wide(known)
    rows = []
    for row in frame.iter_rows(named=True):
        cells = [row["cut"]]
        for way in WAYS:
            cells.append(format_mean(row[way], row[f"{way}_low"], row[f"{way}_high"], "+.3f"))
        cells.append(str(row["seeds"]))
        rows.append(cells)
    ways = [name.format(steps=steps) for name in WAYS.values()]
    header = tuple(["cut"] + ways + ["seeds"])
    table = TextTable("", header, rows, frozenset({"cut"}))
    missing = known.filter(col("why") != "").group_by("why", maintain_order=True)
    cuts = col("cut").unique(maintain_order=True)
    reasons = missing.agg(cuts, col("way").unique())
    legend = []
    for why, cuts, ways in reasons.iter_rows():
        legend.append(f"{MISSING}: {', '.join(sorted(ways))}: {why}: {', '.join(cuts)}")
    return Report(tuple(heading), (table,), tuple(legend), frame)


def _wide(known: DataFrame) -> DataFrame:
    keys = ["cut", "model"]
    frame = known.group_by(keys, maintain_order=True).agg(pl.max("seeds"))
    for way in WAYS:
        of_way = known.filter(way=way).select(
            "cut", "model", col("mean").alias(way), col("low", "high").name.prefix(f"{way}_")
        )  # fmt: skip
        frame = frame.join(of_way, on=keys, how="left", maintain_order="left")
    return frame.sort(ZERO, descending=True, nulls_last=True, maintain_order=True)


class Ablation(ReportFrame):
    """The costs of cuts after training, one row a cut."""


def add_after_training(frame: DataFrame, folder: StudyFolder) -> DataFrame:
    """Return a ranking with what each cut costs the trained models of the reference.

    A `UserError` says that they were not cut yet.
    """
    reference = folder.study.get("reference")
    runs = chosen_runs(folder.study).filter(point=reference)["run"]
    lines = read_lines(folder.path).filter(col("run").is_in(runs.implode()))
    if lines.is_empty():
        raise UserError(
            f"{folder.address}: no part of the reference's models was cut after training; "
            f"run lmzoo ablate {folder.address}"
        )
    known = costs(lines.filter(way=ZERO))
    # By the model: a cut after training has no point, but a point may have its model.
    by_model = dict(zip(map(_key, known["model"]), known.select(ENDS).rows(), strict=True))
    models = dict(folder.runs.select("point", "model").collect().iter_rows())
    found = []
    for point in frame["point"]:
        model = _key(models.get(point))
        # A point that is no cut of the reference has no cost here.
        found.append(by_model.get(model, (None, None, None)))
    names = ["after_training"] + list(AFTER_TRAINING_ENDS)
    schema = dict.fromkeys(names, Float64)
    return frame.with_columns(DataFrame(found, schema, orient="row"))


def has_ablations(folder: StudyFolder) -> bool:
    """Return whether parts of trained models of a study were cut."""
    return not read_lines(folder.path).is_empty()


def _key(model: str | None) -> str:
    # Sorted, as in the lines of `lmzoo ablate`.
    return json.dumps(json.loads(model or "null"), sort_keys=True)
