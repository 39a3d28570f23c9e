"""Whose fault a failure is: that of a run, or that of the node on which it was trained.

A worker that dies, or training that raises, is a failure of its runs on its node. Until somebody is
known to be at fault, the runs are pending and go to other nodes, where they join packs as before.

    a suspect             a run that failed and has not trained an epoch since. If a pack with
                          suspects fails on another node, they alone are charged, not the node
    a run is apart        it failed on enough nodes: two of which one has trained since, three, or
                          all in use. The members of a pack that are apart are tried in halves
    a run fails           it failed alone on enough nodes, or on one if no other node is in use. An
                          error counts at once. A death counts from the second one on a node, or
                          from the fourth one on the only node: memory may be short for a moment
    a node is left out    it failed twice or more, and `NODE_RUNS` runs or more, without an epoch in
                          between; none of them failed elsewhere, and another node in use has
                          trained since it failed last. Its failures do not count any more

An epoch clears its run and its node. A run that trains on another node still counts against the
node that failed it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Set

NODE_RUNS = 3
"""Runs that a node must fail before it is left out."""
NODE_FAILURES = 2
"""Failures in which it must fail them: one pack may die of one member."""
DEATHS = 2
DEATHS_ON_THE_ONLY_NODE = 4
"""Deaths without progress, alone on a node, that count as an error."""


class Health:
    """The failures since the last progress. Knows neither Ray nor the clock."""

    def __init__(self):
        self.left_out = dict[str, str]()
        """Nodes that get no more work, and why."""
        self._failed_on = defaultdict[str, set[str]](set)
        """Run -> nodes on which it failed, alone or in a pack."""
        self._alone = defaultdict[str, Counter[str]](Counter)
        """Run -> node -> deaths without other runs; an error counts as many."""
        self._blamed = defaultdict[str, set[str]](set)
        """Node -> runs that failed there and nowhere else."""
        self._failures = Counter[str]()
        """Node -> failures since its last epoch."""
        self._trained = set[str]()
        """Nodes that have trained an epoch since their last failure."""

    def trained(self, run: str, node: str):
        """Record an epoch of a run."""
        self._trained.add(node)
        self._failures.pop(node, None)
        self._blamed.pop(node, None)
        self.forget(run)

    def forget(self, run: str):
        """Forget the failures of a run that has trained or ended."""
        self._alone.pop(run, None)
        self._failed_on.pop(run, None)

    def failed(self, runs: Collection[str], node: str, in_use: Collection[str], reason: str = ""):
        """Record a failure of runs that were trained together on a node; `reason` is an error."""
        # Only an epoch after this failure shows that the node works.
        self._trained.discard(node)
        suspects = [run for run in runs if self.failed_on(run) - {node}]
        # Suspects that fail on another node, too, are charged alone.
        for run in suspects or runs:
            self._failed_on[run].add(node)
            for blamed in self._blamed.values():
                blamed.discard(run)
        if not suspects:
            self._failures[node] += 1
            self._blamed[node].update(runs)
        if len(runs) == 1:
            (run,) = runs
            weight = 1
            if reason:
                weight = DEATHS_ON_THE_ONLY_NODE  # an error is as good as several deaths
            self._alone[run][node] += weight
        count = len(self._blamed[node])
        if self._failures[node] < NODE_FAILURES or count < NODE_RUNS:
            return
        # A node is at fault only if others can train; else the runs may be.
        others = self.usable(in_use) - {node}
        if self._trained & others:
            text = f"{count} runs failed there and none trained an epoch"
            if reason:
                text = f"{text}: {reason}"
            self.left_out[node] = text

    def deaths(self, run: str) -> int:
        """Return how often a run died alone since its last epoch; an error counts as many."""
        return self._alone[run].total()

    def usable(self, in_use: Collection[str]) -> set[str]:
        return set(in_use) - self.left_out.keys()

    def failed_on(self, run: str) -> Set[str]:
        """Return the nodes on which a run failed since its last epoch."""
        return self._failed_on[run]

    def avoided_by(self, run: str, in_use: Collection[str]) -> Set[str]:
        """Return the nodes that leave a run to the others.

        Where it failed; once that is everywhere, where it failed alone so often that it counts.
        """
        failed_on = self.failed_on(run)
        if failed_on >= self.usable(in_use):
            return self._counting(run)
        return failed_on

    def is_apart(self, run: str, in_use: Collection[str]) -> bool:
        """Return whether a run that failed shares no pack with runs that did not fail with it."""
        failed_on = self.failed_on(run)
        if failed_on >= self.usable(in_use):
            return True
        return self._enough(failed_on, in_use)

    def decides(self, run: str, in_use: Collection[str]) -> bool:
        """Return whether the failures of a run are its own fault."""
        failures = self._alone[run]
        most = max(failures.values(), default=0)
        tried_everywhere = failures.keys() >= self.usable(in_use)
        if tried_everywhere and most >= DEATHS_ON_THE_ONLY_NODE:
            return True
        return self._enough(self._counting(run), in_use)

    def _counting(self, run: str) -> Set[str]:
        """Return the nodes on which a run failed alone so often that it counts."""
        deaths = self._alone[run]
        return {node for node in deaths if deaths[node] >= DEATHS}

    def _enough(self, nodes: Set[str], in_use: Collection[str]) -> bool:
        """Return whether these nodes are so many that their failures are the fault of a run."""
        nodes = nodes - self.left_out.keys()
        if nodes & self._trained or nodes >= self.usable(in_use):
            return len(nodes) >= 2
        # None of these nodes has trained anything: the nodes may be the fault.
        return len(nodes) >= 3
