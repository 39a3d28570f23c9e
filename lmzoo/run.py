"""A run on disk: a training whose every finished epoch is safe.

The order of writing makes a cut at any moment harmless. The checkpoint, which carries
its own epoch's record, is renamed into place first; then the record is appended. A run
that comes back finds either both, or a checkpoint whose record it appends first: no
record is lost, none is doubled.
"""

import fcntl
import os
import platform
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

import torch

from lmzoo import zoo
from lmzoo.config import from_dict, to_dict
from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus
from lmzoo.diagnostics.causality import unsound
from lmzoo.errors import UserError
from lmzoo.evaluate import Losses, evaluate
from lmzoo.fit import Training, fit
from lmzoo.recipe import Recipe
from lmzoo.record import SCHEMA, Record, RunFolder, ended, identity


def describe(
    model: Any, recipe: Recipe, corpus: Corpus, corpus_config: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """The config of a run, its identity included: what `config.json` holds."""
    built = zoo.build(model, corpus.task, seed=0)
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
        "parameters": sum(p.numel() for p in built.parameters()),
        "score": built.score.value,
        "leaks": built.leaks or unsound(model),
        "state_size": built.state_size,
        "unit": corpus.unit,
        "floor": {"token": floor.token, "sentence": floor.sentence} if floor else None,
    }
    return {"run": identity(config), **config, "environment": environment()}


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
        self, folder: RunFolder, config: Mapping[str, Any], corpus: Corpus, *, patience: float = 0.0
    ) -> None:
        self.folder, self.corpus = folder, corpus
        folder.create(config)
        self._lock = _hold(folder, patience)
        folder.mend()
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

    def close(self) -> None:
        """Let another process hold the run."""
        self._lock.close()

    def _from_scratch(self, config: Mapping[str, Any]) -> Training:
        recipe = from_dict(Recipe, config["recipe"])
        model = zoo.build(
            MODELS.read(config["model"]), self.corpus.task, config["seed"], recipe.init
        )
        return Training(model, recipe, config["seed"])

    def _resume(self, config: Mapping[str, Any]) -> None:
        path = self.folder.checkpoint
        if not path.exists():
            return
        try:
            state = torch.load(path, weights_only=True)
            self.training.load(state)
        except Exception as error:
            reason = f"checkpoint is damaged, starting over: {type(error).__name__}"
            self.folder.append({"event": "note", "epoch": 0, "reason": reason})
            self.training = self._from_scratch(config)  # half a state may have been loaded
            return
        self._append(self.training.record)

    def _append(self, record: Record) -> None:
        """Append a record unless it is already there (a run that starts over repeats itself).

        An end is always written: a run that once failed at its last epoch may yet finish.
        """
        key = record["event"], record["epoch"]
        if key[0] == "end" or key not in {(r["event"], r["epoch"]) for r in self.folder.records()}:
            self.folder.append(record)

    def _save(self) -> None:
        path = self.folder.checkpoint
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        torch.save(self.training.dump(), partial)
        partial.replace(path)


def owed(folder: RunFolder, budget: int, *, test: bool) -> bool:
    """Whether anything of this run is still to be done for the budget."""
    records = folder.records()
    end = ended(records, budget)
    if end is None:
        return True
    tested = any(r["event"] == "test" and r["epoch"] >= budget for r in records)
    return test and end["status"] == "finished" and not tested


def _hold(folder: RunFolder, patience: float) -> IO[str]:
    """An exclusive lock on the run, released when the process ends, however it ends.

    Waits up to `patience` seconds: a killed sweep's workers need a moment to follow it.
    """
    file = (folder.path / ".lock").open("w")
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                file.close()
                raise UserError(
                    f"{folder.path} is in use by another process; wait for it"
                ) from None
            time.sleep(0.2)
        else:
            return file
