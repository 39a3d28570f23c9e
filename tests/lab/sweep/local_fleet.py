"""Runs a sweep with a fleet and packs in this process: no Ray, any order of workers, deaths."""

import itertools
import random
from contextlib import ExitStack
from pathlib import Path

from lmzoo.kernels.device import CPU
from lmzoo.lab.store.pack_files import unpack
from lmzoo.lab.store.records import WORKER_LOCK
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Exchange, Released
from lmzoo.lab.sweep.worker.pack import Pack
from lmzoo.trainables.resolve import resolve
from lmzoo.trainables.trainer import Trainer


class LocalWorker:
    """A worker whose messages reach the fleet at once."""

    def __init__(self, name: str, fleet: Fleet, path: Path, corpus, memory=0, live=2) -> None:
        self.name = name
        self.fleet = fleet
        self.memory = memory
        self.live = live
        store = fleet.planner.store.store
        self.lock = type(store)(path).lock(WORKER_LOCK.format(name))
        self.confirmed: list = []
        self.pack = Pack(store, Trainer(corpus, CPU), self.confirmed.append, name)
        self.reports: list = []

    def exchange(self, now: float):
        """Return the next assignment, after all that the worker has to report."""
        opened = self.pack.opened
        while self.confirmed:
            run = self.confirmed.pop(0)
            if isinstance(run, Released):
                self.fleet.released(self.name, run.run)
            else:
                self.fleet.ended(self.name, run)
        message = Exchange(self.name, opened, self.reports, self.memory)
        return self.fleet.exchange(message, live=self.live, now=now)

    def train(self, assignment) -> None:
        """Train one epoch of an assignment."""
        self.reports = self.pack.apply(assignment)
        self.reports += self.pack.train_epoch(assignment.members, packed=assignment.packed)
        self.pack.writer.wait()


class Events:
    """Counts what the fleet tells its listeners."""

    def __init__(self) -> None:
        self.started = []
        self.epochs = []
        self.ended = []

    def start(self, run) -> None:
        self.started.append(run.id)

    def epoch(self, run, record) -> None:
        self.epochs.append((run.id, record["epoch"]))

    def end(self, run, test) -> None:
        self.ended.append((run.id, run.status, test))


def fleet_sweep(
    study, corpus, fields, path: Path, *, size=None, workers=2, seed=0, deaths=(), lost=()
) -> tuple[Events, list[int]]:
    """Sweep the study; a random worker makes each step. Return events and pack sizes.

    In the steps in `deaths` a worker dies after its epoch is on disk and before it reports, and in
    those in `lost` after it has reported an epoch that never reaches the disk.
    """
    generator = random.Random(seed)
    names = itertools.count()
    store = StudyStore(path)
    events = Events()
    sizes = []
    planner = Planner(study, resolve(study, corpus, fields), store)
    fleet = Fleet(planner, Packer(corpus, size), [events])
    crew: dict[str, LocalWorker] = {}
    with ExitStack() as locks:
        locks.callback(store.close)
        for step in itertools.count():
            while len(crew) < workers:
                name = str(next(names))
                crew[name] = LocalWorker(name, fleet, path, corpus)
                locks.callback(crew[name].lock.close)
            if fleet.done:
                break
            assert step < 10_000, "the sweep does not end"
            worker = crew[generator.choice(sorted(crew))]
            assignment = worker.exchange(float(step))
            if assignment is None:
                continue
            for other in crew.values():
                if other is not worker:
                    # No run is trained by two workers.
                    assert set(other.pack.opened).isdisjoint(assignment.members)
            sizes.append(len(assignment.members))
            if step in lost:
                # Nothing that it writes from now on reaches the disk.
                worker.pack.writer.submit = lambda *_: None
            worker.train(assignment)
            if step in lost:
                worker.exchange(float(step))
            if step in deaths or step in lost:
                del crew[worker.name]
                for opened in worker.pack._open.values():
                    opened.run.stop()  # a program ends with the process of its worker
                worker.lock.close()
                unpack(store.store, worker.name)
                fleet.give_back(fleet.gone(worker.name), interrupted=True)
        for worker in crew.values():
            worker.pack.suspend()
    return events, sizes
