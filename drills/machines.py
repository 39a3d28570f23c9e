"""A short study on odd machines: does it end with the table of an undisturbed one?

    python -m drills.machines                   all machines, about ten minutes of two cores
    python -m drills.machines "one core" shm    those whose names contain a word
    python -m drills.machines --smoke           make each machine and look at it, in seconds

The rival of each machine is this machine as it is: the same study in another store. A machine is
held if its points have the same words and losses that are equal to 1e-5, or if the sweep refuses
with one line and exit code 2. What cannot be made here is said. It needs root.
"""

import argparse
import contextlib
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from lmzoo.base.streams import echo
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.store.records import list_studies

ROOT = Path(__file__).parents[1]
OPTIONS = "--points 'wild type,cut 4,cut 6' --samples 2 --seeds 2 --epochs 4"
CLOSE = 1e-5
"""Sums may have another order on a machine that makes other packs."""
GROUPS = Path("/sys/fs/cgroup")
MEMORY = 2 << 30
SHM = 64 << 20
BYTES_A_SECOND = 1 << 20
DISK = 400 << 20
CLOCK = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
HOUR = 3600
SLEEP = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left) {
    return syscall(SYS_clock_nanosleep, id, flags, t, left) ? errno : 0;
}
"""
"""libfaketime 0.9.10 refuses Python's sleep where it leaves the monotonic clock alone."""
SECONDS = 900
THREE_CORES = """
import os
os.cpu_count = lambda: 3
os.sched_getaffinity = lambda _: {0, 1, 2}
"""
"""A `sitecustomize.py` for a machine that has fewer cores."""


class CannotError(Exception):
    """This machine cannot be made into another one; the text says why."""


class Made(NamedTuple):
    """How a command runs on a machine."""

    store: Path
    prefix: tuple[str, ...] = ()
    """Words before the command."""
    variables: Mapping[str, str | None] = {}
    """Environment variables; None: not set."""
    missing: Callable[[], str] = str
    """Returns what has not happened to the machine while it ran; "" if all has."""


def undisturbed(folder: Path) -> Iterator[Made]:
    """Yield this machine as it is."""
    yield Made(folder)


def one_core(folder: Path) -> Iterator[Made]:
    """Yield a machine with one core."""
    yield Made(folder, ("taskset", "--cpu-list", "0"))


def three_cores(folder: Path) -> Iterator[Made]:
    """Yield a machine with three cores, which are pretended if there are fewer."""
    if (os.cpu_count() or 1) >= 3:
        yield Made(folder, ("taskset", "--cpu-list", "0-2"))
        return
    (folder / "sitecustomize.py").write_text(THREE_CORES)
    paths = filter(None, (str(folder), os.environ.get("PYTHONPATH")))
    yield Made(folder, variables={"PYTHONPATH": os.pathsep.join(paths)})


def threads_unset(folder: Path) -> Iterator[Made]:
    """Yield a machine on which no variable limits the threads of a product."""
    yield Made(folder, variables={"OMP_NUM_THREADS": None, "MKL_NUM_THREADS": None})


def two_gigabytes(folder: Path) -> Iterator[Made]:
    """Yield a container with 2 GB of memory; it sees its own limit, as one of Docker does."""
    is_old = (GROUPS / "memory").is_dir()
    controller = GROUPS
    limit = "memory.max"
    if is_old:
        controller = GROUPS / "memory"
        limit = "memory.limit_in_bytes"
    group = controller / f"lmzoo-drill-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(MEMORY))
    except OSError as error:
        raise CannotError(f"no group with a limit of memory: {error}") from None
    seen = "true"
    if is_old:
        seen = f"mount --bind {group} {controller}"
    try:
        yield Made(folder, _first(f"echo $$ > {group}/cgroup.procs && {seen}"))
    finally:
        _retried(group.rmdir)


def small_shm(folder: Path) -> Iterator[Made]:
    """Yield a container with 64 MB in /dev/shm, as Docker makes it by default."""
    yield Made(folder, _first(f"mount -t tmpfs -o size={SHM} tmpfs /dev/shm"))


def slow_disk(folder: Path) -> Iterator[Made]:
    """Yield a machine whose store is on a disk that writes 1 MB a second."""
    image = folder / "disk.img"
    mounted = folder / "disk"
    limits = GROUPS / "blkio/blkio.throttle.write_bps_device"
    if not limits.exists():
        raise CannotError("no limiter of all writes to a device (blkio of cgroup 1)")
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK)
    _run("mkfs.ext4", "-q", str(image))
    _run("mount", "-o", "loop", str(image), str(mounted))
    device = mounted.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    limits.write_text(f"{number} {BYTES_A_SECOND}")
    try:
        yield Made(mounted)
    finally:
        limits.write_text(f"{number} 0")
        _run("umount", "--lazy", str(mounted))


def clock_forward(folder: Path) -> Iterator[Made]:
    """Yield a machine whose clock jumps an hour ahead after the first record."""
    yield from _jumping(folder, HOUR)


def clock_back(folder: Path) -> Iterator[Made]:
    """Yield a machine whose clock jumps an hour back after the first record."""
    yield from _jumping(folder, -HOUR)


def _jumping(folder: Path, seconds: int) -> Iterator[Made]:
    if not CLOCK.exists():
        raise CannotError("no libfaketime")
    shift = folder / "shift"
    shift.write_text("+0s")
    sleep = folder / "sleep.so"
    (folder / "sleep.c").write_text(SLEEP)
    _run("cc", "-shared", "-fPIC", "-o", str(sleep), str(folder / "sleep.c"))
    is_over = threading.Event()

    def jump() -> None:
        while not is_over.wait(0.5):
            if any(folder.glob("*/*/records.ndjson")) or any(folder.glob("*/.pack*")):
                shift.write_text(f"{seconds:+}s")
                return

    watcher = threading.Thread(target=jump)
    watcher.start()
    variables = {
        "LD_PRELOAD": f"{sleep}:{CLOCK}",
        "FAKETIME_TIMESTAMP_FILE": str(shift),
        "FAKETIME_CACHE_DURATION": "1",
        # A machine's own clock of waiting times does not jump.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }

    def missing() -> str:
        if shift.read_text() == "+0s":
            return "the study ended before the clock jumped"
        return ""

    try:
        yield Made(folder, variables=variables, missing=missing)
    finally:
        is_over.set()
        watcher.join()


Maker = Callable[[Path], Iterator[Made]]

MACHINES: dict[str, tuple[Maker, str]] = {
    "undisturbed": (undisturbed, "true"),
    "one core": (one_core, "nproc"),
    "three cores": (three_cores, "{python} -c 'import os; print(os.cpu_count())'"),
    "2 GB of memory": (two_gigabytes, "cat /proc/self/cgroup"),
    "OMP_NUM_THREADS unset": (threads_unset, "echo ${{OMP_NUM_THREADS-unset}}"),
    "/dev/shm of 64 MB": (small_shm, "df --output=size --block-size=1M /dev/shm"),
    "disk of 1 MB/s": (slow_disk, "df --output=source {store}"),
    "clock an hour ahead": (clock_forward, "date"),
    "clock an hour back": (clock_back, "date"),
}
"""Name -> how to make the machine, and a command that shows that it is made."""


def _first(script: str) -> tuple[str, ...]:
    """Return the words that run a script before a command, in a mount namespace of its own."""
    return ("unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh")


def _run(*words: str) -> None:
    if shutil.which(words[0]) is None:
        raise CannotError(f"no {words[0]}")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotError(f"{words[0]} failed: {done.stderr.strip()}")


def _retried(action: Callable[[], Any]) -> None:
    """Call an action until it succeeds: processes of a sweep may end a second later."""
    for _ in range(20):
        try:
            action()
        except OSError:
            time.sleep(0.5)
        else:
            return


def on_machine(made: Made, command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command on a machine."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **made.variables}
    known = {name: value for name, value in variables.items() if value is not None}
    words = [*made.prefix, "sh", "-c", command]
    return subprocess.run(
        words, env=known, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS
    )


def sweep(made: Made) -> str | pl.DataFrame:
    """Train the study; return its table, or the line that refuses it."""
    script = ROOT / "sweeps/gru_ablation.py"
    done = on_machine(made, f"{sys.executable} {script} {OPTIONS} --out {made.store}")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        last = "nothing is printed"
        if lines:
            last = lines[-1]
        if done.returncode == 2 and len(lines) == 1:
            return f"refused: {last}"
        return f"exit code {done.returncode}: {last}"
    return study_ranking(list_studies(made.store)[0]).frame.drop("seconds")


def difference(found: pl.DataFrame, right: pl.DataFrame) -> str:
    """Return the first value that differs; "" if the tables are equal."""
    if found.height != right.height:
        return f"{found.height} points for {right.height}"
    pairs = zip(found.sort("label").to_dicts(), right.sort("label").to_dicts(), strict=True)
    for own, other in pairs:
        for name, value in own.items():
            expected = other[name]
            if isinstance(value, float) and isinstance(expected, float):
                is_equal = math.isclose(value, expected, rel_tol=CLOSE, abs_tol=CLOSE)
                are_unknown = math.isnan(value) and math.isnan(expected)
                is_equal = is_equal or are_unknown
            else:
                is_equal = value == expected
            if not is_equal:
                return f"{name} of {own['label']}: {value} for {expected}"
    return ""


def judged(found: str | pl.DataFrame, right: str | pl.DataFrame) -> str:
    """Return what is said of a machine's table."""
    if isinstance(found, str):
        return found
    if isinstance(right, str):
        return "no undisturbed table"
    other = difference(found, right)
    if other:
        return f"ANOTHER TABLE: {other}"
    return "the table of the undisturbed machine"


def main(words: list[str]) -> int:
    """Try the machines; return 1 if one was not held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="parts of names of machines; none: all")
    parser.add_argument("--smoke", action="store_true", help="make the machines, train nothing")
    given = parser.parse_args(words)
    if os.geteuid():
        echo("no machine can be made: this drill needs root")
        return 0
    right: str | pl.DataFrame = ""
    failed = False
    for name, (make, probe) in MACHINES.items():
        is_asked = not given.names or any(word in name for word in given.names)
        if not is_asked and name != "undisturbed":
            continue
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="lmzoo-machine-"))
        machine: AbstractContextManager[Made] = contextlib.contextmanager(make)(folder)
        try:
            with machine as made:
                if given.smoke:
                    store = shlex.quote(str(made.store))
                    command = probe.format(python=sys.executable, store=store)
                    done = on_machine(made, command)
                    text = done.stdout.replace("\n", " ") + done.stderr
                    is_held = done.returncode == 0
                else:
                    found = sweep(made)
                    if name == "undisturbed":
                        right = found
                    text = judged(found, right)
                    # A sweep that failed may not have lived until the machine changed.
                    if not isinstance(found, str):
                        text = made.missing() or text
                    is_held = text.startswith(("the table", "refused"))
        except CannotError as error:
            text = f"not made here: {error}"
            is_held = True
        except subprocess.TimeoutExpired:
            text = f"not ended after {SECONDS} s"
            is_held = False
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        failed = failed or not is_held
        echo(f"{name} | {text} | {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
