"""Other scripts still run: benchmarks at tiny sizes, drills as far as they import."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "benchmarks/smoke.py"],
        [sys.executable, "-m", "pytest", "-o", "addopts=", "--collect-only", "drills"],
        [sys.executable, "-m", "drills.machines", "--smoke"],
        ["bash", "-n", "clusters/slurm.sh"],
    ],
    ids=["benchmarks", "drills", "machines", "slurm"],
)
def test_script_runs(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
