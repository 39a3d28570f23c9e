"""A run on disk: a training that saves every epoch and resumes after an interruption.

An interruption at any moment loses no record and duplicates none. After each epoch, the checkpoint,
which contains the record of its epoch, is written first; then the record is appended to the
records file. A resumed run appends the record of its checkpoint if it is missing. The previous
checkpoint is kept: if the last one cannot be read, its epoch is trained again and yields the same
record.
"""

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from lmzoo import zoo
from lmzoo.config import from_dict
from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus
from lmzoo.device import CPU
from lmzoo.store.records import CHECKPOINT, PREVIOUS, TEST_LOSSES, Record, RunFolder
from lmzoo.train.checkpoint import checkpoint_bytes, read_checkpoint
from lmzoo.train.evaluate import Losses, evaluate
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit


class Run:
    """One run in its folder. A lock ensures that only one process at a time has it open."""

    def __init__(
        self,
        folder: RunFolder,
        config: Mapping[str, Any],
        corpus: Corpus,
        *,
        patience: float = 0.0,
        device: torch.device = CPU,
    ) -> None:
        """Lock the folder, write `config` if it is new, and load the last readable checkpoint.

        Raises:
            UserError: Another process has had the run open for `patience` seconds.
        """
        self.folder, self.corpus, self._device = folder, corpus, device
        folder.create(config)
        self._lock = folder.store.lock(".lock", patience)
        for partial in folder.path.glob(f".{CHECKPOINT}.*"):
            partial.unlink(missing_ok=True)  # from a process that was killed while writing
        self._written = {(r["event"], r["epoch"]) for r in folder.records()}
        self.training = self._new_training(config)
        self._resume(config)

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return self.training.epoch

    def train(self, budget: int) -> Iterator[Record]:
        """Train until `budget` epochs are done in total; yield each record after it is on disk."""
        for record in fit(self.training, self.corpus, budget):
            self.save_epoch()
            yield record

    def save_epoch(self) -> None:
        """Write the checkpoint and the record of the last epoch of `training`."""
        data = checkpoint_bytes(self.training.dump())
        self.folder.store.write(CHECKPOINT, data, backup=PREVIOUS)
        self._append(self.training.record)

    def test(self) -> Losses:
        """Evaluate the weights of the best validation epoch on the test split.

        Writes the loss of every sequence and a `test` event. The model keeps its current weights.
        """
        model, best = self.training.model, self.training.best_weights
        current = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(best)
        losses = evaluate(model, self.corpus.test)
        model.load_state_dict(current)
        self._write_losses(losses)  # before the record, which tells readers that the file exists
        self._append(
            {
                "event": "test",
                "epoch": self.epoch,
                "best_epoch": self.training.best_epoch,
                "token": losses.token,
                "sentence": losses.sentence,
                "tokens": losses.tokens,
                "sequences": len(self.corpus.test),
            }
        )
        return losses

    def end(self, status: str, reason: str = "") -> None:
        """Append the `end` event: how and why the run ended."""
        self._append({"event": "end", "epoch": self.epoch, "status": status, "reason": reason})

    def has_event(self, event: str) -> bool:
        """Whether an event of this name is recorded for the current epoch."""
        return (event, self.epoch) in self._written

    def add_event(self, event: str, facts: Mapping[str, Any]) -> None:
        """Append an event with these facts for the current epoch, unless it is recorded already."""
        self._append({"event": event, "epoch": self.epoch, **facts})

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _new_training(self, config: Mapping[str, Any]) -> Training:
        recipe = from_dict(Recipe, config["recipe"])
        model = zoo.build(
            MODELS.parse(config["model"]), self.corpus.task, config["seed"], recipe.init
        )
        # Weights are drawn on the CPU, so that a seed gives the same weights on every device.
        return Training(model.to(self._device), recipe, config["seed"])

    def _resume(self, config: Mapping[str, Any]) -> None:
        """Load the last readable checkpoint; append a `note` event if a newer one is damaged."""
        errors = []
        for name in (CHECKPOINT, PREVIOUS):
            data = self.folder.store.read(name)
            if data is None:
                continue
            try:
                self.training.load(read_checkpoint(data))
                break
            except Exception as error:
                errors.append(type(error).__name__)
                self.training = self._new_training(config)  # the state may be partly loaded
                self.folder.store.delete(name)  # or the next save would keep it as the previous one
        if errors:
            action = f"going on from epoch {self.epoch}" if self.epoch else "starting over"
            reason = f"checkpoint is damaged, {action}: {', '.join(errors)}"
            self._append({"event": "note", "epoch": self.epoch, "reason": reason})
        if self.epoch:
            self._append(self.training.record)

    def _append(self, record: Record) -> None:
        """Append a record unless one of its event and epoch exists; always append an `end` event.

        A run that starts over repeats its records. A run that failed in its last epoch may finish
        later, with a second `end` event.
        """
        key = record["event"], record["epoch"]
        if key[0] == "end" or key not in self._written:
            self.folder.append(record)
            self._written.add(key)

    def _write_losses(self, losses: Losses) -> None:
        """Write NLL in nats and number of scored tokens of each test sequence, (2, N) float32."""
        scored = self.corpus.test.lengths.cpu().double() - 1
        file = io.BytesIO()
        np.save(file, torch.stack([losses.nll.cpu(), scored]).float().numpy())
        self.folder.store.write(TEST_LOSSES.format(self.epoch), file.getvalue())
