"""What a process and all that it started have used: seconds, CPU, memory, from Linux's /proc.

A sweep's processes are the driver's descendants: Ray's daemons, and below them its trials.
Of one that has ended, what it had used when it was last looked at still counts.
"""

import itertools
import os
import time
from collections import defaultdict
from pathlib import Path

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
TENTHS = 10
SELDOM = 2.0
"""Seconds between two looks at processes that may end."""
Marks = list[dict[str, float]]


class Family:
    """A process and all its descendants, those that have ended too."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._used: dict[int, float] = {}

    def seconds(self) -> float:
        """CPU that they have used, as far as was seen."""
        below, used = defaultdict(list), {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            pid = int(path.parent.name)
            below[int(fields[1])].append(pid)
            used[pid] = sum(map(int, fields[11:13])) / TICKS
        family = [self.root]
        for pid in family:
            family += below[pid]
        self._used.update((pid, used[pid]) for pid in family if pid in used)
        return sum(self._used.values())


class Clock:
    """Looks at the clock, the processors and this process's memory after each tenth of the work."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.marks: Marks = []
        self._family, self._looked = Family(os.getpid()), time.monotonic()

    def tick(self) -> None:
        """One more is done."""
        self.done += 1
        if time.monotonic() - self._looked > SELDOM:
            self._family.seconds()
            self._looked = time.monotonic()
        if self.done * TENTHS >= (len(self.marks) + 1) * self.total:
            used = {
                "done": self.done,
                "seconds": time.monotonic(),
                "driver": time.process_time(),
                "all": self._family.seconds(),
                "megabytes": own_megabytes(),
            }
            self.marks.append(used)


def each(marks: Marks, key: str) -> list[float]:
    """What one took, in each tenth after the first."""
    pairs = itertools.pairwise(marks)
    return [(b[key] - a[key]) / (b["done"] - a["done"]) for a, b in pairs]


def own_megabytes() -> float:
    """This process's memory that it shares with no other."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * PAGE / 1e6
