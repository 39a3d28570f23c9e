"""Real sweeps for `time_left.py`: the estimates of the console, the time to its first line."""

import contextlib
import importlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from lmzoo.sweep.fleet.time_left import Interval

ROOT = Path(__file__).parents[1]
REAL = (
    ("gru_ablation", "kernels not compiled"),
    ("gru_ablation", "kernels compiled"),
    ("recurrent_cells", "seven shapes", "--corpus", "captions"),
)
"""Real sweeps: study, title, options."""
Estimates = list[tuple[int, float, Interval]]
"""(run-epochs done, time, time left)."""


def real_sweep(name: str, options: Sequence[str], kernels: str) -> tuple[Estimates, float]:
    """Return the estimates of the console in a real sweep, and when the last run had ended.

    Call it in a new process. `kernels` is the folder of the compiled kernels.
    """
    os.environ["NUMBA_CACHE_DIR"] = kernels
    sys.path.insert(0, str(ROOT))
    from lmzoo.sweep.command import run_studies
    from lmzoo.sweep.screen import console

    estimates: Estimates = []
    console.PROGRESS_SECONDS = 1.0

    class Recording(console.Console):
        def _look(self) -> None:
            looked = self._looked
            super()._look()
            if self.left and self._looked > looked:
                estimates.append((int(self._done), time.monotonic(), self.left))

        def end(self, run: Any, test: Any) -> None:
            super().end(run, test)
            ends.append(time.monotonic())

    ends: list[float] = []
    study = importlib.import_module(f"sweeps.{name}").STUDY
    with tempfile.TemporaryDirectory() as folder:
        console.Console = Recording  # type: ignore[misc]
        sys.argv = [f"{name}.py", "--storage", folder, *options]
        with contextlib.suppress(SystemExit):
            run_studies([study])
    return [e for e in estimates if e[1] < ends[-1]], ends[-1]


def real_sweeps() -> Iterator[tuple[str, Estimates, float, dict[str, float]]]:
    """Run the real sweeps, each in a new process; yield (title, estimates, end, facts)."""
    seconds = first_line_seconds()
    with tempfile.TemporaryDirectory() as kernels:
        for name, title, *options in REAL:
            spawn = multiprocessing.get_context("spawn")
            load = os.getloadavg()[0]
            with ProcessPoolExecutor(1, spawn) as pool:
                found = pool.submit(real_sweep, name, options, kernels).result()
            loads = {"load before": load, "load after": os.getloadavg()[0]}
            yield f"{name}, {title}", *found, {"first line": seconds, **loads}


def first_line_seconds() -> float:
    """Return the time from the command to its first line."""
    command = [sys.executable, "sweeps/gru_ablation.py", "--storage"]
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        process = subprocess.Popen([*command, folder], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        process.stderr.readline()
        seconds = time.monotonic() - start
        process.kill()
        process.communicate()
    return seconds
