"""What a ranking says, in words: from the frame to the cells, the heading and the legend.

Two sheets per table: the results, and how each setting was found. A number that does
not exist is "—", never 0; a column that would say nothing is left out.
"""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from lmzoo.analysis.baseline_comparison import seriousness
from lmzoo.analysis.formatting import NONE, mean, number, p_value, perplexity, probability, title
from lmzoo.analysis.load import Folder
from lmzoo.analysis.ranking import TABLE, with_status
from lmzoo.analysis.render import Report, Sheet
from lmzoo.analysis.search_ranges import distinct

WORDS = frozenset({"point", "marks", "setting chosen"})
MARKS = {
    "edge": "the chosen value lies on the edge of its range, search wider",
    "diverged": "that many confirm runs diverged; mean of the others, placed behind whole rows",
    "missing": "that many confirm runs have no number here, run the sweep again",
    "unconfirmed": "no setting is chosen yet, or every one diverged or failed",
    "fixed": "every seed gives the same loss, so it has no interval, and the difference of two "
    "such points is exact, so no p",
}


def standings(folder: Folder, frame: pl.DataFrame) -> Report:
    """The report of a study's ranking."""
    return Report(
        heading=_heading(folder, frame),
        sheets=tuple(
            sheet
            for part in frame.partition_by(TABLE, maintain_order=True)
            for sheet in (_results(part), _provenance(part))
        ),
        legend=_legend(folder, frame),
        frame=frame,
        json_columns=frozenset({"setting", "corpus"}),
    )


def _results(part: pl.DataFrame) -> Sheet:
    digits, rows = _digits(part), part.to_dicts()
    columns = {
        "rank": [_rank(row) for row in rows],
        "point": [row["label"] + " ≡" * bool(row["aliases"]) for row in rows],
        "loss": [mean(row["loss"], row["high"], f".{digits}f") for row in rows],
        "difference": [_difference(row, digits) for row in rows],
        "p": [p_value(row["p"]) for row in rows],
        "better": [probability(row["better"]) for row in rows],
        "ppl": [perplexity(row["perplexity"]) for row in rows],
        "to floor": [number(row["gap"], f".{digits}f") for row in rows],
        "marks": [", ".join(_mark(row, m) for m in row["marks"]) for row in rows],
    }
    return _sheet(title(part.row(0, named=True)), columns, silent={NONE, ""})


def _provenance(part: pl.DataFrame) -> Sheet:
    rows = part.to_dicts()
    columns = {
        "rank": [number(row["rank"], "d") for row in rows],
        "point": [row["label"] for row in rows],
        "parameters": [number(row["parameters"], ",d") for row in rows],
        "seeds": [_of(row["runs"], row["confirm"]) for row in rows],
        "tuned": [str(row["tune"]) for row in rows],
        "pruned": [str(row["pruned"]) for row in rows],
        "diverged": [str(row["diverged"]) for row in rows],
        "failed": [str(row["failed"]) for row in rows],
        "setting chosen": [_setting(row) for row in rows],
    }
    return _sheet("how each setting was found", columns, silent={NONE, "0"})


def _sheet(title: str, columns: Mapping[str, list[str]], silent: set[str]) -> Sheet:
    """A sheet of the columns that say anything but the `silent` words."""
    kept = {name: cells for name, cells in columns.items() if not set(cells) <= silent}
    return Sheet(title, tuple(kept), list(zip(*kept.values(), strict=True)), WORDS)


def _heading(folder: Folder, frame: pl.DataFrame) -> tuple[str, ...]:
    study, row = folder.study, frame.row(0, named=True)
    budget = study["budget"]
    searched = "; ".join(
        f"{name} {' or '.join(map(_range, each))}" for name, each in distinct(study).items()
    )
    labels = {point["id"]: point["label"] for point in study["points"]}
    reference = labels.get(study.get("reference"), "no point")
    return (
        study["question"],
        f"{study['name']}: {row['metric']} loss in nats per token, {row['split']} at epoch "
        f"{row['epoch']}; means over seeds, 95 % intervals",
        f"budget per point: {budget['samples']} settings, {budget['seeds']} seeds, "
        f"{budget['epochs']} epochs; searched: {searched or 'nothing'}",
        f"difference: paired by seed with {reference!r}; p: t-test, after Holm; "
        "better: probability that the point beats it",
        _totals(folder),
    )


def _totals(folder: Folder) -> str:
    status = with_status(folder.runs, folder.events).select("status").collect()["status"]
    counts = [f"{(status == s).sum()} {s}" for s in ("finished", "pruned", "diverged", "failed")]
    return f"runs: {len(status)}, of which {', '.join(counts)}, {status.null_count()} not ended"


def _legend(folder: Folder, frame: pl.DataFrame) -> tuple[str, ...]:
    shown = set(frame["marks"].explode().drop_nulls())
    lines = [f"{mark}: {text}" for mark, text in MARKS.items() if mark in shown]
    lines += seriousness(frame)
    leaking = frame.filter(pl.col("leaks") != "")
    for reason, labels in leaking.group_by("leaks", maintain_order=True).agg("label").iter_rows():
        lines.append(f"leaks: not a language model's loss; {', '.join(labels)}: {reason}")
    for row in frame.filter(pl.col("aliases").list.len() > 0).to_dicts():
        lines.append("the same function: " + " ≡ ".join([row["label"], *row["aliases"]]))
    begun = set(frame["point"])
    absent = [p["label"] for p in folder.study["points"] if p["id"] not in begun]
    if absent:
        lines.append(f"no run yet: {', '.join(absent)}")
    if folder.ignored:
        lines.append(f"ignored: folders without a config: {folder.ignored}")
    if folder.damaged:
        lines.append(f"ignored: damaged lines of records: {folder.damaged}")
    return tuple(lines)


def _mark(row: Mapping[str, Any], mark: str) -> str:
    count = {"diverged": row["confirm_diverged"], "missing": row["missing"]}.get(mark)
    return mark if count is None else f"{mark} {count}/{row['confirm']}"


def _rank(row: Mapping[str, Any]) -> str:
    if row["rank"] is None:
        return NONE
    low, high = row["rank_low"], row["rank_high"]
    span = NONE if low is None else str(low) if low == high else f"{low}–{high}"
    return f"{row['rank']} ({span})"


def _digits(part: pl.DataFrame) -> int:
    """Three decimals, or four where an interval is too short for three."""
    halves = [*(part["high"] - part["loss"]), *(part["difference_high"] - part["difference"])]
    return 4 if any(half is not None and 0 < half < 0.001 for half in halves) else 3


def _difference(row: Mapping[str, Any], digits: int) -> str:
    if row["reference"]:
        return "reference"
    return mean(row["difference"], row["difference_high"], f"+.{digits}f")


def _of(part: int, whole: int) -> str:
    return str(whole) if part == whole else f"{part} of {whole}"


def _setting(row: Mapping[str, Any]) -> str:
    setting = json.loads(row["setting"]) if row["setting"] else {}
    edge = {name: " (edge)" for name in row["edge"]}
    words = [f"{name}={_value(v)}{edge.get(name, '')}" for name, v in setting.items()]
    return ", ".join(words) or NONE


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _range(where: Mapping[str, Any]) -> str:
    if "values" in where:
        return " or ".join(map(_value, where["values"]))
    scale = " log" if where.get("log") else ""
    return f"{_value(where['low'])} to {_value(where['high'])}{scale}"
