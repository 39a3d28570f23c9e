"""Open a trained run: its model with the best weights, its corpus and its config."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmzoo import zoo
from lmzoo.contract import MODELS, LanguageModel
from lmzoo.data.corpus import Corpus
from lmzoo.data.open import open_corpus
from lmzoo.errors import UserError
from lmzoo.store.records import USER_CODE, RunFolder
from lmzoo.train.checkpoint import read_checkpoint
from lmzoo.user_code import load


@dataclass(frozen=True)
class TrainedRun:
    """The model, corpus and config of a trained run."""

    model: LanguageModel
    corpus: Corpus
    config: dict[str, Any]

    @property
    def row_name(self) -> str:
        """The row of the zoo that was trained, or the name of the model."""
        return self.config.get("row", self.model.name)


def find_run(run_or_name: str, runs: Path) -> Path:
    """Return the folder itself, or the most recently trained run in `runs` of the named row.

    Raises:
        UserError: The text is neither a folder nor a row's name or alias, or the row has no run.
    """
    path = Path(run_or_name)
    if path.is_dir() or len(path.parts) > 1:
        return path
    name = zoo.row(run_or_name).name
    trained = [
        folder
        for folder in (RunFolder(checkpoint.parent) for checkpoint in runs.glob("*/checkpoint.pt"))
        if (folder.config or {}).get("row") == name
    ]
    if not trained:
        raise UserError(
            f"no run of {name} in {runs}; train one with `python -m lmzoo train {name}`, "
            "or give the folder of a run"
        )
    return max(trained, key=lambda folder: folder.checkpoint.stat().st_mtime).path


def open_run(run: Path, data_dir: Path | None = None) -> TrainedRun:
    """Load a run with the weights of its best validation epoch, in evaluation mode.

    Parts from outside the package are imported as they were when the run was trained.

    Raises:
        UserError: The folder has no trained run, its checkpoint is damaged, or the corpus differs
            from the one that the run was trained on.
    """
    folder = RunFolder(run)
    config = folder.config
    if config is None or not folder.checkpoint.exists():
        raise UserError(
            f"{run} is not the folder of a trained run; train one with `python -m lmzoo train`"
        )
    if USER_CODE in config:
        load(config[USER_CODE], folder.path.parent / USER_CODE / config[USER_CODE]["hash"])
    corpus = open_corpus(config["corpus"], data_dir)
    if corpus.fingerprint != config["fingerprint"]:
        raise UserError(
            f"corpus {corpus.name} is not the one that the run was trained on; set --data-dir, or "
            f"use the version of lmzoo that trained it"
        )
    model = zoo.build(MODELS.parse(config["model"]), corpus.task)
    try:
        state = read_checkpoint(folder.checkpoint.read_bytes())
    except Exception as error:
        raise UserError(
            f"{folder.checkpoint} is damaged ({type(error).__name__}); `python -m lmzoo train` "
            "continues from the previous checkpoint, a sweep repeats the run if you delete its "
            "folder"
        ) from error
    model.load_state_dict(state["best"]["weights"])
    return TrainedRun(model.eval(), corpus, config)
