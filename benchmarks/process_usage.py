"""Time, CPU and memory that a process and its descendants use, from Linux's /proc.

The processes of a sweep are the driver's descendants: Ray's daemons and their workers. A process
that has ended counts with its CPU time at the last reading.
"""

import itertools
import os
import time
from collections import defaultdict
from pathlib import Path

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
PARTS = 10
INTERVAL = 2.0
"""Least seconds between two readings of processes that may end."""
Marks = list[dict[str, float]]
"""Readings of a `Clock`: done, seconds, driver, all, megabytes."""


class ProcessTree:
    """The CPU time of a process and all its descendants, ended ones included."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._used: dict[int, float] = {}

    def seconds(self) -> float:
        """Read and return the CPU seconds used so far."""
        children, used = defaultdict(list), {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # the process has just ended
                continue
            pid = int(path.parent.name)
            children[int(fields[1])].append(pid)
            used[pid] = sum(map(int, fields[11:13])) / TICKS
        tree = [self.root]
        for pid in tree:
            tree += children[pid]
        self._used.update((pid, used[pid]) for pid in tree if pid in used)
        return sum(self._used.values())


class Clock:
    """Reads time, CPU and this process's memory after each tenth of the work."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.marks: Marks = []
        self._tree, self._last_reading = ProcessTree(os.getpid()), time.monotonic()

    def tick(self) -> None:
        """Count one finished piece of work."""
        self.done += 1
        if time.monotonic() - self._last_reading > INTERVAL:
            self._tree.seconds()
            self._last_reading = time.monotonic()
        if self.done * PARTS >= (len(self.marks) + 1) * self.total:
            self.marks.append(
                {
                    "done": self.done,
                    "seconds": time.monotonic(),
                    "driver": time.process_time(),
                    "all": self._tree.seconds(),
                    "megabytes": private_megabytes(),
                }
            )


def usage_per_item(marks: Marks, key: str) -> list[float]:
    """Return the usage per piece of work, in each tenth after the first."""
    pairs = itertools.pairwise(marks)
    return [(b[key] - a[key]) / (b["done"] - a["done"]) for a, b in pairs]


def private_megabytes() -> float:
    """Return the memory of this process that it shares with no other process."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * PAGE / 1e6
