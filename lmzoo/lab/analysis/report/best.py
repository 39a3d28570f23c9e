"""The audit and samples of the best model of each table, as sections of a study's page.

The best model is the first row of a table that neither leaks nor is a count model. A leaking model
has no next token to sample, and count models are baselines.

Analysis imports neither torch nor the models, so samples and audits are commands of their own. If
one fails, the last line of its error is its result.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from lmzoo.lab.analysis.records.load import StudyFolder
from lmzoo.lab.analysis.report.html import code_block, html_table, paragraphs
from lmzoo.lab.analysis.report.network import count_points, program_points
from lmzoo.lab.analysis.tables.ranking import TABLE_KEYS
from lmzoo.lab.analysis.text.formatting import table_title
from lmzoo.lab.analysis.text.render import TextTable
from lmzoo.lab.store.archive import restore_run
from lmzoo.lab.store.records import CONFIG, USER_CODE, read_json

AUDIT_TESTS = {
    "future": "every later token replaced: largest change of a score",
    "itself": "scored token replaced: distance of the sum of all tokens' probabilities from one",
    "total": "probabilities of all sequences summed: distance from one",
    "pads": "padding replaced or lengthened: largest change of a score",
    "mates": "other sequences in the batch: largest change of a score",
    "steps": "one pass against step by step: largest difference of a score",
}
"""Key of a deviation in the output of `lmzoo audit --json` -> its test."""


class Best(NamedTuple):
    """The best model of a table."""

    row: dict[str, Any] | None
    reason: str
    """Why it is not the first row, or why there is none; empty for the first row."""


class CommandResult(NamedTuple):
    """The output of a command."""

    command: str
    text: str
    """Standard output, or the last line of standard error."""
    ok: bool


def best_rows(folder: StudyFolder, ranked: pl.DataFrame) -> Iterator[Best]:
    """Yield the best model of each table."""
    counts, programs = {*count_points(folder)}, {*program_points(folder)}
    for part in ranked.drop_nulls("rank").partition_by(TABLE_KEYS, maintain_order=True):
        before: list[str] = []
        for row in part.to_dicts():
            if not row["leaks"] and row["point"] not in counts | programs:
                behind = f" (rank {row['rank']}, behind {', '.join(before)})" if before else ""
                yield Best(row, behind)
                break
            kind = "a program" if row["point"] in programs else "a count model"
            before.append(f"{row['label']} ({'leaks' if row['leaks'] else kind})")
        else:
            title = table_title(part.row(0, named=True))
            reason = "no model to audit or sample: each point leaks, is a count model or a program"
            yield Best(None, f"{title}: {reason}")


def audit_section(folder: StudyFolder, ranked: pl.DataFrame, *, run: bool) -> str:
    """Return the audit results of all points, from their training, as HTML.

    With `run`, the best model of each table is audited again, which gives its deviations.
    """
    leaking = ranked.filter(pl.col("leaks") != "")
    lines = [f"{row['label']}: {row['leaks']}" for row in leaking.to_dicts()]
    programs = program_points(folder)
    models = pl.col("score").is_not_null() & ~pl.col("point").is_in(programs)
    audited = ranked.filter(models).height
    passed = f"{audited - len(lines)} of {audited} points passed the audit when they were trained"
    if programs:
        lines.append(f"{len(programs)} points train programs of the user, which are not audited")
    body = paragraphs([passed, *lines], "text")
    for row, behind in best_rows(folder, ranked) if run else ():
        if row is None:
            body += paragraphs([behind], "text")
            continue
        tested = folder.path / _tested_run(folder, row["point"])
        result, audit = audit_model(read_json(tested / CONFIG), tested)
        body += paragraphs([f"best model, {row['label']}{behind}, audited again:"], "text")
        body += html_table(audit_table(audit)) if audit else paragraphs([reason(result)])
        body += code_block(result.command)
    return body


def samples_section(
    path: Path, folder: StudyFolder, ranked: pl.DataFrame, data_dir: Path | None
) -> str:
    """Return samples of the best model of each table, beside those of the reference, as HTML."""
    body, counts = "", set(count_points(folder))
    for best, behind in best_rows(folder, ranked):
        if best is None:
            body += paragraphs([behind], "text")
            continue
        keys = {key: best[key] for key in TABLE_KEYS}
        others = ranked.filter(pl.col("reference"), pl.col("rank").is_not_null(), **keys).to_dicts()
        rows = [(best, behind)]
        rows += [
            (row, ", the reference")
            for row in others
            if row["point"] not in {best["point"], *counts, *program_points(folder)}
            and not row["leaks"]
        ]
        shown = "".join(_samples(path, folder, row, note, data_dir) for row, note in rows)
        body += f'<div class="side">{shown}</div>\n'
    return body


def _samples(
    path: Path, folder: StudyFolder, row: Mapping[str, Any], note: str, data_dir: Path | None
) -> str:
    result = draw_samples(path / _tested_run(folder, row["point"]), data_dir=data_dir)
    name = f"{row['label']}{note}, {row['metric']} loss {row['loss']:.4f}"
    if not result.ok:  # the store may have records without weights
        return f"<div>{paragraphs([f'{name}: no samples. {reason(result)}'], 'text')}</div>\n"
    lines = paragraphs([f"{name}:"], "text")
    return f"<div>{lines}{code_block(result.text)}{code_block(result.command)}</div>\n"


def reason(result: CommandResult) -> str:
    """Return why a command failed, as a sentence."""
    text = result.text.removeprefix("error: ")
    return f"{text[:1].upper()}{text[1:]}."


def audit_table(audit: Mapping[str, Any]) -> TextTable:
    """Return the deviations of one model in `lmzoo audit --json`, for the tests that apply."""
    known = {text: audit.get(key) for key, text in AUDIT_TESTS.items()}
    rows = [(text, f"{x:.1e}" if x else "0") for text, x in known.items() if x is not None]
    result = "; ".join(audit["faults"]) or "passes"
    title = f"{audit['name']}, {audit['score']}: {result}"
    if "tolerance" in audit:
        title += f" (a deviation may be {audit['tolerance']:g})"
    return TextTable(title, ("test", "deviation"), rows, frozenset({"test"}))


def _tested_run(folder: StudyFolder, point: str) -> str:
    """Return the first confirm run of a point that has a test result; it has a folder then."""
    events = folder.events.filter(pl.col("event") == "test").select("run").collect()
    tested = set(events["run"])
    found = next(run for run in folder.study["chosen"][point]["runs"] if run in tested)
    restore_run(folder.path, found)
    return found


ROOT = Path(__file__).parents[4]
TIMEOUT = 300
"""Seconds after which a command is stopped."""


def draw_samples(run: Path, *, count: int = 8, data_dir: Path | None = None) -> CommandResult:
    """Draw sentences from a run's best weights."""
    data = ["--data-dir", str(data_dir)] if data_dir else []
    return run_lmzoo(["sample", str(run), "--count", str(count), *data])


def audit_model(
    config: Mapping[str, Any], run: Path
) -> tuple[CommandResult, dict[str, Any] | None]:
    """Audit the model of a run's config; the second value is the audit, None if it failed.

    `run` is the folder of the run, which has the source of parts from outside the package.
    """
    fields = {k: v for k, v in config["model"].items() if k != "name"}
    sets = [f"--set=model.{name}={json.dumps(value)}" for name, value in fields.items()]
    subject = [str(run)] if USER_CODE in config else [config["model"]["name"], *sets]
    result = run_lmzoo(["audit", *subject, "--json"])
    try:
        return result, json.loads(result.text)[0]
    except (ValueError, IndexError):
        return result, None


def run_lmzoo(arguments: Sequence[str]) -> CommandResult:
    """Run `python -m lmzoo` with these arguments."""
    command = f"lmzoo {shlex.join(arguments)}"
    arguments = ["-m", "lmzoo", *arguments]
    # The current folder stays, so relative paths work; the package may not be installed.
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8"}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True, text=True, encoding="utf-8", timeout=TIMEOUT, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return CommandResult(command, f"no result after {TIMEOUT} seconds", ok=False)
    if done.stdout.strip():
        return CommandResult(command, done.stdout.rstrip(), ok=done.returncode == 0)
    lines = done.stderr.strip().splitlines() or [f"no output, exit code {done.returncode}"]
    return CommandResult(command, lines[-1], ok=False)
