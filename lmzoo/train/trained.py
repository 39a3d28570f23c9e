"""Open a trained run: its model with the best weights, its corpus and its config."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmzoo.base.errors import UserError, user_path
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.contract import MODELS, LanguageModel
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.lab.store.records import CONFIG, NUMERICS, USER_CODE, RunFolder
from lmzoo.lab.store.user_code import load
from lmzoo.train.checkpoint import OtherRunError, read_checkpoint
from lmzoo.train.optimisers import build_model
from lmzoo.train.recipe import stored_recipe


@dataclass(frozen=True)
class TrainedRun:
    """The model, corpus and config of a trained run."""

    model: LanguageModel
    corpus: Corpus
    config: FieldsDict
    state: FieldsDict
    """The last checkpoint, from which its training continues."""

    @property
    def row_name(self) -> str:
        """The row of the zoo that was trained, or the name of the model."""
        return self.config.get("row", self.model.name)


def load_run(run: Path, data_dir: Path | None = None) -> TrainedRun:
    """Load a run with the weights of its best validation epoch, in evaluation mode.

    Parts from outside the package are imported as they were when the run was trained. A `UserError`
    says that the folder has no trained run, its checkpoint is damaged or its corpus another one.
    """
    folder = RunFolder(run)
    config = folder.config
    if config is None or not folder.checkpoint.exists():
        raise UserError(_no_weights(run, config))
    model_config = read_model_config(folder)
    # Before the weights: a corpus that is missing is the more frequent fault.
    spec = found_from(run, config["corpus"])
    corpus = open_corpus(spec, data_dir)
    if corpus.fingerprint != config["fingerprint"]:
        raise UserError(
            f"corpus {corpus.name} is not the one that the run was trained on; set --data-dir, or "
            f"use the version of lmzoo that trained it"
        )
    recipe = stored_recipe(config.get("recipe", {}))
    model = build_model(model_config, corpus.task, 0, recipe)
    # The order of the errors matters: each is a case of the next one.
    try:
        state = read_checkpoint(folder.checkpoint.read_bytes(), config.get("run", ""))
        # The best weights, which were tested, not those of the last epoch.
        model.load_state_dict(state["best"]["weights"])
    except OtherRunError as error:
        raise UserError(
            f"{folder.checkpoint} is not the checkpoint of this run: {error}; copy the right one, "
            "or delete it and train again"
        ) from error
    except RuntimeError as error:
        reason = str(error).strip().rpartition("\n")[2].strip()
        raise UserError(
            f"{folder.checkpoint} does not fit the model of the run ({reason}); it belongs to "
            "another run: copy the right one, or delete it and train again"
        ) from error
    except Exception as error:
        raise UserError(
            f"{folder.checkpoint} is damaged ({type(error).__name__}); `python -m lmzoo train` "
            "continues from the previous checkpoint, a sweep repeats the run if you delete its "
            "folder"
        ) from error
    return TrainedRun(model.eval(), corpus, config, state)


def found_from(run: Path, corpus: Fields) -> FieldsDict:
    """Return the config of a corpus, whose relative path is found from other folders, too.

    The path is relative to the folder in which the run was trained: the working folder, or a
    folder above the run. A `UserError` says that the file is in none of them.
    """
    path = user_path(corpus.get("path") or "/")
    if path.is_absolute() or path.exists():
        return dict(corpus)
    # The run may have been moved together with its text.
    for folder in run.resolve().parents:
        if (folder / path).exists():
            return dict(corpus) | {"path": str(folder / path)}
    raise UserError(
        f"the text {path} is relative to the folder in which the run was trained, and is neither "
        f"in {Path.cwd()} nor in a folder above {run.resolve()}; run the command in that folder"
    )


def read_model_config(folder: RunFolder) -> Any:
    """Return the model config of a run; parts from outside the package are imported.

    A `UserError` says that it is not the folder of a run, or that of one with other numerics.
    """
    config = folder.config
    if config is None:
        raise UserError(f"{folder.path} is not the folder of a run")
    missing = [name for name in ("model", "corpus", "fingerprint") if name not in config]
    if missing:
        raise UserError(
            f"{folder.path}/{CONFIG} has no {missing[0]!r}: it is damaged or of another version; "
            "delete the file and train the run again"
        )
    # The classes of the user's own parts must be known before the config is parsed.
    if USER_CODE in config:
        load(config[USER_CODE], folder.path.parent / USER_CODE)
    if config.get("numerics") != NUMERICS:
        raise UserError(
            f"{folder.path} was trained with numerics {config.get('numerics')}, this version has "
            f"{NUMERICS}; use the version of lmzoo that trained it"
        )
    model = MODELS.parse(config["model"])
    changed = _read_otherwise(config["model"], MODELS.dump(model))
    if changed:
        raise UserError(
            f"{folder.path}: this version reads the settings {changed} as others, for which its "
            "weights are wrong; use the version of lmzoo that trained it"
        )
    return model


def _read_otherwise(stored: Fields, now: Fields) -> str:
    """Return the stored fields that have another value now; lists are cuts of equal functions."""
    changed = []
    # Fields that only one side has were added or removed since, at their default.
    for name in stored.keys() & now.keys():
        before = stored[name]
        value = now[name]
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            part = _read_otherwise(before, value)
            if part:
                changed.append(part)
        elif not isinstance(value, list | Mapping) and before != value:
            changed.append(f"{name}={before}")
    return ", ".join(sorted(changed))


def _no_weights(run: Path, config: Fields | None) -> str:
    if config is not None:
        return (
            f"{run} has the records of a run, but no weights: they were restored from a file, or "
            "the run was stopped early; train it again"
        )
    if (run / CONFIG).exists():
        return f"{run / CONFIG} is damaged; delete the file and train the run again"
    return f"{run} is not the folder of a trained run; train one with `lmzoo train`"
