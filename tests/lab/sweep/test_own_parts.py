"""A study with a cell of the user, in a folder outside the package, is swept by real workers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.lab.store.archive import archived_runs
from lmzoo.lab.store.records import USER_CODE, parse_json
from tests.lab.sweep.processes import ROOT
from tests.own_part_files import own_parts as own_parts


def run_in(folder: Path, *words: str) -> str:
    """Run lmzoo in a folder, as a user who has installed the package."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    # The sweep starts a Ray of its own.
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-m", "lmzoo"] + list(words)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
def test_a_sweep_and_an_audit_of_an_own_cell(own_parts):
    printed = run_in(own_parts, "sweep", "own_study.py", "--max-concurrent", "2")
    assert "minGRU" in printed
    (store,) = (own_parts / "runs").glob("own-text-sentences-*")
    configs = [parse_json(config) for _, config, _ in archived_runs(store)]
    # The baselines need no code of the user.
    own = [config for config in configs if USER_CODE in config]
    assert {config["model"]["cell"]["name"] for config in own} == {"own_mingru"}
    assert len(own) >= 4, "a run may be measured again"
    (copy,) = (store / USER_CODE).iterdir()
    assert {path.name for path in copy.iterdir()} == {"own_mingru.py", "own_gate.py"}
    confirmed = [config["run"] for config in own if config["stage"] == "confirm"]
    # The audit reads the copy.
    (own_parts / "own_gate.py").write_text("this file has changed\n")
    audit = run_in(own_parts, "audit", str(store / confirmed[0]), "--json")
    (report,) = json.loads(audit)
    assert report["faults"] == []
