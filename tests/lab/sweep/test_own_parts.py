"""A study with a cell of the user, in a folder outside the package, is swept by real workers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.lab.store.records import USER_CODE, read_json
from tests.lab.sweep.processes import ROOT
from tests.own_part_files import own_parts as own_parts


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
    refused = run(own_parts, *sweep, "--set", "model.cell=lstm")
    assert (refused.returncode, refused.stderr.count("error: ")) == (2, 1)
    [error] = refused.stderr.splitlines()[-1:]
    assert "the study compares points that set it themselves ('MGU', 'minGRU')" in error
    done = run(own_parts, *sweep)
    assert done.returncode == 0, done.stderr
    assert "minGRU" in done.stdout
    [store] = (own_parts / "runs").glob("own-text-sentences-*")
    configs = [read_json(path) for path in store.glob("*/config.json")]
    own = [config for config in configs if USER_CODE in config]
    assert {config["model"]["cell"]["name"] for config in own} == {"own_mingru"}
    assert len(own) >= 4, "a run may be measured again"
    [copy] = (store / USER_CODE).iterdir()
    assert {path.name for path in copy.iterdir()} == {"own_mingru.py", "own_gate.py"}
    report = ("report", str(store), "--out", str(tmp_path / "report.html"))
    reported = run(own_parts, "-m", "lmzoo", *report)
    assert reported.returncode == 0, reported.stderr
    assert "minGRU" in (tmp_path / "report.html").read_text()
    config = next(config for config in own if config["stage"] == "confirm")
    (own_parts / "own_gate.py").write_text("this file has changed\n")
    audit = run(own_parts, "-m", "lmzoo", "audit", str(store / config["run"]), "--json")
    assert json.loads(audit.stdout)[0]["faults"] == [], audit.stderr


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.xdist_group("ray")
def test_an_own_cell_with_a_fault_ends_the_sweep_with_a_line_for_each_run(own_parts: Path) -> None:
    (own_parts / "own_gate.py").write_text("def gate(z):\n    return z.no_such_method()\n")
    sweep = ("-m", "lmzoo", "sweep", "own_study.py")
    done = run(own_parts, *sweep, "--max-concurrent", "2")
    failed = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
    assert (done.returncode, len(failed)) == (1, 2), done.stderr
    for line in failed:
        assert "minGRU" in line
        assert "AttributeError: 'Tensor' object has no attribute 'no_such_method'" in line
        path = own_parts / line.rpartition("; ")[2]
        assert "own_gate.py" in path.read_text()
    assert "Traceback" not in done.stdout + done.stderr
    done = run(own_parts, *sweep, "--dry-run")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "point 'minGRU' cannot be trained: AttributeError" in done.stderr
