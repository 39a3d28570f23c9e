"""A trained run, opened for looking: its model with the best weights, and its corpus."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmzoo import zoo
from lmzoo.contract import MODELS, LanguageModel
from lmzoo.data.corpus import Corpus
from lmzoo.data.open import open_corpus
from lmzoo.errors import UserError
from lmzoo.store.records import RunFolder
from lmzoo.train.checkpoint import read_checkpoint


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


def find_run(run_or_name: str, runs: Path) -> Path:
    """The folder itself, or the run of that row of the zoo that was trained last below `runs`.

    Raises:
        UserError: it is neither a folder nor a row's name or seed id, or the row has no run.
    """
    path = Path(run_or_name)
    if path.is_dir() or len(path.parts) > 1:
        return path
    name = zoo.row(run_or_name).name
    trained = [
        folder
        for folder in (RunFolder(found.parent) for found in runs.glob("*/checkpoint.pt"))
        if (folder.config or {}).get("row") == name
    ]
    if not trained:
        raise UserError(
            f"no run of {name} in {runs}; `python -m lmzoo train {name}` makes one, "
            "or give a run's folder"
        )
    return max(trained, key=lambda folder: folder.checkpoint.stat().st_mtime).path


def open_run(run: Path, data_dir: Path | None = None) -> Trained:
    """The model of the best validation epoch, in evaluation mode.

    Raises:
        UserError: the folder is not a trained run's, the corpus is not the run's, or what was
            trained cannot be read.
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
    try:
        state = read_checkpoint(folder.checkpoint.read_bytes())
    except Exception as error:
        raise UserError(
            f"{folder.checkpoint} is damaged ({type(error).__name__}); `python -m lmzoo train` "
            "goes on from the one before, a sweep trains the run anew if its folder is deleted"
        ) from error
    model.load_state_dict(state["best"]["weights"])
    return Trained(model.eval(), corpus, config)
