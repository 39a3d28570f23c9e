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
    env = os.environ | {"OMP_NUM_THREADS": "1", "RAY_raylet_start_wait_time_s": "60"}
    # A test does not join the cluster of its user.
    env.pop("RAY_ADDRESS", None)
    command = [sys.executable, str(script)] + list(options)
    stream = out or subprocess.PIPE
    return subprocess.Popen(command, stdout=stream, stderr=stream, text=True, cwd=ROOT, env=env)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and all processes below it, if they still run."""
    below: dict[int, str] = {}
    if process.poll() is None:
        below = descendants(process.pid)
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
            child = int(entry.name)
            # A process may end while it is read.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                stat = (entry / "stat").read_text()
                command = (entry / "cmdline").read_bytes()
                names[child] = command.decode(errors="replace")
                # The name, in brackets, may have blanks; the state and the parent follow it.
                _, parent, *_ = stat.rpartition(")")[2].split()
                parents[child] = int(parent)
    below: dict[int, str] = {}
    level = {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        for child in level:
            below[child] = names[child]
    return below


def find_below(pid: int, name: str) -> list[int]:
    """Return the processes below `pid` whose command begins with a program of this name."""
    found = []
    for child, command in descendants(pid).items():
        program = command.partition("\0")[0]
        if name in program:
            found.append(child)
    return found


def training_processes(driver: int) -> list[int]:
    """Return the workers below the driver."""
    found = []
    for name in WORKERS:
        found += find_below(driver, name)
    return found


def kill_worker(driver: int) -> bool:
    """Kill one worker by SIGKILL; return False if there is none."""
    workers = training_processes(driver)
    for pid in workers[:1]:
        os.kill(pid, signal.SIGKILL)
    return bool(workers)


def epochs_on_disk(store: Path) -> int:
    """Return the number of epoch records of all runs."""
    total = 0
    for path in store.glob("*/records.ndjson"):
        total += path.read_text().count('"event": "epoch"')
    return total


def listening(pids: set[int]) -> list[str]:
    """Return the local addresses on which these processes accept TCP connections."""
    inodes = set()
    for pid in pids:
        try:
            links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    addresses = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        _, *rows = Path(table).read_text().splitlines()
        for row in rows:
            _, address, _, state, _, _, _, _, _, inode, *_ = row.split()
            # 0A is the state of a socket that listens.
            if state == "0A" and inode in inodes:
                addresses.append(address.rpartition(":")[0])
    return addresses
