"""A run that a worker has open: its training, its records, and its TensorBoard curves."""

from collections.abc import Mapping
from typing import Any

import torch

from lmzoo.data.corpus import Corpus
from lmzoo.store.records import RunFolder, epoch_records, find_end, records_pending
from lmzoo.store.writer import Writer
from lmzoo.sweep.messages import Ended, Job, Report
from lmzoo.sweep.worker.tensorboard import RunWriter
from lmzoo.train.evaluate import Losses
from lmzoo.train.run import Run
from lmzoo.train.run_config import add_model_facts


class TrainingRun:
    """A run of this worker, with its TensorBoard curves."""

    def __init__(
        self,
        folder: RunFolder,
        job: Job,
        corpus: Corpus,
        device: torch.device,
        writer: Writer,
    ) -> None:
        config: Mapping[str, Any] = job.config
        if "parameters" not in config:
            config = add_model_facts(config, corpus.task)
        self.id, self.budget = config["run"], job.budget
        self._test = config["stage"] == "confirm"
        self.run = Run(
            folder, config, corpus, device=device, lock=False, new=job.is_new, writer=writer
        )
        records = epoch_records(self.run.records)
        self._curves = RunWriter(folder.path, config, self.run.epoch, records)
        self.unreported = [(self.id, r) for r in records if r["epoch"] > job.epoch]
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

    def end(self, losses: Losses | None = None) -> None:
        """Write how the run ended, after its test if there is one; `losses` are known ones."""
        if self.run.training.diverged:
            self.run.end("diverged", f"the loss is not finite at epoch {self.run.epoch}")
            return
        if self._test:
            losses = self.run.test(losses)
            self._curves.write_test(losses, self.run.epoch)
        self.run.end("finished")

    def ended(self) -> Ended:
        """Return what a worker confirms about a run that has ended."""
        end = find_end(self.run.records, self.budget) or {}
        test = [r for r in self.run.records if r["event"] == "test" and r["epoch"] == self.budget]
        last = test[-1] if test else None
        return Ended(self.id, end["status"], end.get("reason", ""), last, self.unreported)

    def close(self) -> None:
        """Close the TensorBoard curves and give the last records to the writer."""
        self._curves.close()
        self.run.flush()
        self.run.publish("events.*")
