"""Every terminal gets the output, and a stream that cannot be written is said in one line."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.base import streams
from lmzoo.base.streams import REPLACE, spell
from lmzoo.lab.store.labels import curves_name
from tests.cli.run_lmzoo import run_lmzoo

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "docs/results/records/gru_ablation-captions.parquet"
TABLES = "─━│┃┌┐└┘├┤┬┴┼╭╮╯╰═║╸╺█▉▏"


def shell(line: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of the shell, in which `lmzoo` is this program."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **env}
    line = line.replace("lmzoo", f"{sys.executable} -m lmzoo", 1).replace("RECORDS", str(RECORDS))
    return subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, env=env)


@given(st.text(), st.sampled_from(["ascii", "latin-1", "cp1252", "cp437", "koi8-r"]))
def test_any_text_is_written_in_any_encoding(text, encoding):
    written = text.encode(encoding, REPLACE).decode(encoding)
    if len(text.encode(encoding, "ignore").decode(encoding)) == len(text):
        assert written == text
    assert text.encode("ascii", REPLACE).isascii()


def test_what_the_package_writes_stays_readable():
    package = set("".join(path.read_text() for path in (ROOT / "lmzoo").rglob("*.py")))
    shown = package - set("?\\") | set(TABLES)
    unreadable = {character for character in shown if set("?\\") & set(spell(character))}
    ends_of_sentences = {"。", "？"}  # only read, in texts of a user
    assert unreadable - ends_of_sentences <= {"□", "ᶜ"}
    assert "η − 0.5 ± 2·σ² ≤ ½".encode("ascii", REPLACE) == b"eta - 0.5 +- 2*sigma2 <= 1/2"


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", " +-0.0"), ("cp1252", " ±0.0")])
def test_terminals_that_lack_characters_get_their_output(encoding, shown):
    done = shell("lmzoo rank RECORDS", PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert done.stderr == b""
    assert shown in done.stdout.decode(encoding)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("lmzoo rank RECORDS | true", 0, ""),  # a reader that ends changes nothing
        ("lmzoo rank RECORDS 2>&1 >/dev/null | true", 0, ""),
        ("lmzoo --version <&-", 0, ""),
        ("lmzoo rank no/study 2>/dev/full", 2, ""),
        ("lmzoo rank no/study 2>&-", 2, ""),
        ("lmzoo rank RECORDS >/dev/full", 2, "No space left"),
        ("lmzoo rank RECORDS >&-", 2, "stdout is closed; send it to a file or to /dev/null"),
    ],
)
def test_a_stream_that_is_closed_or_full_gives_one_line_and_no_other_exit_code(line, code, said):
    done = shell(line)
    error = done.stderr.decode()
    assert done.returncode == code, error
    assert said in error
    assert error.count("\n") == bool(said)


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


def test_what_takes_long_is_said_again_with_its_state(monkeypatch, capsys):
    monkeypatch.setattr(streams, "PATIENCE", 1e-3)
    asked = []

    def state():
        asked.append(None)
        return f" {len(asked)} %"

    with streams.said("reading", state):
        while len(asked) < 3:
            time.sleep(1e-3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["reading ... 1 %", "reading ... 2 %"]


def test_what_is_done_at_once_is_not_said(capsys):
    with streams.said("reading"):
        pass
    assert not capsys.readouterr().err
