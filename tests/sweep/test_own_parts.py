"""A study with a cell of the user, in a folder outside the package, is swept by real workers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.store.records import USER_CODE, read_json
from tests.cli.run_lmzoo import run_lmzoo
from tests.own_parts import own_parts as own_parts
from tests.sweep.processes import ROOT


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, as a user who has installed the package."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment.pop("RAY_ADDRESS", None)
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
def test_a_sweep_of_an_own_cell_on_two_workers(own_parts: Path, tmp_path: Path) -> None:
    sweep = ("-m", "lmzoo", "sweep", "own_study.py", "--max-concurrent", "2")
    done = run(own_parts, *sweep)
    assert done.returncode == 0, done.stderr
    assert "minGRU" in done.stdout
    store = own_parts / "runs/own-text"
    configs = [read_json(path) for path in store.glob("*/config.json")]
    own = [config for config in configs if USER_CODE in config]
    assert {config["model"]["cell"]["name"] for config in own} == {"own_mingru"}
    assert len(own) == 4
    [copy] = (store / USER_CODE).iterdir()
    assert {path.name for path in copy.iterdir()} == {"own_mingru.py", "own_gate.py"}
    assert run_lmzoo("report", store, "--out", tmp_path / "report.html") == 0
    assert "minGRU" in (tmp_path / "report.html").read_text()
    assert run_lmzoo("rank", store, "--format", "json") == 0
