"""A run that a worker has open: its training, its folder and its TensorBoard curves."""

from collections.abc import Sequence

import torch

from lmzoo.data.corpus import Corpus
from lmzoo.store.records import RunFolder, is_pending
from lmzoo.sweep.tensorboard import RunWriter
from lmzoo.train.packed.trainer import train_packed_epoch
from lmzoo.train.run import Run

Report = tuple[str, int, float | None, bool]
"""Run identity, finished epochs, validation loss of the last epoch, whether the run has ended."""


def is_run_pending(folder: str, budget: int) -> bool:
    """Return True if the run in this folder has not ended; the sweep may have ended it."""
    run_folder = RunFolder(folder)
    config = run_folder.config
    assert config is not None, f"{folder} has no config"
    return is_pending(run_folder, budget, test=config["stage"] == "confirm")


class WorkerRun:
    """A run that is locked by this process."""

    def __init__(self, folder: str, corpus: Corpus, device: torch.device, patience: float) -> None:
        run_folder = RunFolder(folder)
        config = run_folder.config
        assert config is not None, f"{folder} has no config"
        self._test = config["stage"] == "confirm"
        self.run = Run(run_folder, config, corpus, patience=patience, device=device)
        self._writer = RunWriter(run_folder.path, config, self.run.epoch)

    def is_trained(self, budget: int) -> bool:
        """Return True if the run has reached the budget or has diverged."""
        return self.run.epoch >= budget or self.run.training.diverged

    def report(self, budget: int) -> Report:
        """Return the report of the last epoch; first test and end the run if it is trained."""
        trained = self.is_trained(budget)
        if trained:
            self._end()
        loss = self.run.training.record["valid_token"]
        return self.run.folder.path.name, self.run.epoch, loss, trained

    def write_curves(self) -> None:
        """Add the last epoch to the TensorBoard curves."""
        self._writer.write_epoch(self.run.training.record)

    def close(self) -> None:
        """Release the lock of the run."""
        self._writer.close()
        self.run.folder.store.publish("events.*")
        self.run.close()

    def _end(self) -> None:
        run = self.run
        if run.training.diverged:
            run.end("diverged", f"the loss is not finite at epoch {run.epoch}")
            return
        if self._test:
            losses = run.test()
            self._writer.write_test(losses.token, losses.sentence, run.epoch)
        run.end("finished")


def train_epoch(runs: Sequence[WorkerRun], budget: int, corpus: Corpus, *, packed: bool) -> None:
    """Train one epoch of every run that is not trained; write its checkpoint, record and curves."""
    runs = [run for run in runs if not run.is_trained(budget)]
    if packed and runs:
        train_packed_epoch([run.run.training for run in runs], corpus)
    for run in runs:
        if packed:
            run.run.save_epoch()
        else:
            next(run.run.train(budget))
        run.write_curves()
