"""The fleet: which worker trains which runs. Knows neither Ray nor the clock.

A worker reports after every epoch and gets its next assignment. Runs leave its pack when they have
ended, are pruned or move to another worker; pending runs of the same shape join it (`sharing.py`).

A run that failed, or whose worker died, is pending again until `health.py` says whose fault it was.
The runs of a pack that died are tried in halves, and return to packs after an epoch.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from lmzoo.store.records import Record
from lmzoo.study.planned_run import Answer, PlannedRun
from lmzoo.study.planner import Planner
from lmzoo.sweep.fleet.health import Health
from lmzoo.sweep.fleet.packing import Packer
from lmzoo.sweep.fleet.sharing import ReadyRuns, Sharing, WorkerState
from lmzoo.sweep.fleet.time_left import Pace
from lmzoo.sweep.messages import Assignment, Ended, Exchange, Job, Report


class Listener(Protocol):
    """Is informed of what the runs do: the console, the trackers."""

    def start(self, run: PlannedRun) -> None: ...
    def epoch(self, run: PlannedRun, record: Record) -> None: ...
    def end(self, run: PlannedRun, test: Record | None) -> None: ...


class Fleet:
    """Assigns the ready runs of a planner to workers."""

    def __init__(self, planner: Planner, packer: Packer, listeners: Sequence[Listener] = ()):
        self.planner, self.packer, self.listeners = planner, packer, listeners
        self.workers: dict[str, WorkerState] = {}
        self.idle: set[str] = set()
        """Workers that wait for an assignment."""
        self.ready = ReadyRuns(packer.pack_key)
        self.sharing = Sharing(self.ready, packer)
        self.pace = Pace()
        """How long the epochs of packs take."""
        self.health = Health()
        self._failed_on: dict[str, Collection[str]] = {}
        """Pack key of runs that are kept apart -> nodes on which they failed."""
        self._started: set[str] = set()
        self._collect()

    @property
    def done(self) -> bool:
        """Whether nothing is pending, in training or leaving."""
        return self.planner.done

    def wanted(self) -> int:
        """Return how many workers could be used at this moment."""
        return self.sharing.runs.total() + len(self.ready) + self.sharing.released

    def exchange(
        self, message: Exchange, *, live: int, now: float, node: str = ""
    ) -> Assignment | None:
        """Take a worker's reports and return its next assignment; None if it has to wait.

        Args:
            message: Its reports are in the order of the epochs.
            live: Number of workers that the cluster has room for.
            now: Time in seconds, from any start.
            node: The machine of the worker.
        """
        name, opened, reports = message.worker, message.opened, message.reports
        worker = self.workers.setdefault(name, WorkerState(message.memory, node, replied_at=now))
        self.idle.discard(name)
        if worker.training:
            worker.epoch_seconds = now - worker.replied_at
            self._add_pace(worker, reports)
        for run_id, record in reports:
            self._report(worker, run_id, record)
        self._collect()  # a report may let other runs start
        for run_id in worker.leaving.keys() - set(opened):
            # The worker closed the run while it had no contact; it is opened again and ends then.
            self._return(worker, run_id)
        if worker.node in self.health.left_out:
            self._give_away(worker, len(worker.training))
        else:
            self._give_away(worker, self._count_to_give_away(worker))
            self._take(worker, live - len(self.parked))
        worker.replied_at = now
        assignment = Assignment(
            members=list(worker.training),
            packed=bool(worker.training) and self._is_packed(worker),
            join=[self._job(run) for run in worker.training.values() if run.id not in opened],
            prune=[run for run in worker.pruned if run in worker.leaving],
            release=[run for run in worker.released if run in worker.leaving],
        )
        if not assignment.members and not assignment.prune and not assignment.release:
            self.idle.add(name)
            return None
        return assignment

    @property
    def parked(self) -> list[str]:
        """Workers on nodes that are left out: they keep Ray from starting others there."""
        nodes = self.health.left_out
        return [name for name, w in self.workers.items() if w.node in nodes] if nodes else []

    @property
    def nodes(self) -> set[str]:
        """The nodes that have workers."""
        return {worker.node for worker in self.workers.values()}

    def ended(self, name: str, end: Ended) -> None:
        """Record that a worker has written the end of a run.

        A run that failed is pending again, unless the failure is its own fault.
        """
        worker = self.workers.get(name)
        if worker is None:
            return
        for report in end.reports:
            self._report(worker, *report)
        run = self._remove(worker, end.run)
        if run and end.status == "failed":
            self._failed([run], worker.node, end.reason)
            self._collect()
        elif run:
            self._finish(run, end.status, end.reason, end.test)

    def released(self, name: str, run_id: str) -> None:
        """Record that a worker has closed a run without ending it."""
        worker = self.workers.get(name)
        if worker and run_id in worker.released:
            self._return(worker, run_id)

    def gone(self, name: str) -> list[PlannedRun]:
        """Forget a worker that has ended; return the runs that it had, for `give_back`."""
        worker = self.workers.pop(name, None)
        self.idle.discard(name)
        if worker is None:
            return []
        self.sharing.released -= len(worker.released)
        runs = [self.sharing.remove(worker, run_id) for run_id in [*worker.training]]
        return [*runs, *worker.leaving.values()]

    def give_back(
        self, runs: Sequence[PlannedRun], *, interrupted: bool, reason: str = "", node: str = ""
    ) -> None:
        """Make the runs of a worker that is gone pending again.

        Args:
            runs: What `gone` returned.
            interrupted: Whether the machine went away, which is not the fault of any run.
            reason: The error that ended the worker; "" if it died without one.
            node: The machine of the worker.
        """
        if interrupted:
            for run in runs:
                self.planner.requeue(run.id)
        elif runs:
            self._failed(runs, node, reason)
        self._collect()

    def _failed(self, runs: Sequence[PlannedRun], node: str, reason: str) -> None:
        """End the run whose fault it was, or make all pending again, in two halves."""
        in_use = self.nodes | {node}
        self.health.failed([run.id for run in runs], node, in_use, reason)
        self._failed_on.pop(self.packer.pack_key(runs[0]), None)
        if len(runs) == 1 and self.health.decides(runs[0].id, in_use):
            runs[0].nodes = sorted(filter(None, self.health.failed_on(runs[0].id)))
            self._finish(runs[0], "failed", reason or "its workers died without progress")
            return
        half = (len(runs) + 1) // 2
        for group in filter(None, (runs[:half], runs[half:])):
            self._failed_on[self.packer.keep_apart(group)] = self.health.failed_on(group[0].id)
        for run in runs:
            self.planner.requeue(run.id)

    def _report(self, worker: WorkerState, run_id: str, record: Record) -> None:
        run = worker.training.get(run_id)
        if run is None:
            return
        if record["epoch"] > run.last_epoch or record["valid_token"] is None:
            self.health.trained(run_id, worker.node)
            self.packer.join(run)
            for listener in self.listeners:
                listener.epoch(run, record)
        answer = self.planner.report(run_id, record)
        trained = record["epoch"] >= run.budget or record["valid_token"] is None
        if trained or answer is not Answer.CONTINUE:
            self._leave(worker, run_id)
        if not trained and answer is Answer.PRUNE:
            worker.pruned.add(run_id)
        elif not trained and answer is Answer.WAIT:
            self._release(worker, run_id)

    def _add_pace(self, worker: WorkerState, reports: Sequence[Report]) -> None:
        """Add the epoch of a pack, without members that reported an earlier epoch again."""
        runs = worker.training
        trained = sum(i in runs and record["epoch"] > runs[i].last_epoch for i, record in reports)
        if trained:
            first = worker.key not in worker.trained
            self.pace.add(worker.key, trained, worker.epoch_seconds, first=first)
            worker.trained.add(worker.key)

    def _count_to_give_away(self, worker: WorkerState) -> int:
        """Return the number of runs of which another worker has more use."""
        parked = len(self.parked)
        idle = max(0, len(self.idle) - parked)
        return self.sharing.count_to_release(worker, self.workers.values(), idle)

    def _give_away(self, worker: WorkerState, count: int) -> None:
        """Release the last `count` runs of a worker."""
        for run_id in list(worker.training)[len(worker.training) - count :]:
            self._leave(worker, run_id)
            self._release(worker, run_id)

    def _release(self, worker: WorkerState, run_id: str) -> None:
        worker.released.add(run_id)
        self.sharing.released += 1

    def _take(self, worker: WorkerState, live: int) -> None:
        """Assign pending runs to a worker, up to its share.

        Runs that failed on its node are left to the others.
        """
        if worker.training and not any(map(self.packer.is_apart, worker.training.values())):
            key = self.packer.pack_key(next(iter(worker.training.values())))
            if key != worker.key:
                self._failed_on.pop(worker.key, None)
                self.sharing.rename(worker, key)
        others = {*self.health.usable(self.nodes)} - {worker.node}
        avoid = {key for key, nodes in self._failed_on.items() if worker.node in nodes and others}
        workers = max(live, len(self.workers) - len(self.parked))
        count = self.sharing.count_to_take(worker, workers, avoid)
        for run in self.ready.take(worker.key, count):
            self.sharing.add(worker, run)
            self.planner.start(run)
            if run.id not in self._started:
                self._started.add(run.id)
                for listener in self.listeners:
                    listener.start(run)

    def _job(self, run: PlannedRun) -> Job:
        # The last epoch is reported again, because the reply to its report may be lost.
        epoch, is_new = max(0, run.last_epoch - 1), run.is_new and not run.last_epoch
        return Job(self.packer.config(run), run.budget, epoch, is_new)

    def _is_packed(self, worker: WorkerState) -> bool:
        return self.packer.is_packed(next(iter(worker.training.values())), worker.memory)

    def _leave(self, worker: WorkerState, run_id: str) -> None:
        worker.leaving[run_id] = self.sharing.remove(worker, run_id)

    def _return(self, worker: WorkerState, run_id: str) -> None:
        self._remove(worker, run_id)
        self.planner.requeue(run_id)
        self._collect()

    def _remove(self, worker: WorkerState, run_id: str) -> PlannedRun | None:
        if run_id in worker.training:  # it had ended before the worker opened it
            self._leave(worker, run_id)
        worker.pruned.discard(run_id)
        if run_id in worker.released:
            worker.released.remove(run_id)
            self.sharing.released -= 1
        return worker.leaving.pop(run_id, None)

    def _finish(
        self, run: PlannedRun, status: str, reason: str = "", test: Record | None = None
    ) -> None:
        self.health.forget(run.id)
        run = self.planner.end(run.id, status, reason, test["token"] if test else None)
        for listener in self.listeners:
            listener.end(run, dict(test) if test else None)
        self._collect()

    def _collect(self) -> None:
        for run in self.planner.new_ready():
            self.ready.add(run)
        for run in self.planner.new_pruned():
            for listener in self.listeners:
                listener.end(run, None)
