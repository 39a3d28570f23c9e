"""Faults that befall one sweep of one machine, one after another, drawn by a seed.

    trial      SIGKILL of a process that trains
    raylet     SIGKILL of the Ray process that holds the machine's places
    driver     SIGKILL of the script, and of all below it
    readonly   the store cannot be written for a few seconds
    full       the store's disk is full for a few seconds
    truncate   the script is killed, and a checkpoint cut off at a random byte

The store lies on a small tmpfs, so that it can be filled. Whenever the script has died it
is started again, as its user would.
"""

import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from lmzoo.store.records import CHECKPOINT, CONFIG, RECORDS, RunFolder, find_end
from tests.sweep.processes import descendants, kill_a_trial, start

LOG = logging.getLogger("lmzoo.drills")
KINDS = ("trial", "raylet", "driver", "readonly", "full", "truncate")
AWAY = (2.0, 6.0)
"""Seconds that the store is away, at least and at most."""
QUIET = 900.0
"""Seconds without a new epoch after which a script that lives is taken for stuck."""


class Faulty:
    """A sweep whose store is `disk`/NAME, and what was seen of it."""

    def __init__(self, script: Path, disk: Path, name: str, seed: int) -> None:
        self.script, self.disk, self.store = script, disk, disk / name
        self.chance = random.Random(seed)
        self.seen: set[tuple[str, int]] = set()
        self.done: list[str] = []
        """The faults that struck."""
        self.starts = self.stuck = 0
        self.driver: subprocess.Popen[str] | None = None

    def suffer(self, faults: int) -> None:
        """Strike so many times, each kind as often; between two faults an epoch or more is done."""
        plan = [KINDS[i % len(KINDS)] for i in range(faults)]
        self.chance.shuffle(plan)
        for kind in plan:
            self._await_epochs(self.chance.randint(1, 3))
            getattr(self, f"_{kind}")()
            self.done.append(kind)
            LOG.info("%s, after %d epochs and %d starts", kind, len(self.seen), self.starts)

    def finish(self) -> None:
        """Let the sweep end."""
        while self._alive() or self._start():
            assert self.driver is not None
            code = self.driver.wait(600)
            self._read_log()
            if code == 0 and "failed" not in self.statuses().values():
                return

    def close(self) -> None:
        """Leave no process behind."""
        if self._alive():
            self._driver()

    def statuses(self) -> dict[str, str]:
        """Run -> how it ended last."""
        found = {}
        for config in self.store.glob(f"*/{CONFIG}"):
            ends = [r for r in RunFolder(config.parent).records() if r["event"] == "end"]
            found[config.parent.name] = ends[-1]["status"] if ends else ""
        return found

    def epochs(self) -> set[tuple[str, int]]:
        """(run, epoch) of all whole epoch records; none that was ever there may be missing."""
        found = {
            (run, line["epoch"]) for run, line in lines(self.store) if line["event"] == "epoch"
        }
        assert self.seen <= found, f"lost: {self.seen - found}"
        self.seen = found
        return found

    def _alive(self) -> bool:
        return self.driver is not None and self.driver.poll() is None

    def _start(self) -> bool:
        self.starts += 1
        log = (self.disk.parent / f"driver-{self.starts}.log").open("w")
        with log:
            self.driver = start(
                self.script, "--storage", str(self.disk), "--json", "--fuse", "off", out=log
            )
        return True

    def _read_log(self) -> None:
        log = (self.disk.parent / f"driver-{self.starts}.log").read_text()
        assert "Traceback" not in log or "ray" in log, log[-3000:]

    def _await_epochs(self, more: int) -> None:
        last, heard = len(self.epochs()), time.monotonic()
        goal = last + more
        while (count := len(self.epochs())) < goal:
            if not self._alive():
                assert self.driver is None or self.driver.returncode != 0, "too short a sweep"
                self._start()
                heard = time.monotonic()
            if time.monotonic() - heard > QUIET:
                self.stuck += 1
                self._driver()
            time.sleep(0.1)
            last, heard = count, heard if count == last else time.monotonic()

    def _trial(self) -> None:
        assert self.driver is not None
        deadline = time.monotonic() + 60
        while not kill_a_trial(self.driver.pid) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _raylet(self) -> None:
        assert self.driver is not None
        for pid, name in descendants(self.driver.pid).items():
            if "raylet/raylet" in name.split("\0")[0]:
                os.kill(pid, signal.SIGKILL)

    def _driver(self) -> None:
        assert self.driver is not None
        below = descendants(self.driver.pid)
        self.driver.kill()
        self.driver.wait()
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _readonly(self) -> None:
        with read_only(self.disk):
            time.sleep(self.chance.uniform(*AWAY))

    def _full(self) -> None:
        filler = self.disk / "filler"
        fill(filler)
        time.sleep(self.chance.uniform(*AWAY))
        filler.unlink()

    def _truncate(self) -> None:
        self._driver()
        going = [
            path
            for path in sorted(self.store.glob(f"*/{CHECKPOINT}"))
            if find_end(RunFolder(path.parent).records(), 10**9) is None
        ]
        path = self.chance.choice(going)
        os.truncate(path, self.chance.randrange(path.stat().st_size))


def lines(store: Path) -> Iterator[tuple[str, dict]]:
    """(run, record) of every whole line as it lies on the disk, doubles and all."""
    for path in sorted(store.glob(f"*/{RECORDS}")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield path.parent.name, json.loads(line)


@contextlib.contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    """A tmpfs of so many megabytes at `path`.

    Raises:
        PermissionError: this account may not mount one.
    """
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise PermissionError(f"may not mount {path}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(filler: Path) -> None:
    """Write the file until no byte of its disk is left."""
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A view of the folder that cannot be written lies over it."""
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
