"""The runs that can start, by pack key and in order of priority."""

import heapq
from collections.abc import Callable, Collection

from lmzoo.study.planned_run import PlannedRun


class ReadyRuns:
    """Ready runs; each operation takes time that does not grow with their number."""

    def __init__(self, pack_key: Callable[[PlannedRun], str]) -> None:
        self._pack_key = pack_key
        self._heaps: dict[str, list[tuple[tuple[int, int], int, PlannedRun]]] = {}
        self._count = 0
        self._added = 0

    def __len__(self) -> int:
        return self._count

    def add(self, run: PlannedRun) -> None:
        """Add a run."""
        self._added += 1  # orders runs of equal priority, which cannot be compared themselves
        heap = self._heaps.setdefault(self._pack_key(run), [])
        heapq.heappush(heap, (run.priority, self._added, run))
        self._count += 1

    def count(self, key: str) -> int:
        """Return the number of runs of a pack key."""
        return len(self._heaps.get(key, ()))

    def first_key(self, besides: Collection[str] = ()) -> str:
        """Return the pack key of the first run that has none of the keys `besides`; "" if none."""
        keys = self._heaps.keys() - besides
        return min(keys, key=lambda key: self._heaps[key][0][:2], default="")

    def first(self, key: str) -> PlannedRun | None:
        """Return the first run of a pack key; None if there is none."""
        return self._heaps[key][0][2] if key in self._heaps else None

    def take(self, key: str, count: int) -> list[PlannedRun]:
        """Remove and return the first `count` runs of a pack key, or fewer."""
        heap = self._heaps.get(key, [])
        runs = [heapq.heappop(heap)[2] for _ in range(min(count, len(heap)))]
        if key in self._heaps and not heap:
            del self._heaps[key]
        self._count -= len(runs)
        return runs
