"""GPU kernels in Triton's interpreter, in a process of their own: it is chosen at import.

The three files share one, because its start takes seconds.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is installed on Linux x86-64 only")
FOLDER = Path(__file__).parent


def run(*names, marker):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    command += ["-m", marker]
    command += [str(FOLDER / name) for name in names]
    options = {"capture_output": True, "text": True, "env": environment}
    done = subprocess.run(command, check=False, **options)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "[100%]" in done.stdout


@pytest.mark.timeout(600)
def test_kernels_equal_their_references():
    files = ("interpreted.py", "interpreted_precision.py", "interpreted_step.py")
    run(*files, marker="not slow")


@pytest.mark.slow
def test_the_kernels_of_all_mutants_equal_their_cells():
    run("interpreted.py", marker="slow")
