"""Every terminal gets the output, and a stream that cannot be written is said in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.base.streams import REPLACE, spell
from lmzoo.lab.store.labels import curves_name
from tests.cli.run_lmzoo import run_lmzoo

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "docs/results/records/gru_ablation-captions.parquet"
TABLES = "─━│┃┌┐└┘├┤┬┴┼╭╮╯╰═║╸╺█▉▏"


def lmzoo(*words: object, stdout=subprocess.PIPE, cwd: Path | None = None, **env: str):
    """Run `lmzoo`; return its exit code, stdout and stderr as bytes."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **env}
    command = [sys.executable, "-m", "lmzoo", *map(str, words)]
    run = subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, env=env, cwd=cwd, check=False
    )
    return run.returncode, run.stdout or b"", run.stderr


@given(st.text(), st.sampled_from(["ascii", "latin-1", "cp1252", "cp437", "koi8-r"]))
def test_any_text_is_written_in_any_encoding(text, encoding):
    written = text.encode(encoding, REPLACE).decode(encoding)
    if len(text.encode(encoding, "ignore").decode(encoding)) == len(text):
        assert written == text
    assert text.encode("ascii", REPLACE).isascii()


def test_what_the_package_writes_stays_readable():
    package = {*"".join(path.read_text() for path in (ROOT / "lmzoo").rglob("*.py"))}
    unreadable = {c for c in package - {*"?\\"} | {*TABLES} if "?" in spell(c) or "\\" in spell(c)}
    assert unreadable <= {"□", "ᶜ"}
    assert "η − 0.5 ± 2·σ² ≤ ½".encode("ascii", REPLACE) == b"eta - 0.5 +- 2*sigma2 <= 1/2"


@pytest.mark.parametrize(
    ("words", "encoding", "shown"),
    [
        (("rank", RECORDS), "ascii", " +-0.0"),
        (("rank", RECORDS), "cp1252", " ±0.0"),
    ],
)
def test_terminals_that_lack_characters_get_their_output(words, encoding, shown):
    code, out, err = lmzoo(*words, PYTHONIOENCODING=encoding)
    assert (code, err) == (0, b"")
    assert shown in out.decode(encoding)


@pytest.mark.parametrize("ended", ["stdout", "stderr"])
def test_a_reader_that_ends_changes_nothing(ended):
    """`lmzoo rank STUDY | head -1` is a success, and so is `lmzoo rank STUDY 2>&1 | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "lmzoo", "rank", str(RECORDS)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, ended: writer}
    run = subprocess.run(command, cwd=ROOT, check=False, **streams)
    os.close(writer)
    assert (run.returncode, run.stderr or b"") == (0, b"")


@pytest.mark.parametrize(
    ("words", "lost"),
    [("--version", "<&-"), ("rank no/study", "2>/dev/full"), ("rank no/study", "2>&-")],
)
def test_what_stderr_cannot_take_does_not_change_the_exit_code(words, lost):
    command = f"{sys.executable} -m lmzoo {words} {lost}"
    run = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, check=False)
    assert run.returncode == (0 if words == "--version" else 2)
    assert b"Traceback" not in run.stderr


def test_a_full_disk_behind_stdout_is_one_line():
    with Path("/dev/full").open("wb") as full:
        code, _, err = lmzoo("rank", RECORDS, stdout=full)
    assert (code, err.count(b"\n")) == (2, 1), err
    assert b"No space left" in err


def test_a_closed_stdout_is_one_line_and_nothing_runs(tmp_path):
    command = f"{sys.executable} -m lmzoo rank {RECORDS} >&-"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, env=env, check=False)
    assert run.returncode == 2
    assert run.stderr == b"error: stdout is closed; send it to a file or to /dev/null\n"


@pytest.mark.parametrize("place", ["file/page.html", "/proc/no/page.html"])
def test_a_place_that_cannot_be_written_is_one_line(place, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert run_lmzoo("report", RECORDS, "--out", tmp_path / place) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: cannot write")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "label", ["数" * 80, "😀" * 60, "é" * 200, "x" * 300, "a/b" * 30, "\ud800"]
)
def test_names_of_curves_are_names_of_files(label, tmp_path):
    config = {"point": {"label": label}, "model": {}, "seed": 10**9, "stage": "confirm"}
    name = curves_name({**config, "run": "24c1bfa388ac"})
    (tmp_path / name).mkdir()
    assert name.endswith(" · seed 1000000000 · 24c1bf")
