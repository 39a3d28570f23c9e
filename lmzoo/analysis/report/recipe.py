"""What a study has spent, how its models were trained, and how to repeat it.

What a study has spent: runs, epochs, training time and devices of each stage.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.analysis.records.load import StudyFolder
from lmzoo.analysis.records.search_ranges import search_ranges
from lmzoo.analysis.report.html import code_block, html_table, paragraphs
from lmzoo.analysis.report.reproduce import reproduce_commands
from lmzoo.analysis.text.formatting import format_duration, format_value
from lmzoo.analysis.text.render import TextTable
from lmzoo.store.open import S3_SCHEME
from lmzoo.store.records import CONFIG, read_json


def spent_table(folder: StudyFolder) -> TextTable:
    """Return runs, pruned runs, epochs, training time and devices of each stage.

    Runs of an older version have no device. Times are those of the runs' own clocks: runs of a
    pack share an epoch's time.
    """
    epochs = folder.events.filter(pl.col("event") == "epoch").group_by("run")
    trained = epochs.agg(
        epochs=pl.len(), seconds=pl.col("seconds").sum(), device=pl.col("device").last()
    )
    stages = (
        folder.runs.join(trained, on="run", how="left")
        .group_by("stage")
        .agg(
            runs=pl.len(),
            pruned=(pl.col("status") == "pruned").sum(),
            epochs=pl.col("epochs").sum(),
            seconds=pl.col("seconds").sum(),
            device=pl.col("device").fill_null("not recorded").unique().sort().str.join(", "),
        )
        .sort("stage", descending=True)
        .collect()
    )
    rows = [
        (row["stage"], f"{row['runs']:,}", f"{row['pruned']:,}", f"{row['epochs']:,}",
         format_duration(row["seconds"]), row["device"])
        for row in stages.to_dicts()
    ]  # fmt: skip
    if len(rows) > 1:
        frame = stages.select(pl.col("runs", "pruned", "epochs", "seconds").sum())
        runs_, pruned, epochs_, seconds = frame.row(0)
        total = (f"{runs_:,}", f"{pruned:,}", f"{epochs_:,}", format_duration(seconds))
        rows.append(("all", *total, ""))
    header = ("stage", "runs", "pruned", "epochs", "training time, summed", "device")
    return TextTable("what was spent", header, rows, frozenset({"stage", "device"}))


INSTALL = (
    "# In a clone of the repository of lmzoo{commit}; Python 3.11 to 3.13.",
    "python3 -m venv .venv && source .venv/bin/activate",
    "pip install --constraint constraints.txt --editable '.[sweeps,analysis,figures]'",
)
DATA = (
    "# The sweep generates or downloads its data; --data-dir FOLDER reads files that you have.\n"
    "# --help explains all options."
)


def recipe_section(path: Path, folder: StudyFolder) -> str:
    """Return tables of what was spent and of the recipe, then all commands."""
    configs = [
        config
        for run in folder.runs.select("run").collect()["run"]
        if (config := read_json(folder.path / run / CONFIG))
    ]
    commits = Counter(config.get("environment", {}).get("commit", "") for config in configs)
    commits.pop("", None)
    last = max(commits, key=lambda name: commits[name], default="")
    install = "\n".join(INSTALL).format(commit=f" at commit {last.removesuffix('+')}" * bool(last))
    notes = [
        "Times are sums over runs. Runs of different workers count in full if they train at the "
        "same time, so the sweep took less. Models of the same shape train together as a pack and "
        "share its time; a pack of tuning runs shrinks as runs are stopped early. The number of "
        "workers is not recorded."
    ]
    if len(commits) > 1:
        listed = " and ".join(f"{count} runs at {name}" for name, count in commits.most_common())
        notes.append(f"The study was continued: {listed}. A later commit repeats no run.")
    body = html_table(spent_table(folder)) + paragraphs(notes, "text")
    if configs:
        body += html_table(recipe_table(folder, configs))
    commands = reproduce_commands(_portable(path, folder.study), folder)
    return body + code_block(f"{install}\n{DATA}\n{commands}")


def recipe_table(folder: StudyFolder, configs: Sequence[Mapping[str, Any]]) -> TextTable:
    """Return how the points were trained: recipe, epochs, seeds, and how settings were found."""
    study = folder.study
    confirm = [c for c in configs if c.get("stage") == "confirm" and c.get("parameters")]
    values: dict[str, Counter[str]] = {}
    for config in confirm or configs:
        for name, value in config.get("recipe", {}).items():
            text = format_value(value) if isinstance(value, float) else str(value)
            values.setdefault(name, Counter())[text] += 1
    searched = search_ranges(study)
    rows = [
        (name, _listed(counts) + ", chosen by tuning" * (f"recipe.{name}" in searched))
        for name, counts in values.items()
    ]
    budget, options = study["budget"], study.get("asked") or {}
    rows.append(("epochs", str(budget["epochs"])))
    seeds = sorted({config["seed"] for config in confirm})
    if seeds:
        rows.append(("seeds of the ranking", ", ".join(map(str, seeds))))
    rows.append(("tuning runs of a point", str(budget["samples"])))
    for name, title in (("sampler", "proposals of settings"), ("pruner", "early stopping")):
        if options.get(name):
            rows.append((title, str(options[name])))
    threads = sorted({str(c.get("environment", {}).get("threads", "")) for c in configs} - {""})
    if threads:
        rows.append(("threads of a run", " or ".join(threads)))
    return TextTable(
        "how each point was trained", ("field", "value"), rows, frozenset(("field", "value"))
    )


def _listed(counts: Counter[str]) -> str:
    """Return the only value, or all values of runs of different points."""
    return " or ".join(sorted(counts))


def _portable(path: Path, study: Mapping[str, Any]) -> Path:
    """Return where the commands write: a bucket, or a folder of the reader's own."""
    if S3_SCHEME.match(str(path)):
        return path
    corpus = (study.get("asked") or {}).get("corpus", "").partition(":")[0]
    return Path("runs") / (f"{study['name']}-{corpus}" if corpus else path.stem)
