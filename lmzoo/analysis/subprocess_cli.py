"""What only the library can tell of a run, asked of `python -m lmzoo` in a process of its own.

Analysis loads neither torch nor the models. An answer that does not come is itself an answer: its
last line stands where the sentences or the audit would.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SECONDS = 300
"""How long an answer may take."""


class Answer(NamedTuple):
    """What a command said."""

    command: str
    text: str
    """Its standard output, or its last complaint."""
    ok: bool


def samples(run: Path, *, count: int = 8, data_dir: Path | None = None) -> Answer:
    """Sentences drawn from a run's best weights."""
    where = ["--data-dir", str(data_dir)] if data_dir else []
    return ask(["sample", str(run), "--count", str(count), *where])


def audit(config: Mapping[str, Any]) -> tuple[Answer, dict[str, Any] | None]:
    """The audit of a run's model, and what it found; None if there was no answer."""
    fields = {k: v for k, v in config["model"].items() if k != "name"}
    sets = [f"--set=model.{name}={json.dumps(value)}" for name, value in fields.items()]
    answer = ask(["audit", config["model"]["name"], *sets, "--json"])
    try:
        return answer, json.loads(answer.text)[0]
    except (ValueError, IndexError):
        return answer, None


def ask(arguments: Sequence[str]) -> Answer:
    """Run `python -m lmzoo` with these arguments."""
    command = ["-m", "lmzoo", *arguments]
    said = "python " + " ".join(_quoted(command))
    # The reader's study may lie anywhere, the library beside this file; paths stay the reader's.
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8"}
    try:
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True, text=True, encoding="utf-8", timeout=SECONDS, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Answer(said, f"no answer after {SECONDS} seconds", ok=False)
    if done.stdout.strip():
        return Answer(said, done.stdout.rstrip(), ok=done.returncode == 0)
    lines = done.stderr.strip().splitlines() or [f"no answer, exit code {done.returncode}"]
    return Answer(said, lines[-1], ok=False)


def _quoted(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        plain = all(letter.isalnum() or letter in "-_./=:" for letter in word)
        yield word if plain else "'" + word.replace("'", "'\\''") + "'"
