"""A simulated cluster: the planner and the fleet of the engine, with a clock instead of training.

An epoch of a pack of n runs takes c(n). With `gpu`, c(n) = 1: a GPU with 24 GB has room for the
whole pack. With `affine`, c(n) = 0.97 + 0.03 n: 32 runs take twice as long as one. With `full`,
c(n) = n: one run fills the device, so that a pack gains nothing. Losses are a hash of the run.
"""

import dataclasses
import hashlib
import heapq
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lmzoo.data.corpus import open_corpus
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study import Study
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Ended, Exchange
from lmzoo.trainables.resolve import BASELINES, corpus_config, resolve

CLOSED_FORM = {point.label for point in BASELINES}
"""Labels of models that are fitted in one epoch."""
GPU_MEMORY = 24 * 2**30
REPLACEMENT = 3.0
"""Time in epochs until a lost worker is replaced."""
RESTART, BAD = 0.2, 0.1
"""Time in epochs until a worker starts on the node of a dead one, and until a bad one fails."""
SECONDS = 60.0
"""Of an epoch of one run on a worker of usual speed."""
LOOK = 0.1
"""Time in epochs between two looks at workers that are wanted or idle."""


@dataclass(frozen=True)
class Device:
    """The device of every worker."""

    name: str
    memory: int
    cost: Callable[[int], float]
    """Time of an epoch of a pack of n runs."""


DEVICES = (
    Device("gpu", GPU_MEMORY, lambda n: 1.0),
    Device("affine", GPU_MEMORY, lambda n: 0.97 + 0.03 * n),
    Device("full", 0, float),
)


@dataclass(frozen=True)
class Scenario:
    """Workers that come and go."""

    name: str
    arrivals: tuple[float, ...]
    """Time at which each worker is there."""
    lost: int = 0
    """One in this many workers is lost every 20 epochs; 0: none is lost."""
    samples: int = 4
    slow: int = 0
    """The first so many workers have a quarter of the speed."""
    life: float = 0.0
    """Mean life of a worker in epochs; 0: it is never lost. A new one comes after `REPLACEMENT`."""
    bad: str = ""
    """What happens on the first worker 0.1 epochs after it gets runs: it `dies`, or `raises`."""
    offered: int = 0
    """Workers that start when the fleet wants them, and leave after an epoch without work."""
    announced: int = 0
    """Workers that the cluster says it has room for; 0: those that are there."""


class MemoryStore:
    """A study store without files."""

    known_runs: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.changed: dict[str, Any] = {}
        self._settings: dict[str, dict[int, dict[str, Any]]] = {}

    def settings(self, point_id: str) -> dict[int, dict[str, Any]]:
        """Return the settings of a point."""
        return dict(self._settings.get(point_id, {}))

    def add_settings(self, point_id: str, settings: dict[int, dict[str, Any]]) -> None:
        """Store settings of a point."""
        self._settings.setdefault(point_id, {}).update(settings)

    def study(self) -> dict[str, Any]:
        """Return that there is no `study.json` yet."""
        return {}

    def write_study(self, *ignored: Any) -> None:
        """Do nothing."""

    prune = end_run = write_study


@dataclass
class Simulation:
    """The clock and the workers of one sweep."""

    fleet: Fleet
    device: "Device"
    now: float = 0.0
    busy: float = 0.0
    present: float = 0.0
    run_epochs: int = 0
    cpu: float = 0.0
    events: list[tuple[float, int, str, str]] = field(default_factory=list)
    live: set[str] = field(default_factory=set)
    members: dict[str, list[str]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    idle_since: dict[str, float] = field(default_factory=dict)
    scenario: Scenario = Scenario("", ())
    draws: random.Random = field(default_factory=lambda: random.Random(0))
    started: int = 0
    largest: int = 1
    tick: int = 0

    def schedule(self, at: float, kind: str, worker: str) -> None:
        """Add an event."""
        self.tick += 1
        heapq.heappush(self.events, (at, self.tick, kind, worker))

    def run(self, scenario: Scenario) -> None:
        """Run the sweep to its end."""
        self.scenario = scenario
        for i, at in enumerate(scenario.arrivals):
            self.schedule(at, "arrive", f"w{i}")
            self.schedule(at, "ask", f"w{i}")
        self.events.sort(key=lambda event: (event[0], event[2]))  # nodes are there before workers
        self.events = [(at, i, kind, w) for i, (at, _, kind, w) in enumerate(self.events)]
        if scenario.lost:
            self.schedule(20.0, "lose", str(scenario.lost))
        self.schedule(0.0, "look", "")
        while not self.fleet.done:
            at, _, kind, worker = heapq.heappop(self.events)
            self.present += len(self.live) * (at - self.now)
            self.busy += sum(w in self.members for w in self.live) * (at - self.now)
            self.now = at
            getattr(self, f"on_{kind}")(worker)
            for idle in sorted(w for w in self.fleet.idle if w in self.live and self.fleet.ready):
                self.exchange(idle, [])

    def on_arrive(self, worker: str) -> None:
        """Add the room for a worker."""
        self.live.add(worker)
        if self.scenario.life:
            life = self.draws.expovariate(1 / self.scenario.life)
            self.schedule(self.now + life, "interrupt", worker)

    def on_dies(self, worker: str) -> None:
        """Let a bad worker die; another one starts on its node."""
        del self.members[worker]
        self.live.discard(worker)
        runs = self.fleet.gone(worker)
        self.fleet.give_back(runs, interrupted=False, node=worker.strip("'"))
        self.schedule(self.now + RESTART, "arrive", f"{worker}'")
        self.schedule(self.now + RESTART, "ask", f"{worker}'")

    def on_raises(self, worker: str) -> None:
        """Let the training of all runs of a bad worker raise."""
        for run_id in self.members.pop(worker):
            self.fleet.ended(worker, Ended(run_id, "failed", "RuntimeError: no library"))
        self.exchange(worker, [])

    def on_look(self, _worker: str) -> None:
        """Start workers that are wanted, and end idle ones."""
        start, offered = time.process_time(), self.scenario.offered
        wanted = self.fleet.wanted(offered) if offered else 0
        self.cpu += time.process_time() - start
        idle = self.fleet.idle
        self.idle_since = {w: self.idle_since.get(w, self.now) for w in idle}
        for idler in [w for w, since in self.idle_since.items() if self.now >= since + 1]:
            if offered:
                self.live.discard(idler)
                self.fleet.gone(idler)
        for _ in range(len(self.live), wanted):
            name, self.started = f"w{self.started}", self.started + 1
            self.on_arrive(name)
            self.on_ask(name)
        self.schedule(self.now + LOOK, "look", "")

    def room(self) -> int:
        """Return the number of workers that there is room for."""
        return max(self.scenario.offered or len(self.live), self.scenario.announced)

    def on_interrupt(self, worker: str) -> None:
        """Interrupt a worker, and schedule its replacement."""
        if worker in self.live:
            self.live.discard(worker)
            self.members.pop(worker, None)
            self.fleet.give_back(self.fleet.gone(worker), interrupted=True)
            self.schedule(self.now + REPLACEMENT, "arrive", f"{worker}'")
            self.schedule(self.now + REPLACEMENT, "ask", f"{worker}'")

    def on_ask(self, worker: str) -> None:
        """Let a worker ask for its first assignment."""
        self.exchange(worker, [])

    def on_lose(self, share: str) -> None:
        """Interrupt one worker in `share`, and schedule its replacement."""
        for worker in sorted(self.live)[:: int(share)]:
            self.on_interrupt(worker)
        self.schedule(self.now + 20.0, "lose", share)

    def on_epoch(self, worker: str) -> None:
        """End an epoch of a worker's pack."""
        if worker not in self.live or worker not in self.members:
            return
        reports = []
        for run_id in self.members.pop(worker):
            run = self.fleet.workers[worker].training[run_id]
            step = run.budget if run.label in CLOSED_FORM else 1
            epoch = self.epochs[run_id] = self.epochs.get(run_id, 0) + step
            self.run_epochs += 1
            level = int(hashlib.md5(run_id.encode()).hexdigest(), 16) % 1000 / 1000
            reports.append((run_id, {"epoch": epoch, "valid_token": 2 + level + 1 / epoch}))
        self.exchange(worker, reports)

    def exchange(self, worker: str, reports: list[tuple[str, dict[str, Any]]]) -> None:
        """Report, and start the next epoch of the assigned pack."""
        start = time.process_time()
        state = self.fleet.workers.get(worker)
        opened = [*state.training, *state.leaving] if state else []
        memory = self.device.memory
        facts = {"live": self.room(), "now": self.now * SECONDS, "node": worker.strip("'")}
        message = Exchange(worker, opened, reports, memory)
        reply = self.fleet.exchange(message, **facts)
        budget = self.fleet.planner.study.epochs
        for run_id, record in reports:
            if record["epoch"] >= budget:
                self.fleet.ended(worker, Ended(run_id, "finished"))
        if reply is not None:
            for run_id in reply.prune:
                self.fleet.ended(worker, Ended(run_id, "pruned"))
            for run_id in reply.release:
                self.fleet.released(worker, run_id)
        if reply is None or not reply.members:
            # What has just ended may have made other runs ready.
            reply = self.fleet.exchange(Exchange(worker, memory=memory), **facts)
        self.cpu += time.process_time() - start
        if reply is not None:
            self.members[worker] = reply.members
            self.largest = max(self.largest, len(reply.members))
            slowness = 4.0 if int(worker.strip("w'")) < self.scenario.slow else 1.0
            seconds = slowness * self.device.cost(len(reply.members))
            bad = self.scenario.bad if worker.strip("'") == "w0" else ""
            self.schedule(self.now + (BAD if bad else seconds), bad or "epoch", worker)


def simulate(study: Study, scenario: Scenario, device: Device) -> Simulation:
    """Return the simulation of a scenario at its end."""
    study = dataclasses.replace(study, samples=scenario.samples)
    fields = corpus_config(study, study.fields)
    corpus = open_corpus(fields, None)
    planner = Planner(study, resolve(study, corpus, fields), MemoryStore())  # type: ignore[arg-type]
    fleet = Fleet(planner, Packer(corpus, None), memory=device.memory)
    simulation = Simulation(fleet, device)
    simulation.run(scenario)
    return simulation
