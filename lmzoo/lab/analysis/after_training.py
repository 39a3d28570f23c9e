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
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.columns import AFTER_TRAINING_ENDS
from lmzoo.lab.analysis.formatting import MISSING, format_mean
from lmzoo.lab.analysis.load import StudyFolder, chosen_runs
from lmzoo.lab.analysis.render import Report, ReportFrame, TextTable
from lmzoo.lab.analysis.stored import study_file
from lmzoo.lab.statistics.intervals import mean_interval
from lmzoo.lab.store.records import ABLATIONS, parse_json

NOTHING, ZERO = "nothing", "zero"
"""The cut that cuts nothing, and a way of `lmzoo/train/ablation.py`."""
WAYS = {"zero": "zero", "mean": "mean", "other": "other sequence", "trained": "{steps} more steps"}
SCHEMA = {
    **dict.fromkeys(("run", "cut", "way", "why", "model"), pl.String),
    **dict.fromkeys(("epoch", "steps"), pl.Int64),
    "loss": pl.Float64,
}
"""A line; `loss` is null where `why` says that the way has no meaning. `model` is JSON."""


def read_lines(folder: Path | str) -> pl.DataFrame:
    """Return the lines of the models in a folder, each once: the last one counts."""
    text = study_file(folder, ABLATIONS)
    rows = [parse_json(line) for line in text.splitlines()]
    known = [row for row in rows if isinstance(row, dict) and SCHEMA.keys() <= row.keys()]
    lines = pl.DataFrame(known, SCHEMA)
    latest = pl.col("epoch") == pl.col("epoch").last().over("run")
    keys = ["run", "cut", "model", "way", "steps"]
    return lines.filter(latest).unique(keys, keep="last", maintain_order=True)


def costs(lines: pl.DataFrame) -> pl.DataFrame:
    """Return one row a cut and way: mean cost with its interval, number of seeds, reason."""
    is_whole = pl.col("cut") == NOTHING
    whole = pl.col("loss").filter(is_whole).first().over("run", "steps")
    paired = lines.with_columns(cost=pl.col("loss") - whole).filter(~is_whole)
    keys = ["cut", "model", "way", "steps"]
    own = paired.group_by(keys, maintain_order=True).agg("cost", pl.col("why").first())
    found = [mean_interval(row.drop_nulls().to_numpy()) for row in own["cost"]]
    ends = {name: [float(getattr(x, name)) for x in found] for name in ("mean", "low", "high")}
    seeds = pl.col("cost").list.drop_nulls().list.len()
    return own.with_columns(
        *(pl.Series(name, values).fill_nan(None) for name, values in ends.items()), seeds=seeds
    ).drop("cost")


def ablation_report(lines: pl.DataFrame, steps: int, heading: Collection[str]) -> Report:
    """Return the table of cuts, those that cost most after training first."""
    known = costs(lines.filter(pl.col("steps").is_in([0, steps])))
    frame = _wide(known)
    names = [name.format(steps=steps) for name in WAYS.values()]
    rows = [
        [row["cut"], *(_cell(row, way) for way in WAYS), str(row["seeds"])]
        for row in frame.iter_rows(named=True)
    ]
    table = TextTable("", ("cut", *names, "seeds"), rows, frozenset({"cut"}))
    missing = known.filter(pl.col("why") != "").group_by("why", maintain_order=True)
    reasons = missing.agg(pl.col("cut").unique(maintain_order=True), pl.col("way").unique())
    legend = [
        f"{MISSING}: {', '.join(sorted(ways))}: {why}: {', '.join(cuts)}"
        for why, cuts, ways in reasons.iter_rows()
    ]
    return Report(tuple(heading), (table,), tuple(legend), frame)


def _wide(known: pl.DataFrame) -> pl.DataFrame:
    frame = known.group_by("cut", "model", maintain_order=True).agg(pl.col("seeds").max())
    for way in WAYS:
        names = {"mean": way, "low": f"{way}_low", "high": f"{way}_high"}
        own = known.filter(pl.col("way") == way).select("cut", "model", *names).rename(names)
        frame = frame.join(own, on=["cut", "model"], how="left", maintain_order="left")
    return frame.sort(ZERO, descending=True, nulls_last=True, maintain_order=True)


def _cell(row: dict[str, Any], way: str) -> str:
    return format_mean(row[way], row[f"{way}_low"], row[f"{way}_high"], "+.3f")


class Ablation(ReportFrame):
    """The costs of cuts after training, one row a cut."""


def add_after_training(frame: pl.DataFrame, folder: StudyFolder) -> pl.DataFrame:
    """Return a ranking with what each cut costs the trained models of the reference.

    A `UserError` says that they were not cut yet.
    """
    reference = folder.study.get("reference")
    runs = chosen_runs(folder.study).filter(pl.col("point") == reference)["run"]
    lines = read_lines(folder.path).filter(pl.col("run").is_in(runs.implode()))
    if lines.is_empty():
        raise UserError(
            f"{folder.address}: no part of the reference's models was cut after training; "
            f"run lmzoo ablate {folder.address}"
        )
    own = costs(lines.filter(pl.col("way").is_in([ZERO]))).rows(named=True)
    by_model = {_key(row["model"]): row for row in own}
    models = dict(folder.runs.select("point", "model").collect().iter_rows())
    found = [by_model.get(_key(models.get(point)), {}) for point in frame["point"]]
    names = ("after_training", *AFTER_TRAINING_ENDS)
    return frame.with_columns(
        pl.Series(name, [row.get(own) for row in found], pl.Float64)
        for name, own in zip(names, ("mean", "low", "high"), strict=True)
    )


def has_ablations(folder: StudyFolder) -> bool:
    """Return whether parts of trained models of a study were cut."""
    return not read_lines(folder.path).is_empty()


def _key(model: str | None) -> str:
    return json.dumps(json.loads(model or "null"), sort_keys=True)
