"""Run `python -m lmzoo` in a process of its own, for samples and audits.

`lmzoo.analysis` imports neither torch nor the models. If a command fails, the last line of its
error is its result.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmzoo.store.records import USER_CODE

ROOT = Path(__file__).parents[3]
TIMEOUT = 300
"""Seconds after which a command is stopped."""


class CommandResult(NamedTuple):
    """The output of a command."""

    command: str
    text: str
    """Standard output, or the last line of standard error."""
    ok: bool


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
