"""`python analysis/rank.py`: what it prints, how it fails, what it never imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.analysis.synthetic import Made

ROOT = Path(__file__).parents[2]


@pytest.fixture
def made(tmp_path):
    made = Made(tmp_path / "toy")
    made.point("full", [3.0, 3.1])
    made.point("gate", [3.2, 3.4])
    return made


def run(*args, **env):
    return subprocess.run(
        [sys.executable, *map(str, args)],
        capture_output=True, text=True, encoding="utf-8", cwd=ROOT, check=False,
        env={**os.environ, "PYTHONUTF8": "1", **env},
    )  # fmt: skip


@pytest.mark.parametrize("how", [["analysis/rank.py"], ["-m", "lmzoo.cli.rank"]])
def test_it_prints_the_table_as_wide_as_the_window(made, how):
    done = run(*how, made.path, "--metric", "sentence", "--at", 2, COLUMNS="140")
    assert (done.returncode, done.stderr) == (0, "")
    assert "sentence loss in nats per token, validation at epoch 2" in done.stdout
    assert "1.575 ±" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere"], "no folder 'nowhere'"),
        (["STUDY", "--at", "99"], "at epoch 99"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(made, args, words):
    args = [str(made.path) if arg == "STUDY" else arg for arg in args]
    done = run("analysis/rank.py", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr


def test_neither_torch_nor_ray_loads():
    code = (
        "import sys, lmzoo.cli.rank\n"
        "heavy = {'torch', 'ray', 'optuna', 'boto3'} & set(sys.modules)\n"
        "lmzoo = {m for m in sys.modules if m.startswith('lmzoo.')}\n"
        "print(sorted(heavy), sorted(lmzoo))"
    )
    done = run("-c", code)
    store = ["bucket", "errors", "lease", "persist", "place", "places", "record"]
    assert done.stdout.strip() == f"[] {[f'lmzoo.{name}' for name in store]}", done.stderr
