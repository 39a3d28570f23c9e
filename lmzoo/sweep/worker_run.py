"""A run that a trial holds: its training, its folder and its curves."""

from collections.abc import Sequence

import torch

from lmzoo.data.corpus import Corpus
from lmzoo.store.records import RunFolder, is_pending
from lmzoo.sweep.tensorboard import RunWriter
from lmzoo.train.packed.trainer import train_packed_epoch
from lmzoo.train.run import Run

Report = tuple[str, int, float | None, bool]
"""Run, epochs done, validation loss of the last, whether it has ended."""


def has_work(where: str, budget: int) -> bool:
    """Whether anything is still to be done in this run's folder; its sweep may have ended it."""
    folder = RunFolder(where)
    config = folder.config
    assert config is not None, f"{where} has no config"
    return is_pending(folder, budget, test=config["stage"] == "confirm")


class WorkerRun:
    """One run, held by this process."""

    def __init__(self, where: str, corpus: Corpus, device: torch.device, patience: float) -> None:
        folder = RunFolder(where)
        config = folder.config
        assert config is not None, f"{where} has no config"
        self._test = config["stage"] == "confirm"
        self.run = Run(folder, config, corpus, patience=patience, device=device)
        self._board = RunWriter(folder.path, config, self.run.epoch)

    def ends(self, budget: int) -> bool:
        """Whether there is nothing more to train."""
        return self.run.epoch >= budget or self.run.training.diverged

    def report(self, budget: int) -> Report:
        """What the sweep is told after an epoch; a run that ends is tested, and its end written."""
        done = self.ends(budget)
        if done:
            self._finish()
        last = self.run.training.record
        return self.run.folder.path.name, self.run.epoch, last["valid_token"], done

    def draw(self) -> None:
        """Put the last epoch among the curves."""
        self._board.epoch(self.run.training.record)

    def close(self) -> None:
        """Let go of the run."""
        self._board.close()
        self.run.folder.store.publish("events.*")
        self.run.close()

    def _finish(self) -> None:
        run = self.run
        if run.training.diverged:
            run.end("diverged", f"the loss was not finite at epoch {run.epoch}")
            return
        if self._test:
            losses = run.test()
            self._board.test(losses.token, losses.sentence, run.epoch)
        run.end("finished")


def train_epoch(runs: Sequence[WorkerRun], budget: int, corpus: Corpus, *, fused: bool) -> None:
    """One more epoch of every run that goes on, on disk and drawn when this returns."""
    going = [one for one in runs if not one.ends(budget)]
    if fused and going:
        train_packed_epoch([one.run.training for one in going], corpus)
    for one in going:
        if fused:
            one.run.keep()
        else:
            next(one.run.train(budget))
        one.draw()
