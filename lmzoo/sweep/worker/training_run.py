"""A run that a worker has open: its training, its records, and its TensorBoard curves."""

import math

from lmzoo.store.records import Record, RunFolder, epoch_records, find_end, records_pending
from lmzoo.store.writer import Writer
from lmzoo.sweep.messages import Ended, Job, Report
from lmzoo.sweep.worker.tensorboard import RunWriter
from lmzoo.trainables.packs import is_counted
from lmzoo.trainables.trainer import Trainer


class TrainingRun:
    """A run of this worker, with its TensorBoard curves."""

    def __init__(
        self,
        folder: RunFolder,
        job: Job,
        trainer: Trainer,
        writer: Writer,
        *,
        curves: bool = True,
    ) -> None:
        config = trainer.with_facts(job.config)
        self.id, self.budget = config["run"], job.budget
        self._test = config["stage"] == "confirm"
        self.run = trainer.open(folder, config, new=job.is_new, writer=writer)
        records = epoch_records(self.run.records)
        once = is_counted(config)
        self._curves = RunWriter(
            folder.path, config, self.run.epoch, records, once=once, writes=curves
        )
        # A run that starts over, because its checkpoint is gone, trains its recorded epochs again.
        last = math.inf if self.has_ended else self.run.epoch
        self.unreported = [(self.id, r) for r in records if job.epoch < r["epoch"] <= last]
        """Reports of epochs that a worker wrote and did not report before it died."""

    @property
    def has_ended(self) -> bool:
        """Whether the store shows the end of the run for its budget."""
        return not records_pending(self.run.records, self.budget, test=self._test)

    @property
    def is_trained(self) -> bool:
        """Whether the run has reached its budget or has diverged."""
        return self.run.epoch >= self.budget or self.run.training.diverged

    def save_epoch(self) -> Report:
        """Write the last epoch; return its report."""
        self.run.save_epoch()
        self._curves.write_epoch(self.run.training.record)
        return self.id, self.run.training.record

    @property
    def is_tested(self) -> bool:
        """Whether the test split is scored when the run ends."""
        return self._test and not self.run.training.diverged

    def end(self) -> None:
        """Write how the run ended, after its test if there is one."""
        if self.run.training.diverged:
            self.run.end("diverged", f"the loss is not finite at epoch {self.run.epoch}")
            return
        if self._test:
            self.run.test()
            self._curves.write_test(self._tested() or {})
        self.run.end("finished")

    def ended(self) -> Ended:
        """Return what a worker confirms about a run that has ended."""
        end = find_end(self.run.records, self.budget) or {}
        return Ended(self.id, end["status"], end.get("reason", ""), self._tested(), self.unreported)

    def _tested(self) -> Record | None:
        """Return the last test record at the budget; None if there is none."""
        records = reversed(self.run.records)
        tests = (r for r in records if r["event"] == "test" and r["epoch"] == self.budget)
        return next(tests, None)

    def close(self) -> None:
        """End its program, close the TensorBoard curves and give the last records to the writer."""
        self.run.stop()
        self._curves.close()
        self.run.flush()
        self.run.publish("events.*")
