"""What a page says in words: what was spent, and how to repeat it.

`study.json` stores the options of the sweep, those of the command line and those of the script
alike, so giving all of them runs the same study.
"""

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

import polars as pl

from lmzoo.base.plain import Fields
from lmzoo.base.printed import duration
from lmzoo.lab.analysis.environments import begun_in, commits_of
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.render import store_address
from lmzoo.lab.analysis.report.html import code_block, paragraphs
from lmzoo.lab.store.address import S3_SCHEME


def cost_line(folder: StudyFolder) -> str:
    """Return what the study cost, and the command that repeats it with the script's values."""
    runs = folder.runs.select(pl.len()).collect().item()
    epochs = folder.events.filter(pl.col("event") == "epoch")
    seconds = epochs.select(pl.col("seconds").sum()).collect().item()
    study = folder.study
    command = shlex.join([*_script(study), *study.get("given", ())])
    return f"Spent: {runs:,} runs, {duration(seconds)} of training in sum. Repeat: {command}"


def _script(study: Fields) -> list[str]:
    return study.get("script") or ["python", f"sweeps/{study['name']}.py"]


GONE = ("--repeat-tuning", "--nearest")
"""Options of older sweeps, each with a value."""
OF_ASHA = 5
"""The schema from which on `asha` is the name of another rule than halving."""
INSTALL = (
    "# In a clone of the repository of lmzoo{commit}; Python 3.11 to 3.13.",
    "python3 -m venv .venv && source .venv/bin/activate",
    "pip install --constraint constraints.txt --editable '.[zoo,sweeps,figures]'",
)
CHANGED = "; + after a commit: the clone had changes that were not committed"
DATA = (
    "# The sweep generates or downloads its data; --data-dir FOLDER reads files that you have.\n"
    "# --help explains all options."
)
NOTE = (
    "Times are sums over runs. Runs of different workers count in full if they train at the same "
    "time, so the sweep took less. Models of the same shape train together as a pack and share its "
    "time."
)


def recipe_section(path: Path, folder: StudyFolder) -> str:
    """Return how times are counted, then all commands."""
    runs = folder.runs.collect()
    commits = commits_of(runs)
    commits.pop("", None)
    last = max(commits, key=lambda name: commits[name], default="")
    install = "\n".join(INSTALL).format(commit=f" at commit {last.removesuffix('+')}" * bool(last))
    body = paragraphs([NOTE], "text")
    commands = reproduce_commands(portable(path, folder.study), folder)
    return body + code_block(f"{install}\n{DATA}\n{commands}")


def portable(path: Path, study: Fields) -> Path:
    """Return where the commands write: a bucket, or a folder of the reader's own."""
    if S3_SCHEME.match(str(path)):
        return path
    corpus = (study.get("asked") or {}).get("corpus", "").partition(":")[0]
    return Path("runs") / (f"{study['name']}-{corpus}" if corpus else path.stem)


def sweep_command(study: Fields, points: Collection[str] = ()) -> list[str]:
    """Return the sweep with all its options, for these points or for all that were trained."""
    chosen = points or study["chosen"]
    labels = [point["stored_labels"][0] for point in study["points"] if point["id"] in chosen]
    options = _without_gone(study.get("options", ()))
    if study["schema"] < OF_ASHA and "asha" in options:
        options[options.index("asha")] = "halving"
    some = len(labels) < len(study["points"]) or study.get("left_out")
    return [*_script(study), *options, *(("--points", ",".join(labels)) if some else ())]


def _without_gone(options: Sequence[str]) -> list[str]:
    """Return the options of a recorded sweep without those that no sweep has any more."""
    known = []
    words = iter(options)
    for word in words:
        if word in GONE:
            next(words, "")  # its value
        else:
            known.append(word)
    return known


def reproduce_commands(path: Path, folder: StudyFolder) -> str:
    """Return shell lines: the sweep with all its options, then the ranking and the page."""
    sweep = [*sweep_command(folder.study), "--out", store_address(path.parent)]
    address = store_address(path)
    out = ["--out", "report.html"] if address.startswith("s3:") else []  # no pages in buckets
    lines = [sweep, ["lmzoo", "rank", address], ["lmzoo", "report", address, *out]]
    text = _environment(folder.runs.collect())
    note = [f"# made with {text}"] if text else []
    return "\n".join([*map(shlex.join, lines), *note])


def _environment(runs: pl.DataFrame) -> str:
    """Return what the runs were made with; a value that differs between runs is listed in full."""
    values: dict[str, dict[str, None]] = {}
    for environment, _ in begun_in(runs):
        for name, value in environment.items():
            if value != "":  # no commit outside a clone
                values.setdefault(name, {})[str(value)] = None
    parts = [f"{name} {' and '.join(values[name])}" for name in sorted(values)]
    return ", ".join(parts) + CHANGED * any("+" in c for c in values.get("commit", ()))
