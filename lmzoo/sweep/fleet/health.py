"""Whose fault a failure is: that of a run, or that of the node on which it was trained.

A worker that dies, or training that raises, is a failure of its runs on its node. Until somebody is
known to be at fault, the runs are pending and go to another node.

    a run fails           it failed alone on two nodes, or on one if no other node is in use. An
                          error counts at once. A death counts from the second one on a node, or
                          from the fourth one on the only node: memory may be short for a moment
    a node is left out    it failed twice or more, and `NODE_RUNS` runs or more, without an epoch in
                          between; none of them failed elsewhere, and another node in use has
                          trained an epoch

An epoch clears its run and its node. A run that trains on another node still counts against the
node that failed it.
"""

from collections import Counter
from collections.abc import Collection

NODE_RUNS = 3
"""Runs that a node must fail before it is left out."""
NODE_FAILURES = 2
"""Failures in which it must fail them: one pack may die of one member."""
DEATHS, DEATHS_ON_THE_ONLY_NODE = 2, 4
"""Deaths without progress, alone on a node, that count as an error."""


class Health:
    """The failures since the last progress. Knows neither Ray nor the clock."""

    def __init__(self) -> None:
        self.left_out: dict[str, str] = {}
        """Nodes that get no more work, and why."""
        self._failed_on: dict[str, set[str]] = {}
        """Run -> nodes on which it failed, alone or in a pack."""
        self._alone: dict[str, Counter[str]] = {}
        """Run -> node -> deaths without other runs; an error counts as many."""
        self._blamed: dict[str, set[str]] = {}
        """Node -> runs that failed there and nowhere else."""
        self._failures: Counter[str] = Counter()
        """Node -> failures since its last epoch."""
        self._trained: set[str] = set()
        """Nodes that have trained an epoch."""

    def trained(self, run: str, node: str) -> None:
        """Record an epoch of a run."""
        self._trained.add(node)
        self._failures.pop(node, None)
        self._blamed.pop(node, None)
        self.forget(run)

    def forget(self, run: str) -> None:
        """Forget the failures of a run that has trained or ended."""
        self._alone.pop(run, None)
        self._failed_on.pop(run, None)

    def failed(
        self, runs: Collection[str], node: str, in_use: Collection[str], reason: str = ""
    ) -> None:
        """Record a failure of these runs, which were trained together; `reason` is an error.

        `in_use` are the nodes that have workers.
        """
        self._failures[node] += 1
        blamed = self._blamed.setdefault(node, set())
        for run in runs:
            nodes = self._failed_on.setdefault(run, set())
            nodes.add(node)
            if len(nodes) > 1:
                for other in nodes:
                    self._blamed.get(other, set()).discard(run)
            else:
                blamed.add(run)
        if len(runs) == 1:
            (run,) = runs
            weight = DEATHS_ON_THE_ONLY_NODE if reason else 1
            self._alone.setdefault(run, Counter())[node] += weight
        guilty = self._failures[node] >= NODE_FAILURES and len(blamed) >= NODE_RUNS
        if guilty and self._trained & {*self.usable(in_use)} - {node}:
            count = f"{len(blamed)} runs failed there and none trained an epoch"
            self.left_out[node] = f"{count}: {reason}" if reason else count

    def leave_out(self, node: str, reason: str) -> None:
        """Give a node no more work: its worker could not start."""
        self.left_out.setdefault(node, reason)

    def usable(self, in_use: Collection[str]) -> list[str]:
        """Return the nodes that may get work."""
        return [node for node in in_use if node not in self.left_out]

    def failed_on(self, run: str) -> Collection[str]:
        """Return the nodes on which a run failed since its last epoch."""
        return self._failed_on.get(run, ())

    def decides(self, run: str, in_use: Collection[str]) -> bool:
        """Return whether the failures of a run are its own fault."""
        failures = self._alone.get(run, Counter())
        if {*self.usable(in_use)} - failures.keys():
            return sum(count >= DEATHS for count in failures.values()) > 1
        most = max(failures.values(), default=0)
        nodes = sum(count >= DEATHS for count in failures.values())
        return most >= DEATHS_ON_THE_ONLY_NODE or nodes > 1
