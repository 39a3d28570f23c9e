"""The runs that a worker has open, and how it trains them.

A `Writer` writes the files of an epoch while the next one is trained: those of runs that train
together once for all (`lab/store/pack_files.py`), the others' each (`lab/store/saved_run.py`).
A death loses the epoch in training and those that were not yet written. The end of a run, and its
release for another worker, are confirmed after its last write.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from lmzoo.base.errors import describe_error
from lmzoo.lab.store import records as files
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.pack_files import PackFiles
from lmzoo.lab.store.records import Record, RunFolder
from lmzoo.lab.store.writer import Writer
from lmzoo.lab.sweep.messages import Assignment, Ended, Job, Released, Report
from lmzoo.lab.sweep.worker.tensorboard import FLUSH_SECONDS, RunWriter


class TrainingRun:
    """A run of this worker, with its TensorBoard curves."""

    def __init__(
        self,
        folder: RunFolder,
        job: Job,
        trainer: Any,
        store: Store,
        writer: Writer | None,
        *,
        curves: bool = True,
    ):
        config = trainer.with_facts(job.config)
        self.id = config["run"]
        self.budget = job.budget
        self.is_tested = config["stage"] == "confirm"
        self.run = trainer.open(folder, config, new=job.is_new, writer=writer)
        records = files.epoch_records(self.run.records)
        self.curves = RunWriter(store, config, self.run.epoch, records, writes=curves)
        # A run that starts over, because its checkpoint is gone, trains its recorded epochs again.
        last = self.run.epoch
        if self.has_ended:
            last = math.inf  # its checkpoint may be older, or gone
        self.unreported = list[Report]()
        """Reports of epochs that a worker wrote and did not report before it died."""
        for record in records:
            if job.epoch < record["epoch"] <= last:
                self.unreported.append((self.id, record))

    @property
    def has_ended(self) -> bool:
        """Whether the store shows the end of the run for its budget."""
        return not files.records_pending(self.run.records, self.budget, test=self.is_tested)

    @property
    def is_trained(self) -> bool:
        """Whether the run has reached its budget or has diverged."""
        if self.run.training.diverged:
            return True
        return self.run.epoch >= self.budget

    def save_epoch(self, *, packed: bool) -> Report:
        """Write the last epoch, or keep it for the files of the pack; return its report."""
        if packed:
            self.run.keep_epoch()
        else:
            self.run.save_epoch()
        self.curves.write_epoch(self.run.training.record)
        return self.id, self.run.training.record

    def end(self):
        """Write how the run ended, after its test if there is one."""
        if self.run.training.diverged:
            self.run.end("diverged", f"the loss is not finite at epoch {self.run.epoch}")
            return
        if self.is_tested:  # the test split chooses no setting
            self.run.test()
            tested = self._tested() or {}
            token = tested.get("token")
            if token is None or not math.isfinite(token):
                self.run.end("diverged", f"the test loss is not finite at epoch {self.run.epoch}")
                return
            self.curves.write_test(tested)
        self.run.end("finished")

    def ended(self) -> Ended:
        """Return what a worker confirms about a run that has ended."""
        end = files.find_end(self.run.records, self.budget)
        assert end is not None
        reason = end.get("reason", "")
        return Ended(self.id, end["status"], reason, self._tested(), self.unreported)

    def _tested(self) -> Record | None:
        """Return the last test record at the budget; None if there is none."""
        for record in reversed(self.run.records):
            if files.event_key(record) == ("test", self.budget):
                return record
        return None

    def close(self):
        """End its program, and give its last records to the writer."""
        self.run.stop()
        self.run.flush()


class Pack:
    """Opens, trains and closes the runs of a worker's assignments."""

    def __init__(
        self,
        store: Store,
        trainer: Any,
        confirm: Callable[[Ended | Released], None],
        worker: str = "",
        *,
        curves: bool = True,
    ):
        """`confirm` is called from any thread.

        `worker` names the files of its packs. `curves` says whether runs write curves for
        TensorBoard.
        """
        self._curves = curves
        self._curves_written_at = time.monotonic()
        self.store = store
        self.writer = Writer()
        self._files = PackFiles(store, worker, self.writer)
        self._trainer = trainer
        self._confirm = confirm
        self._open = dict[str, TrainingRun]()
        self._closing = dict[str, str]()
        """Runs whose last writes are not confirmed, with their keys of the writer."""

    @property
    def opened(self) -> list[str]:
        """Identities of the runs that are open or whose end is not confirmed yet."""
        # A copy: the threads of the writer confirm runs.
        return list(self._open) + list(self._closing.copy())

    def apply(self, assignment: Assignment) -> list[Report]:
        """Close runs and open others; return the reports of epochs that were not reported."""
        if not self.opened:  # no run needs them any more
            self._files.delete()
        for run_id in assignment.prune:
            if run_id in self._open:
                run = self._open[run_id].run
                run.prune(run.epoch)
                self._close(run_id)
        for run_id in assignment.release:
            if run_id in self._open:
                self._close(run_id, Released(run_id))
        reports = []
        for job, folder in self._read(assignment.join):
            try:
                run = TrainingRun(
                    folder, job, self._trainer, self.store, self.writer, curves=self._curves
                )
            except Exception as error:
                self._raise_unless_final(error)
                self._fail(folder, error)
                continue
            self._open[run.id] = run
            reports += run.unreported
            if run.has_ended:  # a worker wrote its end, and died before it could say so
                self._close(run.id)
        return reports

    def train_epoch(self, members: Sequence[str], *, packed: bool) -> list[Report]:
        """Train one epoch of the members that have nothing unreported; return their reports."""
        unreported = []
        active = []
        for run_id in members:
            run = self._open.get(run_id)
            if run is not None and run.unreported:
                unreported.append(run)
            elif run is not None:
                active.append(run)
        training = [run for run in active if not run.is_trained]
        trained = self._train(training, packed=packed)
        reports = [run.save_epoch(packed=packed) for run in trained]
        self._end_trained(members, packed=packed)
        for run in unreported:
            run.unreported = []  # `apply` has returned them
        if packed and self._files.is_due:
            still_open = [run for run in trained if run.id in self._open]
            self._save_pack(still_open)
        self._write_curves()
        for key in list(self._closing.values()):
            self.writer.done(key)  # raises the error of a write that failed
        return reports

    def _end_trained(self, members: Sequence[str], *, packed: bool):
        """End the members that have all their epochs; the tests of a pack are one batch."""
        runs = []
        tested = []
        for run_id in members:
            run = self._open.get(run_id)  # one that has failed is closed already
            if run is None or not run.is_trained:
                continue
            runs.append(run)
            if run.is_tested and not run.run.training.diverged:
                tested.append(run.run)
        if packed:
            self._trainer.test_packed(tested)
        for run in runs:
            run.end()
            # The end has the last epoch, too: its report may be lost with this worker.
            run.unreported = [(run.id, run.run.training.record)]
            self._close(run.id)

    def _save_pack(self, runs: Sequence[TrainingRun]):
        if not runs:
            return
        # The last file may have rows of runs that this one lacks: their folders come first.
        keys = list(self._closing.values())
        for run in self._open.values():
            if run not in runs and run.run.is_kept:
                run.run.flush()
                keys.append(run.run.key)
        members = [run.run for run in runs]
        records = []
        events = []
        for run in runs:
            new = run.run.pack_events()
            records.append(new)
            for record in new:
                events.append((run.id, record))
        rows = self._trainer.packed_state(members, records)
        self._files.save(rows, events, keys)

    def _write_curves(self):
        if time.monotonic() - self._curves_written_at < FLUSH_SECONDS:
            return
        self._curves_written_at = time.monotonic()
        for run in self._open.values():
            write = run.curves.take()
            if write:
                self.writer.submit(files.BOARD, write)

    def suspend(self):
        """Close all runs without ending them: the sweep may give them to another worker."""
        for run_id in list(self._open):
            self._end(self._open.pop(run_id))
        self.writer.wait()
        self._files.delete()  # the folders have all that they had
        self.writer.wait()

    def _train(self, runs: list[TrainingRun], *, packed: bool) -> list[TrainingRun]:
        if packed and len(runs) > 1:  # some may have taken a step: an error ends the worker
            self._trainer.train_packed([run.run for run in runs])
            return runs
        trained = []
        for run in runs:
            try:
                if packed:
                    self._trainer.train_packed([run.run])
                else:
                    run.run.train_epoch(run.budget)
            except Exception as error:
                self._raise_unless_final(error)
                self._end(self._open.pop(run.id))
                self._fail(run.run.folder, error)
            else:
                trained.append(run)
        return trained

    def _read(self, jobs: Sequence[Job]) -> list[tuple[Job, RunFolder]]:
        """Return the folder of each job, and read the folders of continued runs together."""
        folders = []
        ahead = []
        for job in jobs:
            run = job.config["run"]
            folders.append((job, RunFolder(self.store / run)))
            if not job.is_new:
                for name in (files.CONFIG, files.RECORDS, files.CHECKPOINT):
                    ahead.append(f"{run}/{name}")
        if ahead:
            self.store.read_ahead(ahead)
        return folders

    def _close(self, run_id: str, released: Released | None = None):
        """Close a run that has ended or is released, and confirm it after its last write."""
        run = self._open.pop(run_id)
        outcome = released
        if outcome is None:
            outcome = run.ended()
        self._end(run)
        self._confirm_later(run.run.key, outcome)

    def _end(self, run: TrainingRun):
        run.close()
        write = run.curves.take(last=True)
        if write:
            self.writer.submit(files.BOARD, write)

    def _fail(self, folder: RunFolder, error: Exception):
        key = str(folder.store)
        self.writer.submit(key, lambda: files.write_traceback(folder.store, error))
        end = Ended(folder.path.name, "failed", describe_error(error))
        self._confirm_later(key, end)
        self.writer.wait()  # until then the sweep would assign the run again

    def _raise_unless_final(self, error: Exception):
        if not self._trainer.is_final(error):
            raise error

    def _confirm_later(self, key: str, outcome: Ended | Released):
        self._closing[outcome.run] = key

        def confirm():
            self._confirm(outcome)
            del self._closing[outcome.run]

        self.writer.submit(key, confirm)
