"""Other scripts still run: benchmarks and tools at tiny sizes, drills as far as they import."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDS = "docs/results/records"


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "benchmarks/smoke.py"],
        [sys.executable, "-m", "pytest", "-o", "addopts=", "--collect-only", "drills"],
        [sys.executable, "-m", "drills.machines", "--smoke"],
        ["bash", "-n", "clusters/slurm.sh"],
        [sys.executable, "tools/mutate.py", "--list", "--only", "statistics/ties.py"],
        [sys.executable, "tools/scaling_fits.py", f"{RECORDS}/scaling-captions.parquet"],
        [sys.executable, "tools/published_table.py", f"{RECORDS}/reference-words.parquet"],
    ],
    ids=["benchmarks", "drills", "machines", "slurm", "mutate", "scaling", "published"],
)
def test_script_runs(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
