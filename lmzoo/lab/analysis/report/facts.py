"""What a page says in words: what was spent, and how to repeat it.

`study.json` stores the options of the sweep, those of the command line and those of the script
alike, so giving all of them runs the same study.
"""

import shlex
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

import polars as pl
from polars import DataFrame

from lmzoo.base.plain import Fields
from lmzoo.base.printed import duration
from lmzoo.lab.analysis.environments import begun_in, commits_of
from lmzoo.lab.analysis.formatting import asked_of
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.render import store_address
from lmzoo.lab.analysis.report.html import code_block, paragraphs
from lmzoo.lab.store.address import S3_SCHEME


def cost_line(folder: StudyFolder) -> str:
    """Return what the study cost, and the command that repeats it with the script's values."""
    runs = folder.runs.select(pl.len()).collect().item()
    epochs = folder.events.filter(event="epoch")
    seconds = epochs.select(pl.sum("seconds")).collect().item()
    command = _script(folder.study)
    command += folder.study.get("given", ())
    repeat = shlex.join(command)
    return f"Spent: {runs:,} runs, {duration(seconds)} of training in sum. Repeat: {repeat}"


def _script(study: Fields) -> list[str]:
    # A study that `run_study` ran has none: what ran it is the user's own.
    return list(study.get("script") or ["python", "PROGRAM.py"])


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
    commits = commits_of(folder.runs.collect())
    # An unknown commit cannot be checked out.
    commits.pop("", None)
    at = ""
    if commits:
        # A clone has one commit, that of most runs.
        last = max(commits, key=commits.__getitem__)
        at = f" at commit {last.removesuffix('+')}"
    install = "\n".join(INSTALL).format(commit=at)
    body = paragraphs([NOTE], "text")
    commands = reproduce_commands(portable(path, folder.study), folder)
    return body + code_block(f"{install}\n{DATA}\n{commands}")


def portable(path: Path, study: Fields) -> Path:
    """Return where the commands write: a bucket, or a folder of the reader's own."""
    if S3_SCHEME.match(str(path)):
        return path
    name = path.stem
    corpus, _, _ = asked_of(study).get("corpus", "").partition(":")
    if corpus:
        name = f"{study['name']}-{corpus}"
    return Path("runs") / name


def sweep_command(study: Fields, points: Collection[str] = ()) -> list[str]:
    """Return the sweep with all its options, for these points or for all that were trained."""
    if not points:
        points = study["chosen"]
    labels = [point["stored_labels"][0] for point in study["points"] if point["id"] in points]
    options = _without_gone(study.get("options", ()))
    # An old study means another rule by this name.
    if study["schema"] < OF_ASHA and "asha" in options:
        options[options.index("asha")] = "halving"
    command = _script(study) + options
    if len(labels) < len(study["points"]) or study.get("left_out"):
        command += ["--points", ",".join(labels)]
    return command


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
    address = store_address(path)
    sweep = sweep_command(folder.study)
    sweep += ["--out", store_address(path.parent)]
    page = ["lmzoo", "report", address]
    if address.startswith("s3:"):  # no pages in buckets
        page += ["--out", "report.html"]
    lines = list(map(shlex.join, (sweep, ["lmzoo", "rank", address], page)))
    text = _environment(folder.runs.collect())
    if text:
        lines.append(f"# made with {text}")
    return "\n".join(lines)


def _environment(runs: DataFrame) -> str:
    """Return what the runs were made with; a value that differs between runs is listed in full."""
    values = defaultdict(dict)
    for environment, _ in begun_in(runs):
        for name, value in environment.items():
            if value != "":  # no commit outside a clone
                values[name][str(value)] = None
    text = ", ".join(f"{name} {' and '.join(values[name])}" for name in sorted(values))
    if "+" in "".join(values["commit"]):
        text += CHANGED
    return text
