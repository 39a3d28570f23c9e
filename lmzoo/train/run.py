"""A run of a row of the zoo on disk: `lmzoo/lab/store/saved_run.py` says what survives what."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus
from lmzoo.kernels.device import CPU, use_precision
from lmzoo.lab.store.records import TEST_LOSSES, Record, RunFolder
from lmzoo.lab.store.saved_run import SavedRun
from lmzoo.train.checkpoint import RUN, checkpoint_bytes, read_checkpoint
from lmzoo.train.closed_form import evaluate_test
from lmzoo.train.evaluate import Losses, model_report
from lmzoo.train.groups import build_model
from lmzoo.train.recipe import stored_recipe
from lmzoo.train.trainer import Training, copies, fit


class Run(SavedRun):
    """One run of a row of the zoo in its folder."""

    training: Training

    def __init__(
        self,
        folder: RunFolder,
        config: Mapping[str, Any],
        corpus: Corpus,
        *,
        device: torch.device = CPU,
        **options: Any,
    ) -> None:
        """Open the run, which is trained on a corpus and device; `options` are of `SavedRun`."""
        self.corpus, self._device = corpus, device
        self.known_losses: Losses | None = None
        """The test losses of the best weights, if another trainer has computed them."""
        super().__init__(folder, config, **options)

    def train(self, budget: int) -> Iterator[Record]:
        """Train until `budget` epochs are done in total; yield each record after it is on disk."""
        for record in fit(self.training, self.corpus, budget):
            self.save_epoch()
            yield record

    @property
    def has_every_epoch(self) -> bool:
        return not self.training.model.closed_form

    def train_epoch(self, budget: int) -> None:
        next(fit(self.training, self.corpus, budget))

    def test(self) -> Losses:
        """Score the test split by the best weights, unless their losses are known."""
        model, recipe = self.training.model, self.training.recipe
        current = copies(model.state_dict())
        model.load_state_dict(self.training.best_weights)
        with use_precision(recipe.precision):
            facts = model_report(model, self.corpus)
            losses = self.known_losses or evaluate_test(model, self.corpus)
        losses = replace(losses, report=facts)
        model.load_state_dict(current)
        # Before the record, which tells readers that the file exists.
        name, data = TEST_LOSSES.format(self.epoch), losses.to_npy(self.corpus.test.counts)
        self._submit(partial(self.folder.store.write, name, data))
        self._append(
            {
                "event": "test",
                "epoch": self.epoch,
                "best_epoch": self.training.best_epoch,
                "token": losses.token,
                "sentence": losses.sentence,
                **losses.accuracies,
                **({"report": facts} if facts else {}),
                "tokens": losses.tokens,
                "sequences": len(self.corpus.test),
                **(self.corpus.test_size._asdict() if self.corpus.test_size else {}),
            }
        )
        return losses

    def _new_training(self, config: Mapping[str, Any]) -> Training:
        recipe = stored_recipe(config["recipe"])
        model = build_model(MODELS.parse(config["model"]), self.corpus.task, config["seed"], recipe)
        # Weights are drawn on the CPU, so that a seed gives the same weights on every device.
        return Training(model.to(self._device), recipe, config["seed"])

    def _dump(self, records: list[Record]) -> Callable[[], bytes]:
        make, more = self.training.snapshot(), {"records": records, RUN: self.identity}

        def write() -> bytes:
            return checkpoint_bytes({**make(), **more})

        # The state of a pack member is a copy, so it is written while the next epoch is trained.
        return write if self.training.row else partial(bytes, write())

    def _load(self, data: bytes) -> list[Record]:
        state = read_checkpoint(data, self.identity)
        self.training.load(state)
        return state["records"]
