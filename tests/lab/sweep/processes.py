"""Starts real sweeps as processes, inspects them and kills them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

ROOT = Path(__file__).parents[3]
T = TypeVar("T")
WORKERS = ("ray::Worker", "ray::PackTrial", "ray::ResourceTrainable")
"""Titles of the processes of workers, with Ray Core and with Ray Tune."""


def start(script: Path, *options: str, out: IO[str] | None = None) -> subprocess.Popen[str]:
    """Start a study script; its output goes to pipes, or to `out`."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_raylet_start_wait_time_s": "60"}
    env.pop("RAY_ADDRESS", None)
    return subprocess.Popen(
        [sys.executable, str(script), *options],
        stdout=out or subprocess.PIPE, stderr=out or subprocess.PIPE, text=True, cwd=ROOT, env=env,
    )  # fmt: skip


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and all processes below it, if they still run."""
    below = descendants(process.pid) if process.poll() is None else {}
    process.kill()
    for pid in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def finish(process: subprocess.Popen[str], seconds: float = 240) -> tuple[int, str, str]:
    """Wait for a process; return its exit code, stdout and stderr."""
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def wait_until(condition: Callable[[], T], seconds: float = 300) -> T:
    """Wait until a condition returns a true value, and return that value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"the condition is not true after {seconds} s"
        time.sleep(0.05)
    return value


def descendants(pid: int) -> dict[int, str]:
    """Return pid -> command line of all processes below `pid`."""
    parents = {}
    names = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
                names[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    below: dict[int, str] = {}
    level = {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        below.update({child: names[child] for child in level})
    return below


def find_below(pid: int, name: str) -> list[int]:
    """Return the processes below `pid` whose command begins with a program of this name."""
    below = descendants(pid).items()
    return [child for child, command in below if name in command.split("\0")[0]]


def training_processes(driver: int) -> list[int]:
    """Return the workers below the driver."""
    return [pid for name in WORKERS for pid in find_below(driver, name)]


def kill_worker(driver: int) -> bool:
    """Kill one worker by SIGKILL; return False if there is none."""
    workers = training_processes(driver)
    for pid in workers[:1]:
        os.kill(pid, signal.SIGKILL)
    return bool(workers)


def epochs_on_disk(store: Path) -> int:
    """Return the number of epoch records of all runs."""
    return sum(p.read_text().count('"event": "epoch"') for p in store.glob("*/records.ndjson"))


def listening(pids: set[int]) -> list[str]:
    """Return the local addresses on which these processes accept TCP connections."""
    inodes = set()
    for pid in pids:
        try:
            links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows += [line.split() for line in Path(table).read_text().splitlines()[1:]]
    return [row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes]
