"""A run on disk: a training whose every finished epoch is safe.

The order of writing makes a cut at any moment harmless. The checkpoint, which carries
its own epoch's record, is put in place first; then the record is appended. A run
that comes back finds either both, or a checkpoint whose record it appends first: no
record is lost, none is doubled. The checkpoint before is kept: if the last one cannot be
read, its epoch is trained again, to the same record.
"""

import functools
import io
import json
import platform
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from lmzoo import zoo
from lmzoo.audit.causality import audit_verdict
from lmzoo.config import from_dict, to_dict
from lmzoo.contract import MODELS, Task
from lmzoo.data.corpus import Corpus
from lmzoo.device import CPU
from lmzoo.store.records import (
    CHECKPOINT,
    LOSSES,
    PREVIOUS,
    SCHEMA,
    Record,
    RunFolder,
    run_identity,
)
from lmzoo.train.checkpoint import checkpoint, read_checkpoint
from lmzoo.train.evaluate import Losses, evaluate
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit


def run_config(
    model: Any, recipe: Recipe, corpus: Corpus, corpus_config: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """The config of a run, its identity included: what `config.json` holds."""
    return add_model_facts(identity_config(model, recipe, corpus, corpus_config, seed), corpus.task)


def identity_config(
    model: Any, recipe: Recipe, corpus: Corpus, corpus_config: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """The part of a run's config that needs no model to be built."""
    floor = corpus.floor
    config = {
        "schema": SCHEMA,
        "model": MODELS.write(model),
        "recipe": to_dict(recipe),
        "corpus": dict(corpus_config),
        "fingerprint": corpus.fingerprint,
        "vocab": corpus.task.vocab,
        "length": corpus.task.length,
        "seed": seed,
        "unit": corpus.unit,
        "floor": {"token": floor.token, "sentence": floor.sentence} if floor else None,
    }
    return {"run": run_identity(config), **config, "environment": environment()}


def add_model_facts(config: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The config with what is known of its model before it is trained."""
    return {**config, **_facts(json.dumps(config["model"], sort_keys=True), task)}


@functools.cache
def _facts(model: str, task: Task) -> dict[str, Any]:
    """Asked once a process of a model, given as JSON: the audit alone builds and questions it."""
    config = MODELS.read(json.loads(model))
    built = zoo.build(config, task)
    return {
        "parameters": sum(p.numel() for p in built.parameters()),
        "score": built.score.value,
        "leaks": built.leaks or audit_verdict(config),
        "state_size": built.state_size,
    }


def environment() -> dict[str, Any]:
    """What the numbers were made with; it names software, not the machine."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
    }


class Run:
    """The run of one config in its folder; at most one process holds it at a time."""

    def __init__(
        self,
        folder: RunFolder,
        config: Mapping[str, Any],
        corpus: Corpus,
        *,
        patience: float = 0.0,
        device: torch.device = CPU,
    ) -> None:
        self.folder, self.corpus, self._device = folder, corpus, device
        folder.create(config)
        self._lock = folder.store.lock(".lock", patience)
        for partial in folder.path.glob(f".{CHECKPOINT}.*"):
            partial.unlink(missing_ok=True)  # a killed predecessor was writing it
        self._written = {(r["event"], r["epoch"]) for r in folder.records()}
        self.training = self._from_scratch(config)
        self._resume(config)

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.training.epoch

    def train(self, budget: int) -> Iterator[Record]:
        """Train up to `budget` epochs in all; each yielded record is already on disk."""
        for record in fit(self.training, self.corpus, budget):
            self.keep()
            yield record

    def keep(self) -> None:
        """Put the epoch that `training` has just done on disk, whoever trained it."""
        self._save()
        self._append(self.training.record)

    def test(self) -> Losses:
        """Score the test split with the weights of the best validation epoch; once per budget."""
        model, best = self.training.model, self.training.best_weights
        last = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(best)
        losses = evaluate(model, self.corpus.test)
        model.load_state_dict(last)
        self._write_losses(losses)  # before the record, which says that they are there
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
        """Write down how the run ended."""
        self._append({"event": "end", "epoch": self.epoch, "status": status, "reason": reason})

    def told(self, event: str) -> bool:
        """Whether there is such an event of the present epoch."""
        return (event, self.epoch) in self._written

    def tell(self, event: str, facts: Mapping[str, Any]) -> None:
        """Write down more of the present epoch, as an event of its own; once."""
        self._append({"event": event, "epoch": self.epoch, **facts})

    def close(self) -> None:
        """Let another process hold the run."""
        self._lock.close()

    def _from_scratch(self, config: Mapping[str, Any]) -> Training:
        recipe = from_dict(Recipe, config["recipe"])
        model = zoo.build(
            MODELS.read(config["model"]), self.corpus.task, config["seed"], recipe.init
        )
        # Drawn on the CPU, so that a seed means the same weights everywhere.
        return Training(model.to(self._device), recipe, config["seed"])

    def _resume(self, config: Mapping[str, Any]) -> None:
        """Go on from the last checkpoint that can be read, and say so if it is not the last."""
        damage = []
        for name in (CHECKPOINT, PREVIOUS):
            data = self.folder.store.read(name)
            if data is None:
                continue
            try:
                self.training.load(read_checkpoint(data))
                break
            except Exception as error:
                damage.append(type(error).__name__)
                self.training = self._from_scratch(config)  # half a state may have been loaded
                self.folder.store.delete(name)  # or it would be kept as the one before
        if damage:
            then = f"going on from epoch {self.epoch}" if self.epoch else "starting over"
            reason = f"checkpoint is damaged, {then}: {', '.join(damage)}"
            self._append({"event": "note", "epoch": self.epoch, "reason": reason})
        if self.epoch:
            self._append(self.training.record)

    def _append(self, record: Record) -> None:
        """Append a record unless it is already there (a run that starts over repeats itself).

        An end is always written: a run that once failed at its last epoch may yet finish.
        """
        key = record["event"], record["epoch"]
        if key[0] == "end" or key not in self._written:
            self.folder.append(record)
            self._written.add(key)

    def _write_losses(self, losses: Losses) -> None:
        scored = self.corpus.test.lengths.cpu().double() - 1
        file = io.BytesIO()
        np.save(file, torch.stack([losses.nll.cpu(), scored]).float().numpy())
        self.folder.store.write(LOSSES.format(self.epoch), file.getvalue())

    def _save(self) -> None:
        self.folder.store.write(CHECKPOINT, checkpoint(self.training.dump()), keep=PREVIOUS)
