"""The atlas: each point of each study in `docs/results/records` and its reference, in one table.

`make results` writes it to `docs/results/atlas.parquet` and into the page; `tools/repeat.py` trains
a row of it again. Differences and verdicts are those of `lmzoo rank`.
"""

import functools
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars import selectors as cs

from lmzoo.lab.analysis.environments import commits_of
from lmzoo.lab.analysis.formatting import MISSING, format_mean, format_number
from lmzoo.lab.analysis.load import against, load_study
from lmzoo.lab.analysis.ranking import baselines
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import Report, TextTable
from lmzoo.lab.analysis.report.facts import sweep_command
from lmzoo.lab.analysis.verdict_lines import verdict_text
from lmzoo.lab.store.records import NUMERICS

FILE = "atlas.parquet"
COLUMNS = {
    "study": (pl.String, "name of the file of records"),
    "cell": (pl.String, "architecture of the point: the model and, where it has one, its cell"),
    "point": (pl.String, "what was trained: a path that is cut, or another model"),
    "against": (pl.String, "the point that it is compared with"),
    "corpus": (pl.String, "name of the corpus"),
    "corpus_fields": (pl.String, "all fields of the corpus, as JSON"),
    "width": (pl.Int64, "E; null for a model of counts"),
    "parameters": (pl.Int64, "number of parameters"),
    "loss": (pl.Float64, "mean loss on the test split, in the study's unit"),
    "difference": (pl.Float64, "loss minus the reference's"),
    "low": (pl.Float64, "lower end of its 95 % interval, over seeds and the choice of the setting"),
    "high": (pl.Float64, "upper end"),
    "margin": (pl.Float64, "difference that counts as negligible"),
    "verdict": (
        pl.String,
        "in words; empty where none is given: other architectures at an untuned rate, losses "
        "that are not a language model's",
    ),
    "seeds": (pl.Int64, "confirm runs with a loss"),
    "tuned": (pl.Int64, "tune runs; 1 or less: the setting was not searched"),
    "kn5": (
        pl.String,
        "against the Kneser-Ney 5-gram: wins, loses or undecided; null where it was not counted",
    ),
    "minutes": (pl.Float64, "training of the point and its reference, summed over runs"),
    "commit": (
        pl.String,
        "commit of most runs; + after it: the clone had changes; null: not recorded",
    ),
    "changed": (
        pl.Boolean,
        "the cell has other fields now, so the command must run at that commit",
    ),
    "command": (
        pl.String,
        "the sweep that trains the point and its reference; run it in the folder of the data, "
        "or add --data-dir",
    ),
}
"""Name of a column -> its type and meaning."""
SHOWN = ("cell", "point", "against", "corpus", "width", "difference", "verdict", "seeds", "tuned")
NUMBERS = ("width", "difference", "seeds", "tuned")


@functools.cache
def ranking(path: Path, *, reference: str | None = None, **options: Any) -> Report:
    """Return the ranking of a study, of which pages show parts."""
    return study_ranking(against(load_study(path), reference), **options)


@functools.cache
def atlas(records: Path) -> pl.DataFrame:
    """Return a row for each point of each study that has a reference, with `COLUMNS`."""
    frames = [_points(path) for path in sorted(records.glob("*.parquet"))]
    # Rounded, so that another machine's last bits do not change the file.
    return pl.concat(frames).with_columns(cs.float().round(6))


def _points(path: Path) -> pl.DataFrame:
    """Return the rows of one study."""
    folder, frame = load_study(path), ranking(path).frame
    references = {row["corpus"]: row for row in frame.filter("reference").sort("score").to_dicts()}
    own = folder.runs.collect().partition_by("point", as_dict=True)
    models = {str(point): json.loads(runs["model"][0]) for (point,), runs in own.items()}
    seconds = (
        folder.events.filter(pl.col("event") == "epoch")
        .group_by("run")
        .agg(pl.col("seconds").sum())
    )
    spent = folder.runs.join(seconds, on="run").group_by("point").agg(pl.col("seconds").sum())
    minutes = {point: total / 60 for point, total in spent.collect().iter_rows()}
    rows = []
    for row in frame.filter(~pl.col("reference")).to_dicts():
        reference = references.get(row["corpus"])
        if (
            reference is None
            or row["point"] in baselines(folder.study)
            or row["point"] not in models
        ):
            continue
        both = (reference["point"], row["point"])
        model = models[row["point"]]
        commits = commits_of(own[(row["point"],)])
        rows.append(
            {
                **{name: row[name] for name in ("parameters", "loss", "difference", "margin")},
                "study": path.stem,
                "cell": row["architecture"],
                "point": row["label"],
                "against": reference["label"],
                "corpus": json.loads(row["corpus"])["name"],
                "corpus_fields": row["corpus"],
                "width": model.get("width"),
                "low": row["difference_low"],
                "high": row["difference_high"],
                "verdict": verdict_text(row),
                "seeds": row["runs"],
                "tuned": row["tune"],
                "kn5": row["kn5"],
                "minutes": sum(minutes.get(point, 0.0) for point in both),
                "commit": commits.most_common(1)[0][0] or None,
                "changed": folder.study.get("numerics") != NUMERICS
                and any(_has_other_form(models[point]) for point in both if point in models),
                "command": shlex.join(sweep_command(folder.study, both)),
            }
        )
    schema = {name: kind for name, (kind, _) in COLUMNS.items()}
    return pl.DataFrame(rows, schema)


OTHER_FORMS = {
    "base_conv", "deltanet", "deltaproduct", "gated_deltanet", "gla", "h3", "hgrn2", "kda", "lru",
    "mamba", "mamba2", "min_gru", "min_lstm", "mlstm", "retention", "rg_lru", "rwkv7",
    "slstm",
}  # fmt: skip
"""Parts that configs of numerics 1 mean in another form unless they have `reference`."""


def _has_other_form(model: Mapping[str, Any]) -> bool:
    """Return whether a model has fields that have gone since."""
    inside = (value for value in model.values() if isinstance(value, Mapping))
    return (
        "reference" in model
        or model.get("name") in OTHER_FORMS
        or any(map(_has_other_form, inside))
    )


def atlas_report(records: Path) -> Report:
    """Return the decided rows for the page, and the table of the columns of the file."""
    frame = atlas(records)
    compared = frame.filter(pl.col("verdict") != "")
    decided = compared.filter(~pl.col("verdict").str.starts_with("undecided"))
    header = (*SHOWN, "command")
    rows = [tuple(_cell(row, name) for name in header) for row in decided.to_dicts()]
    text = frozenset({*header} - {*NUMBERS})
    types = [(name, kind.__name__, meaning) for name, (kind, meaning) in COLUMNS.items()]
    named = ("column", "type", "meaning")
    studies = frame["study"].n_unique()
    return Report(
        heading=(f"{frame.height} rows of {studies} studies.",),
        tables=(
            TextTable(
                f"{decided.height} decided of {compared.height} compared points", header, rows, text
            ),
            TextTable(f"columns of {FILE}", named, types, frozenset(named)),
        ),
        legend=(),
        frame=frame,
    )


def width_report(*paths: Path) -> Report:
    """Return the effect of each path at the widths of studies of one cell on one corpus, the small one first.

    The last number is the slope of the effect over log2 of the width, weighted by the intervals.
    """
    studies = [{_path(row["point"]): row for row in _points(path).to_dicts()} for path in paths]
    names = [name for name in studies[-1] if all(name in effects for effects in studies)]
    rows = []
    for name in names:
        points = [effects[name] for effects in studies]
        effects = [_cell(row, "difference") for row in points]
        verdicts = [row["verdict"] for row in points]
        slope = format_mean(*slope_by_width(points), "+.3f")
        rows.append((name, *effects, slope, " / ".join(verdicts), carries(verdicts)))
    firsts = [effects[names[0]] for effects in studies]
    wide = [f"width {row['width']}, {row['seeds']} seeds" for row in firsts]
    header = ("path", *wide, "when the width doubles", "verdicts", "the verdict")
    title = f"{firsts[0]['corpus']}: effect against width"
    text = frozenset((header[0], *header[-2:]))
    return Report((), (TextTable(title, header, rows, text),), (), pl.DataFrame())


def _path(label: str) -> str:
    """Return a label without the word for a cut before the name of its path."""
    return label.removeprefix("cut ")


def slope_by_width(points: Sequence[Mapping[str, Any]]) -> tuple[float, float, float]:
    """Return the change of an effect per doubling of the width, with both ends of its interval.

    Weighted least squares over x = log2 width with weights w = 1 / (half interval)². The half
    interval of the slope is 1 / √(Σ w (x − x̄)²), in the same 95 % as those of the effects.
    """
    x = np.log2([row["width"] for row in points])
    y = np.array([row["difference"] for row in points])
    w = np.array([row["high"] - row["difference"] for row in points]) ** -2
    x = x - np.average(x, weights=w)
    spread = np.sum(w * x**2)
    slope = np.sum(w * x * y) / spread
    half = float(spread**-0.5)
    return float(slope), float(slope) - half, float(slope) + half


INF = float("inf")
ADMITTED = {
    "better": (-INF, -1), "better (size open)": (-INF, 0), "negligible": (-1, 1),
    "negligible (better)": (-1, 0), "negligible (worse)": (0, 1),
    "worse (size open)": (0, INF), "worse": (1, INF),
}  # fmt: skip
"""Verdict -> the effects that it admits, in margins. One that is undecided admits all."""


def carries(verdicts: Sequence[str]) -> str:
    """Return "carries" for one verdict at all widths, "changes" for some that exclude each other."""
    low, high = zip(*(ADMITTED.get(verdict, (-INF, INF)) for verdict in verdicts), strict=True)
    if max(low) >= min(high):
        return "changes"
    words = {verdict.split()[0] for verdict in verdicts}
    return "carries" if len(words) == 1 and words != {"undecided"} else "unknown"


def _cell(row: Mapping[str, Any], name: str) -> str:
    if name == "difference":
        return format_mean(row["difference"], row["low"], row["high"], "+.3f")
    if name == "command":
        old = f"at {row['commit'] or 'an earlier commit'}: " if row["changed"] else ""
        return f"{old}python tools/repeat.py {row['study']} {shlex.quote(row['point'])}"
    value = row[name]
    return format_number(value, "d") if name in NUMBERS else value or MISSING
