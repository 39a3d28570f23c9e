"""Injects faults into one sweep on one machine, in random order.

    trial      SIGKILL of a process that trains
    raylet     SIGKILL of the Ray process that manages the node
    driver     SIGKILL of the sweep script and of all processes below it
    readonly   the store is read-only for a few seconds
    full       the disk of the store is full for a few seconds
    truncate   the script is killed, and a checkpoint is cut at a random byte

The store is on a small tmpfs, so that it can be filled. A script that died is started again with
the same command, as its user would do.
"""

import contextlib
import logging
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from drills.cluster import ENGINE
from lmzoo.lab.store.archive import archived_runs
from lmzoo.lab.store.pack_files import PREFIX, ROWS
from lmzoo.lab.store.records import (
    CHECKPOINT,
    RECORDS,
    RunFolder,
    find_end,
    parse_json,
    parse_records,
)
from tests.lab.store.small_disk import fill_disk
from tests.lab.sweep.processes import descendants, kill_worker, start

LOG = logging.getLogger("lmzoo.drills")
KINDS = ("trial", "raylet", "driver", "readonly", "full", "truncate")
OUTAGE_SECONDS = (2.0, 6.0)
"""Shortest and longest time for which the store cannot be written."""
STUCK_SECONDS = 900.0
"""Time without a new epoch after which a running script counts as stuck."""


class FaultySweep:
    """A sweep whose store is the folder `name` on `disk`, with faults drawn by `seed`."""

    def __init__(self, script: Path, disk: Path, name: str, seed: int) -> None:
        self.script, self.disk, self.store = script, disk, disk / name
        self.random = random.Random(seed)
        self.known_epochs: set[tuple[str, int]] = set()
        self.injected: list[str] = []
        """Kinds of the faults so far."""
        self.starts = self.stuck = 0
        self.driver: subprocess.Popen[str] | None = None

    def inject(self, faults: int) -> None:
        """Inject `faults` faults, the same number of each kind, one epoch or more apart."""
        plan = [KINDS[i % len(KINDS)] for i in range(faults)]
        self.random.shuffle(plan)
        for kind in plan:
            self._await_epochs(self.random.randint(1, 3))
            getattr(self, f"_{kind}")()
            self.injected.append(kind)
            LOG.info("%s, %d epochs and %d starts", kind, len(self.known_epochs), self.starts)

    def finish(self) -> None:
        """Run the script until it succeeds and no run has failed."""
        while self._is_running() or self._start():
            code = self._await_end()
            self._check_log()
            if code == 0 and "failed" not in self.statuses().values():
                return

    def close(self) -> None:
        """Kill all processes of the sweep."""
        if self._is_running():
            self._driver()

    def statuses(self) -> dict[str, str]:
        """Return the last end status of each run, "" if it has not ended."""
        statuses = {}
        for run, text in texts(self.store).items():
            ends = [r for r in parse_records(text) if r["event"] == "end"]
            statuses[run] = ends[-1]["status"] if ends else ""
        return statuses

    def epochs(self) -> set[tuple[str, int]]:
        """Return (run, epoch) of all epoch records; assert that none has disappeared."""
        epochs = {
            (run, line["epoch"]) for run, line in lines(self.store) if line["event"] == "epoch"
        }
        assert self.known_epochs <= epochs, f"lost: {self.known_epochs - epochs}"
        self.known_epochs = epochs
        return epochs

    def _is_running(self) -> bool:
        return self.driver is not None and self.driver.poll() is None

    def _start(self) -> bool:
        self.starts += 1
        log = (self.disk.parent / f"driver-{self.starts}.log").open("w")
        with log:
            self.driver = start(
                self.script, *ENGINE, "--out", str(self.disk), "--json", "--fuse", "off", out=log
            )
        return True

    def _check_log(self) -> None:
        log = (self.disk.parent / f"driver-{self.starts}.log").read_text()
        assert "Traceback" not in log or "ray" in log, log[-3000:]

    def _await_epochs(self, new: int) -> None:
        """Wait for new epochs; start the script if it died, kill it if it is stuck."""
        last, last_progress = len(self.epochs()), time.monotonic()
        goal = last + new
        while (count := len(self.epochs())) < goal:
            if not self._is_running():
                assert self.driver is None or self.driver.returncode != 0, "the sweep is too short"
                self._start()
                last_progress = time.monotonic()
            if time.monotonic() - last_progress > STUCK_SECONDS:
                self.stuck += 1
                self._driver()
            time.sleep(0.1)
            last_progress = last_progress if count == last else time.monotonic()
            last = count

    def _await_end(self) -> int:
        """Return the exit code of the script; it may take its time while there are new epochs."""
        assert self.driver is not None
        last, last_progress = len(self.epochs()), time.monotonic()
        while (code := self.driver.poll()) is None:
            if (count := len(self.epochs())) > last:
                last, last_progress = count, time.monotonic()
            assert time.monotonic() < last_progress + STUCK_SECONDS, "no epoch ends"
            time.sleep(1.0)
        return code

    def _trial(self) -> None:
        assert self.driver is not None
        deadline = time.monotonic() + 60
        while not kill_worker(self.driver.pid) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _raylet(self) -> None:
        assert self.driver is not None
        for pid, command in descendants(self.driver.pid).items():
            if "raylet/raylet" in command.split("\0")[0]:
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
            time.sleep(self.random.uniform(*OUTAGE_SECONDS))

    def _full(self) -> None:
        filler = self.disk / "filler"
        fill_disk(filler)
        time.sleep(self.random.uniform(*OUTAGE_SECONDS))
        filler.unlink()

    def _truncate(self) -> None:
        self._driver()
        unfinished = [
            path
            for path in sorted(self.store.glob(f"*/{CHECKPOINT}"))
            if find_end(RunFolder(path.parent).records(), 10**9) is None
        ]
        packs = sorted(self.store.glob(f"{PREFIX}*/{ROWS[0]}"))
        path = self.random.choice([*unfinished, *packs])
        os.truncate(path, self.random.randrange(path.stat().st_size))


def lines(store: Path) -> Iterator[tuple[str, dict]]:
    """Yield (run, record) of every complete line on disk, repeated records included."""
    for run, text in sorted(texts(store).items()):
        for line in text.splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield run, parse_json(line)


def texts(store: Path) -> dict[str, bytes]:
    """Return the file of records of each run, from its folder or from the archive."""
    found = dict[str, bytes]()
    for path in store.glob(f"*/{RECORDS}"):
        with contextlib.suppress(FileNotFoundError):  # a sweep archives it
            found[path.parent.name] = path.read_bytes()
    return {run: text for run, _, text in archived_runs(store)} | found


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Mount a read-only view of the folder over it."""
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
