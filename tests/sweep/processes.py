"""Real sweeps as real processes: started, looked into, killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

ROOT = Path(__file__).parents[2]
T = TypeVar("T")


def start(script: Path, *options: str, out: IO[str] | None = None) -> subprocess.Popen[str]:
    """The study script in a process of its own; what it says goes to pipes, or to `out`."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_raylet_start_wait_time_s": "60"}
    env.pop("RAY_ADDRESS", None)
    return subprocess.Popen(
        [sys.executable, str(script), *options],
        stdout=out or subprocess.PIPE, stderr=out or subprocess.PIPE, text=True, cwd=ROOT, env=env,
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> None:
    """Leave nothing of it behind, however the test that started it went."""
    below = descendants(process.pid) if process.poll() is None else {}
    process.kill()
    for pid in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def finish(process: subprocess.Popen[str], seconds: float = 240) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def wait_until(true: Callable[[], T], seconds: float = 300) -> T:
    """Poll until something holds; what it was, which a moment later may no longer be."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def descendants(pid: int) -> dict[int, str]:
    """pid -> command line of all processes below `pid`."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
                names[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found: dict[int, str] = {}
    fresh = {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh}
        found.update({child: names[child] for child in fresh})
    return found


def training(driver: int) -> list[int]:
    """The processes that train an epoch just now."""
    below = descendants(driver).items()
    return [pid for pid, name in below if name.startswith("ray::") and ".train" in name]


def kill_a_trial(driver: int) -> bool:
    """SIGKILL one worker that holds a trial; whether there was one."""
    for pid, name in descendants(driver).items():
        if name.startswith("ray::") and "IDLE" not in name and "Agent" not in name:
            if "RuntimeEnv" in name or "Dashboard" in name:
                continue
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def epochs_on_disk(store: Path) -> int:
    """Epoch records of all runs."""
    return sum(p.read_text().count('"event": "epoch"') for p in store.glob("*/records.ndjson"))


def listening(pids: set[int]) -> list[str]:
    """Local addresses on which any of these processes accepts TCP connections."""
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
