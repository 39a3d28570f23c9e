"""Other scripts still run: benchmarks, tools and drills at tiny sizes, or as far as they import."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDS = "docs/results/records"
FILE = "tests/base/test_version.py"
RAY = [pytest.mark.ray, pytest.mark.xdist_group("ray")]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([sys.executable, "benchmarks/smoke.py"], marks=pytest.mark.timeout(900)),
        [sys.executable, "-m", "pytest", "-o", "addopts=", "--collect-only", "drills"],
        [sys.executable, "-m", "drills.labels", "row", "--changes", "config"],
        [sys.executable, "-m", "drills.machines", "--smoke"],
        [sys.executable, "-m", "drills.silence", "OUT", "--smoke"],
        pytest.param([sys.executable, "-m", "drills.tuners", "OUT", "reporter"], marks=RAY),
        [sys.executable, "tools/lock.py", "--check"],
        [sys.executable, "tools/mutate.py", "--list", "--only", "statistics/ties.py"],
        [sys.executable, "tools/quick.py", "--only-tests", "--seconds", "0", FILE],
        [sys.executable, "tools/scaling_fits.py", f"{RECORDS}/scaling-captions.parquet"],
        [sys.executable, "tools/published_table.py", f"{RECORDS}/reference-words.parquet"],
    ],
    ids=lambda command: " ".join(command[1:3]),
)
def test_script_runs(command, tmp_path):
    command = [word.replace("OUT", str(tmp_path)) for word in command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
