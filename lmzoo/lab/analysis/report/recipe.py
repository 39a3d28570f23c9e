"""What a study has spent, how its models were trained, and how to repeat it.

`study.json` stores the options of the sweep, those of the command line and those of the script
alike, so giving all of them runs the same study.
"""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.command_line import setting_text
from lmzoo.base.search_space import range_text
from lmzoo.lab.analysis.curve_data import search_ranges
from lmzoo.lab.analysis.formatting import format_duration, format_value
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.render import TextTable, store_address
from lmzoo.lab.analysis.report.html import code_block, folded, html_table, paragraphs
from lmzoo.lab.analysis.study_parquet import SUFFIX
from lmzoo.lab.store.archive import read_config
from lmzoo.lab.store.local import S3_SCHEME


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


def cost_line(folder: StudyFolder) -> str:
    """Return what the study cost, and the command that repeats it with the script's values."""
    *_, last = spent_table(folder).rows
    study = folder.study
    command = shlex.join([*_script(study), *study.get("given", ())])
    return f"Spent: {last[1]} runs, {last[4]} of training in sum. Repeat: {command}"


def _script(study: Mapping[str, Any]) -> list[str]:
    return study.get("script") or ["python", f"sweeps/{study['name']}.py"]


INSTALL = (
    "# In a clone of the repository of lmzoo{commit}; Python 3.11 to 3.13.",
    "python3 -m venv .venv && source .venv/bin/activate",
    "pip install --constraint constraints.txt --editable '.[zoo,sweeps,figures]'",
)
DATA = (
    "# The sweep generates or downloads its data; --data-dir FOLDER reads files that you have.\n"
    "# --help explains all options."
)


def recipe_section(path: Path, folder: StudyFolder) -> str:
    """Return tables of what was spent and of the recipe, then all commands."""
    configs = run_configs(folder)
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
        table = recipe_table(folder, configs)
        body += folded(table.title, html_table(table))
    commands = reproduce_commands(portable(path, folder.study), folder)
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
    return " or ".join(sorted(counts))


def portable(path: Path, study: Mapping[str, Any]) -> Path:
    """Return where the commands write: a bucket, or a folder of the reader's own."""
    if S3_SCHEME.match(str(path)):
        return path
    corpus = (study.get("asked") or {}).get("corpus", "").partition(":")[0]
    return Path("runs") / (f"{study['name']}-{corpus}" if corpus else path.stem)


CHANGED = "; + after a commit: the clone had changes that were not committed"


def run_configs(folder: StudyFolder) -> list[dict[str, Any]]:
    """Return the configs of the runs of a study that can be read."""
    runs = folder.runs.select("run").collect()["run"]
    return [config for run in runs if (config := read_config(folder.path, run))]


def sweep_command(study: Mapping[str, Any], points: Collection[str] = ()) -> list[str]:
    """Return the sweep with all its options, for these points or for all that were trained."""
    chosen = points or study["chosen"]
    labels = [point["stored_labels"][0] for point in study["points"] if point["id"] in chosen]
    options = [*(study.get("options") or _older_options(study))]
    some = len(labels) < len(study["points"]) or study.get("left_out")
    return [*_script(study), *options, *(("--points", ",".join(labels)) if some else ())]


def reproduce_commands(path: Path, folder: StudyFolder) -> str:
    """Return shell lines: the sweep with all its options, then the ranking and the page."""
    study = folder.study
    if str(path).endswith(SUFFIX):  # the sweep runs into the default store
        path = Path("runs") / path.stem
    configs = run_configs(folder)
    sweep = [*sweep_command(study), "--out", store_address(path.parent)]
    address = store_address(path)
    out = ["--out", "report.html"] if address.startswith("s3:") else []  # no pages in buckets
    lines = [sweep, ["lmzoo", "rank", address], ["lmzoo", "report", address, *out]]
    note = [f"# made with {text}"] if (text := _environment(configs)) else []
    return "\n".join([*map(shlex.join, lines), *note])


def _environment(configs: list[dict[str, Any]]) -> str:
    """Return what the runs were made with; a value that differs between runs is listed in full."""
    values: dict[str, dict[str, None]] = {}
    for config in configs:
        for name, value in config.get("environment", {}).items():
            if value != "":  # no commit outside a clone
                values.setdefault(name, {})[str(value)] = None
    parts = [f"{name} {' and '.join(values[name])}" for name in sorted(values)]
    return ", ".join(parts) + CHANGED * any("+" in c for c in values.get("commit", ()))


def _older_options(study: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of a study whose version did not store them as words."""
    for name in ("epochs", "samples", "seeds"):
        yield from (f"--{name}", str(study["budget"][name]))
    if "margin" in study:
        yield from ("--margin", str(study["margin"]))
    options = study.get("asked")
    if options is None:
        return
    for name in ("corpus", "recipe", "seed", "parameters"):
        yield from (f"--{name}", str(options[name]))
    for name in ("parallel", "sampler", "pruner"):
        value = str(options.get(name, ""))
        # An object that a script gave is stored by its class; `response` was a pruner of 0.1.
        if (value.islower() or value.isdecimal()) and value != "response":
            yield from (f"--{name}", value)
    if options.get("max_seeds"):
        yield from ("--until-decided", "--max-seeds", str(options["max_seeds"]))
    if options.get("nearest"):
        yield from ("--nearest", str(options["nearest"]))
    for field, value in options["fields"].items():
        yield from ("--set", setting_text(field, value))
    for field, search_range in options["search"].items():
        if search_range is not None:  # None is the default range of the field
            yield from ("--search-space", range_text(field, search_range))
    for field in options["off"]:
        yield from ("--search-space", f"{field}=off")
