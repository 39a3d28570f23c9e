"""The fleet: which worker trains which runs. Knows neither Ray nor the clock.

A worker reports after every epoch and gets its next assignment. Runs leave its pack when they have
ended, are pruned or move to another worker; pending runs of the same shape join it (`sharing.py`).

A run that failed, or whose worker died, is pending again until `health.py` says whose fault it was.
Its node leaves runs of the same shape to the others until it has trained or failed elsewhere.
"""

from collections.abc import Sequence
from typing import Any

from lmzoo.lab.store.records import Record
from lmzoo.lab.study.planned_run import Answer, PlannedRun
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.sweep.fleet.costs import COMPILATION, Pace
from lmzoo.lab.sweep.fleet.health import Health
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.fleet.sharing import ReadyRuns, Sharing, WorkerState
from lmzoo.lab.sweep.listeners import Listeners
from lmzoo.lab.sweep.messages import Assignment, Ended, Exchange, Job, Report

MIN_SECONDS_LEFT = 1.0
"""Runs move to another worker only if their pack still needs this many seconds."""
HUNG = 10.0
HUNG_SECONDS = 60.0
MORE = 3.0
"""Usual epochs, and at least seconds, after which a worker that reports nothing is killed; how much
longer after each death of its run."""


class Fleet:
    """Assigns the ready runs of a planner to workers."""

    def __init__(
        self, planner: Planner, packer: Packer, listeners: Sequence[Any] = (), memory: int = 0
    ):
        """`memory` is assumed of a worker's GPU until the first one reports it; 0 is a CPU."""
        self.planner = planner
        self.packer = packer
        self.listeners = Listeners(listeners)
        self.workers = dict[str, WorkerState]()
        self.idle = set[str]()
        """Workers that wait for an assignment."""
        self.ready = ReadyRuns(packer.pack_key)
        self.pace = Pace()
        """How long the epochs of packs take."""
        self.sharing = Sharing(self.ready, packer, self.pace, memory)
        self.health = Health()
        self._suspects = dict[str, PlannedRun]()
        """Runs that failed, and have neither trained nor ended since."""
        self._collect()

    @property
    def done(self) -> bool:
        """Whether nothing is pending, in training or leaving."""
        return self.planner.done

    def wanted(self, limit: int) -> int:
        """Return how many workers, of at most `limit`, are worth their cost at this moment."""
        return self.sharing.worth(self._working(), limit)

    def exchange(
        self, message: Exchange, *, live: int, now: float, node: str = ""
    ) -> Assignment | None:
        """Take a worker's reports and return its next assignment; None if it has to wait.

        The reports are in the order of the epochs. The cluster has room for `live` workers; `node`
        is the machine of this one, and `now` in seconds from any start.
        """
        name = message.worker
        opened = message.opened
        worker = self.workers.get(name)
        if worker is None:
            # Where Ray does not say the machine, each worker counts as one.
            state = WorkerState(message.memory, node or name, replied_at=now)
            worker = self.workers[name] = state
        self.idle.discard(name)
        if worker.training:
            worker.epoch_seconds = now - worker.replied_at
            self._add_pace(worker, message.reports)
        for run_id, record in message.reports:
            self._report(worker, run_id, record)
        self._collect()  # a report may let other runs start
        for run_id in sorted(worker.leaving.keys() - set(opened)):
            # The worker closed the run while it had no contact; it is opened again and ends then.
            self._return(worker, run_id)
        if worker.node in self.health.left_out:
            self._give_away(worker, len(worker.training))
        else:
            self._avoid(worker)
            self._balance(worker, live - len(self.parked), now)
        worker.replied_at = now
        assignment = self._assignment(worker, opened)
        if not assignment.members and not assignment.prune and not assignment.release:
            self.idle.add(name)
            return None
        return assignment

    def _balance(self, worker: WorkerState, live: int, now: float):
        """Let a worker release runs that others train sooner, and take what it has room for."""
        self.sharing.division(self._working(), live, now)
        # A run that has moved is first reported again: it must train before it moves again.
        least = MIN_SECONDS_LEFT
        if worker.memory:
            least = COMPILATION  # on a GPU, a pack of another size is compiled again
        if worker.settled and worker.epoch_seconds * worker.epochs_left() >= least:
            self._give_away(worker, self.sharing.surplus(worker))
        self._take(worker)

    def _assignment(self, worker: WorkerState, opened: Sequence[str]) -> Assignment:
        """Return what a worker does next; it has opened these runs."""
        runs = worker.training.values()
        is_packed = False
        joining = []
        for run in runs:
            is_packed |= self.packer.is_packed(run, worker.memory)
            if run.id not in opened:
                joining.append(self._job(run))
        pruned = [run for run in worker.pruned if run in worker.leaving]
        released = [run for run in worker.released if run in worker.leaving]
        members = list(worker.training)
        return Assignment(members, is_packed, joining, pruned, released)

    @property
    def parked(self) -> list[str]:
        """Workers on nodes that are left out: they keep Ray from starting others there."""
        nodes = self.health.left_out
        if not nodes:
            return []  # asked at each turn of the coordinator
        return [name for name, worker in self.workers.items() if worker.node in nodes]

    @property
    def nodes(self) -> set[str]:
        return {worker.node for worker in self.workers.values()}

    def ended(self, name: str, end: Ended):
        """Record that a worker has written the end of a run; a failed one may be pending again."""
        worker = self.workers.get(name)
        if worker is None:
            return
        # The last epoch may be known from here only: its report may be lost with the worker.
        for run_id, record in end.reports:
            self._report(worker, run_id, record)
        run = self._remove(worker, end.run)
        if run and end.status == "failed":
            self._failed([run], worker.node, end.reason)
            self._collect()
        elif run:
            self._finish(run, end.status, end.reason, end.test)

    def released(self, name: str, run_id: str):
        """Record that a worker has closed a run without ending it."""
        worker = self.workers.get(name)
        # News may come late or twice; then they change nothing.
        if worker and run_id in worker.released:
            self._return(worker, run_id, saved=True)

    def gone(self, name: str) -> list[PlannedRun]:
        """Forget a worker that has ended; return the runs that it had, for `give_back`."""
        worker = self.workers.pop(name, None)
        self.idle.discard(name)
        if worker is None:
            return []
        self.sharing.released.subtract(worker.released.values())
        runs = []
        for run_id in list(worker.training):
            # Through the sharing, which counts the runs of each shape.
            runs.append(self.sharing.remove(worker, run_id))
        return runs + list(worker.leaving.values())

    def give_back(
        self,
        runs: Sequence[PlannedRun],
        *,
        interrupted: bool,
        reason: str = "",
        node: str = "",
        killed: bool = False,
    ):
        """Make the runs of a worker that is gone, and had them on `node`, pending again.

        `interrupted`: the machine went away, which is not the fault of any run. `killed`: so was
        the worker, for this reason, which may be no run's fault.
        """
        if interrupted:
            for run in runs:
                # Without `_failed`: a machine that goes away counts against nobody.
                self.planner.requeue(run.id)
        elif runs:
            self._failed(runs, node, reason, killed=killed)
        self._collect()

    def _failed(self, runs: Sequence[PlannedRun], node: str, reason: str, *, killed: bool = False):
        """End the run whose fault it was, or make all pending again; try some in halves."""
        in_use = self.nodes | {node}
        error = reason
        if killed:
            error = ""  # the reason of a killed worker says nothing about its runs
        failed = [run.id for run in runs]
        self.health.failed(failed, node, in_use, error)
        first = runs[0]
        if len(runs) == 1 and self.health.decides(first.id, in_use):
            first.nodes = sorted(filter(None, self.health.failed_on(first.id)))
            self._finish(first, "failed", reason or "its workers died without progress")
            return
        memory = self.sharing.memory(self.workers)
        is_single = self.packer.max_members(first, memory) == 1
        apart = [run for run in runs if is_single or self.health.is_apart(run.id, in_use)]
        # By halves the run whose fault it is stays in ever smaller packs, and the others train on.
        half = (len(apart) + 1) // 2
        self.packer.keep_apart(apart[:half])
        self.packer.keep_apart(apart[half:])
        for run in runs:
            if self.health.failed_on(run.id):
                self._suspects[run.id] = run
            self.planner.requeue(run.id)

    def _report(self, worker: WorkerState, run_id: str, record: Record):
        run = worker.training.get(run_id)
        if run is None:
            return
        epoch = record["epoch"]
        # A run whose loss is None has diverged, and trains no further.
        has_diverged = record["valid_token"] is None
        # A report may come twice, because its reply was lost.
        if epoch > run.last_epoch or has_diverged:
            self.health.trained(run_id, worker.node)
            self._suspects.pop(run_id, None)
            self.packer.join(run)
            self.listeners.epoch(run, record)
        answer = self.planner.report(run_id, record)
        trained = epoch >= run.budget or has_diverged
        if trained or answer is not Answer.CONTINUE:
            self._leave(worker, run_id)
        if not trained and answer is Answer.PRUNE:
            worker.pruned.add(run_id)
        elif not trained and answer is Answer.WAIT:
            self._release(worker, run_id)

    def _add_pace(self, worker: WorkerState, reports: Sequence[Report]):
        trained = 0
        for run_id, record in reports:
            run = worker.training.get(run_id)
            if run is not None and record["epoch"] > run.last_epoch:
                trained += 1
        if trained:
            worker.settled = True
            first = worker.key not in worker.trained
            seconds = worker.epoch_seconds
            node = worker.node
            self.pace.add(worker.key, trained, seconds, first=first, worker=node)
            worker.trained.add(worker.key)

    def _working(self) -> dict[str, WorkerState]:
        working = dict(self.workers)
        for name in self.parked:
            del working[name]
        return working

    def hung(self, now: float) -> dict[str, str]:
        """Return the workers whose epoch lasts so long that they must be killed, and why.

        The speed of a worker that has trained nothing yet is not known, so it has more time. What
        is usual may be learnt from other workers after its epoch has begun. A run of which a worker
        was killed has more time at the next attempt: it may be honest, and slower than the others.
        """
        hung = dict[str, str]()
        for name, worker in self._working().items():
            # Its answer began this epoch.
            elapsed = now - worker.replied_at
            key = worker.key
            if not worker.training or not self.pace.known or elapsed <= HUNG_SECONDS:
                continue
            new = key not in worker.trained
            usual, compilation = self.pace.expected(key, len(worker.training), first=new)
            # Nothing is known of its speed; it may be slow and honest.
            times = HUNG * HUNG
            if worker.trained:
                times = HUNG
                # Its own last epoch counts: what is usual may be learnt from faster workers.
                usual = max(usual, worker.epoch_seconds)
            limit = max(times * usual + HUNG * compilation, HUNG_SECONDS)
            deaths = max(map(self.health.deaths, worker.training))
            if elapsed > limit * MORE**deaths:
                runs = ", ".join(worker.training)
                seconds = f"{elapsed:.0f} s; its epochs usually take {usual:.1f} s"
                hung[name] = f"run {runs} on {worker.node} has not reported for {seconds}"
        return hung

    def _give_away(self, worker: WorkerState, count: int):
        kept = len(worker.training) - count
        for run_id in list(worker.training)[kept:]:
            self._leave(worker, run_id)
            self._release(worker, run_id)

    def _release(self, worker: WorkerState, run_id: str):
        worker.released[run_id] = worker.key
        self.sharing.released[worker.key] += 1

    def _avoid(self, worker: WorkerState):
        """Leave runs that failed on the worker's node to the others, while there are others."""
        runs = worker.training.values()
        if runs and not any(map(self.packer.is_apart, runs)):
            key = self.packer.pack_key(next(iter(runs)))
            if key != worker.key:
                self.sharing.rename(worker, key)
        in_use = self.nodes
        worker.avoid = set()
        others = self.health.usable(in_use) - {worker.node}
        if not others:
            return
        for run_id, run in self._suspects.items():
            if worker.node in self.health.avoided_by(run_id, in_use):
                worker.avoid.add(self.packer.pack_key(run))

    def _take(self, worker: WorkerState):
        if not worker.training:
            worker.key = self.sharing.choose(worker)
        if not worker.key:
            return
        room = self.sharing.room(worker)
        for run in self.ready.take(worker.key, room):
            self.sharing.add(worker, run)
            worker.settled = False
            self.planner.start(run)
            self.listeners.start(run)

    def _job(self, run: PlannedRun) -> Job:
        # The last epoch is reported again, because the reply to its report may be lost.
        epoch = max(0, run.last_epoch - 1)
        is_new = run.is_new and not run.last_epoch
        config = self.packer.config(run)
        return Job(config, run.budget, epoch, is_new)

    def _leave(self, worker: WorkerState, run_id: str):
        worker.leaving[run_id] = self.sharing.remove(worker, run_id)

    def _return(self, worker: WorkerState, run_id: str, *, saved: bool = False):
        self._remove(worker, run_id)
        self.planner.requeue(run_id, saved=saved)
        self._collect()

    def _remove(self, worker: WorkerState, run_id: str) -> PlannedRun | None:
        if run_id in worker.training:  # it had ended before the worker opened it
            self._leave(worker, run_id)
        worker.pruned.discard(run_id)
        key = worker.released.pop(run_id, None)
        if key:
            self.sharing.released[key] -= 1
        return worker.leaving.pop(run_id, None)

    def _finish(self, run: PlannedRun, status: str, reason: str = "", test: Record | None = None):
        self._forget(run)
        measured = test or {}
        loss = measured.get("token")
        accuracy = measured.get("accuracy")
        run = self.planner.end(run.id, status, reason, loss, accuracy)
        self.listeners.end(run, test or None)
        self._collect()

    def _collect(self):
        for run in self.planner.new_ready():
            self.ready.add(run)
        for run in self.planner.new_pruned():
            self._forget(run)
            self.listeners.end(run, None)

    def _forget(self, run: PlannedRun):
        self.health.forget(run.id)
        self._suspects.pop(run.id, None)
