"""A trained run, opened for looking: its model with the best weights, and its corpus."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lmzoo import zoo
from lmzoo.contract import MODELS, LanguageModel
from lmzoo.data.corpus import Corpus
from lmzoo.data.open import open_corpus
from lmzoo.errors import UserError
from lmzoo.record import RunFolder


@dataclass(frozen=True)
class Trained:
    """What a run left behind."""

    model: LanguageModel
    corpus: Corpus
    config: dict[str, Any]

    @property
    def row(self) -> str:
        """The row of the zoo it was trained as, or its model's name."""
        return self.config.get("row", self.model.name)


def open_run(run: Path, data_dir: Path | None = None) -> Trained:
    """The model of the best validation epoch, in evaluation mode.

    Raises:
        UserError: the folder is not a trained run's, or the corpus is not the run's.
    """
    folder = RunFolder(run)
    config = folder.config
    if config is None or not folder.checkpoint.exists():
        raise UserError(
            f"{run} is not the folder of a trained run; `python -m lmzoo train` makes one"
        )
    corpus = open_corpus(config["corpus"], data_dir)
    if corpus.fingerprint != config["fingerprint"]:
        raise UserError(
            f"corpus {corpus.name} is not the one the run was trained on; give its --data-dir"
        )
    model = zoo.build(MODELS.read(config["model"]), corpus.task)
    state = torch.load(folder.checkpoint, weights_only=True)
    model.load_state_dict(state["best"]["weights"])
    return Trained(model.eval(), corpus, config)
