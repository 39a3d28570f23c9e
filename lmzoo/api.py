"""The Python interface in a few calls: build or load a model, train it, score and sample text.

model = lmzoo.build("DLM46", "captions")
model.fit(epochs=3)                 a line of progress; `stream` yields each epoch as it ends
model.score("a man is standing")
model.sample(3)
model.save("runs/mine")             lmzoo.load_run("runs/mine").fit(2) continues
lmzoo.run_study(study)              a polars frame: the ranking
"""

import contextlib
import copy
import dataclasses
import inspect
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lmzoo import zoo
from lmzoo.base import arguments
from lmzoo.base.arguments import called, number, path, whole
from lmzoo.base.config import from_dict
from lmzoo.base.errors import UserError, near, writing
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.contract import START, LanguageModel, Score
from lmzoo.data.corpus import Corpus, corpus_config, open_corpus
from lmzoo.data.sequences import encode_sentence
from lmzoo.decode import sample
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.kernels.guest import evaluating, guest
from lmzoo.lab.store.archive import restore_run
from lmzoo.lab.store.pack_files import RUN
from lmzoo.lab.store.records import CHECKPOINT, PREVIOUS, Record, RunFolder, epoch_records
from lmzoo.lab.study.study import Study
from lmzoo.train import trained as trained_runs
from lmzoo.train.checkpoint import checkpoint_bytes
from lmzoo.train.closed_form import evaluate_test
from lmzoo.train.evaluate import Losses
from lmzoo.train.optimisers import build_model
from lmzoo.train.recipe import Recipe, stored_recipe
from lmzoo.train.run import run_config
from lmzoo.train.trainer import Training, fit

if TYPE_CHECKING:
    import polars as pl

    from lmzoo.lab.analysis.frames import Ranking

VOCABULARY = "vocabulary.json"
"""File with the tokens inside of an exported program."""


class TextModel:
    """A model with its corpus, which maps text to tokens.

    Attributes:
        module: The model, a `torch.nn.Module`; after `fit`, with the weights of the best epoch.
        corpus: Its corpus.
        records: The record of each epoch, with its losses in nats per token.
    """

    def __init__(
        self,
        module: LanguageModel,
        corpus: Corpus,
        training: Training | None = None,
        *,
        config: Fields | None = None,
        records: Sequence[Record] = (),
    ):
        """`config` is the config of its run, without which it is not saved."""
        self.module = module
        self.corpus = corpus
        self._training = training
        self._config = config
        self.records: list[Record] = list(records)

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.module.parameters())
        state = "not trained"
        if self.records:
            best = min(record["valid_token"] or math.inf for record in self.records)
            state = f"{len(self.records)} epochs, best validation loss {best:.4f} nats per token"
        name = (self._config or {}).get("row", self.module.name)
        return f"{name} on {self.corpus.name}: {size:,} parameters; {state}"

    def stream(self, epochs: int = 10) -> Iterator[Record]:
        """Train for more epochs, and yield the record of each epoch when it has ended.

        When the loop ends, in whatever way, the model has the weights of the best epoch.
        """
        epochs = whole("epochs", epochs)
        training = self._training
        if training is None:
            raise UserError("this model has no training; make it with `build` or `load_run`")
        try:
            for record in fit(training, self.corpus, training.epoch + epochs):
                self.records.append(record)
                yield record
        finally:
            # Two copies: the module is that of the best epoch, training goes on from the last.
            self.module.load_state_dict(training.best_weights or training.model.state_dict())

    def fit(self, epochs: int = 10, *, progress: bool | None = None) -> list[Record]:
        """Train for more epochs and return the record of each, with its losses in nats per token.

        After Ctrl-C, `records` has the epochs that have ended.

        Args:
            epochs: Epochs to train.
            progress: Show a line of progress on stderr; None: in terminals and notebooks.
        """
        epochs = whole("epochs", epochs)
        if progress is None:
            progress = _is_terminal(sys.stderr)
            if "ipykernel" in sys.modules:
                progress = True
        start = time.monotonic()
        done = list[Record]()
        _show(f"epoch 1 of {epochs} ...", progress=progress)
        for record in self.stream(epochs):
            done.append(record)
            left = (time.monotonic() - start) / len(done) * (epochs - len(done))
            loss = record["valid_token"]
            if loss is None:
                loss = math.nan
            line = f"epoch {len(done)} of {epochs}: validation loss {loss:.4f}, {left:.0f} s left "
            _show(f"\r{line}", progress=progress)
        _show("\n", progress=progress)
        return done

    def save(self, folder: Path | str) -> Path:
        """Write the model and its training as the folder of a run, and return the folder.

        `load_run` and the commands, such as `lmzoo sample FOLDER`, read it. A `UserError` says that
        the model is not trained, its corpus was given as an object, or the folder has another run.
        """
        if self._training is None or not self.records:
            raise UserError("the model is not trained; call fit before save")
        if self._config is None:
            raise UserError("a model whose corpus was given as an object is not saved; name it")
        run = RunFolder(Path(path("folder", folder)))
        # A folder has one run, so that names of folders are identities.
        if (run.config or self._config)["run"] != self._config["run"]:
            raise UserError(f"{folder} has another run; choose another folder")
        run.create(self._config)
        # `save` may be called again after further epochs.
        known = {record["epoch"] for record in epoch_records(run.records())}
        state = self._training.dump() | {"records": self.records, RUN: self._config["run"]}
        # The checkpoint first: records without it could not go on.
        run.store.write(CHECKPOINT, checkpoint_bytes(state), backup=PREVIOUS)
        new = [record for record in self.records if record["epoch"] not in known]
        run.append(*new)
        return run.path

    def export(self, file: Path | str) -> Path:
        """Write the model as a program of `torch.export`, which runs without this package.

        The program takes tokens (1, T) and lengths (1,), T the length of the corpus, and returns
        the log-probability of each token, 0 where none is scored. The list of the vocabulary is in
        the file, too, as `vocabulary.json`. The tutorial about your own question shows its use. A
        `UserError` says that the model reads a source, or that torch cannot export it.
        """
        if self.module.conditional:
            raise UserError(f"{self.module.name} reads a source; it cannot be exported")
        length = self.corpus.task.length
        try:
            # Compiled recurrences are no operations of torch.
            with self._inference(), without_kernels():
                example = torch.full((1, length), START), torch.tensor([length])
                program = torch.export.export(self.module, example)
        except Exception as error:  # torch raises many kinds
            reason = str(error).splitlines()[0]
            raise UserError(f"torch cannot export {self.module.name}: {reason}") from error
        words = json.dumps(list(self.corpus.vocabulary.tokens))
        with writing(Path(file)):
            torch.export.save(program, file, extra_files={VOCABULARY: words})
        return Path(file)

    def to_frame(self) -> "pl.DataFrame":
        """Return the records as a polars frame, one row for each epoch."""
        import polars as pl

        return pl.DataFrame(self.records)

    def score(self, text: str) -> float:
        """Return log P(text) in nats; for a model whose score is a bound, the bound.

        Tokens outside the vocabulary count as `<unk>`, if the corpus has it. A `UserError` says
        that the model has no probabilities of texts, or that the text cannot be encoded.
        """
        model = self.module
        text = arguments.text("text", text)
        # A number that is no probability must not look like one.
        if model.leaks or model.score not in (Score.EXACT, Score.LOWER_BOUND):
            reason = model.leaks
            if not reason:
                reason = f"its score is of kind {model.score}"
            raise UserError(f"{model.name} has no probability of a text: {reason}")
        with self._inference():
            tokens, lengths = encode_sentence(self.corpus, text)
            scores = model.log_prob(tokens, lengths)
            return float(scores.double().sum())

    def sample(self, count: int = 1, *, temperature: float = 1.0, seed: int = 0) -> list[str]:
        """Return texts drawn from the model; a temperature of 0 takes the most likely tokens.

        A `UserError` says that the model does not predict a next token without another input.
        """
        model = self.module
        count = whole("count", count, 1)
        temperature = number("temperature", temperature)
        seed = whole("seed", seed)
        if not model.generates or model.conditional:
            raise UserError(f"{model.name} does not generate text from left to right")
        length = self.corpus.task.length
        with self._inference():
            # Not the global one, which belongs to the caller.
            generator = torch.Generator().manual_seed(seed)
            tokens = sample(model, count, length, temperature=temperature, generator=generator)
        return [self.corpus.vocabulary.decode(row) for row in tokens.tolist()]

    def test(self) -> Losses:
        """Return the losses on the test split; `.token` is in nats per token."""
        with self._inference():
            return evaluate_test(self.module, self.corpus)

    @contextlib.contextmanager
    def _inference(self) -> Iterator[None]:
        """Evaluate the module, whatever state the process is in."""
        with guest(self.module), evaluating(self.module), torch.no_grad():
            yield


def _is_terminal(stream: Any) -> bool:
    if not hasattr(stream, "isatty"):
        return False  # a service has None, or a writer
    return stream.isatty()


def _show(text: str, *, progress: bool):
    if not progress or sys.stderr is None:
        return
    sys.stderr.write(text)
    if hasattr(sys.stderr, "flush"):  # not every writer has one
        sys.stderr.flush()


def corpus_spec(corpus: Any) -> FieldsDict:
    """Return the config of a corpus that is given by name, by path, or by name and fields."""
    # A path is unmistakable; a text may be a name.
    if isinstance(corpus, os.PathLike):
        corpus = f"text:{path('corpus', corpus)}"
    if not isinstance(corpus, str | Mapping):
        raise UserError(f"corpus is {corpus!r:.60}; give a name, text:PATH or {{'name': ...}}")
    return corpus_config(corpus)


@called
@guest()
def build(
    row: str,
    corpus: str | Path | Fields | Corpus = "captions",
    *,
    recipe: Recipe | FieldsDict | None = None,
    seed: int = 0,
    data_dir: Path | None = None,
    **fields: Any,
) -> TextModel:
    """Build a row of the zoo for a corpus, with initial weights.

    Args:
        row: Name or alias of a row; `lmzoo list` shows all.
        corpus: A corpus; its name, such as `captions` or `text:PATH`; or name and fields, such as
            `{"name": "text", "path": "my.txt", "unit": "char"}`.
        recipe: Training settings: a `Recipe`, or fields that differ from the default.
        seed: Seed of weights, batches and noise.
        data_dir: Folder of the corpus files; None downloads them.
        **fields: Fields of the model, such as `width=64`; a mapping changes fields of a part.

    Raises:
        UserError: A name is unknown, or a field is invalid.
    """
    seed = whole("seed", seed)
    name = zoo.row(row).name
    # A wrong type is one line, not an error of pydantic.
    if not isinstance(recipe, Mapping | Recipe | None):
        raise UserError(f"recipe is {recipe!r:.60}; give lmzoo.Recipe(...) or {{FIELD: VALUE}}")
    spec = None
    data = corpus
    if not isinstance(data, Corpus):
        spec = corpus_spec(data)
        data = open_corpus(spec, data_dir)
    settings = recipe
    if not isinstance(settings, Recipe):
        settings = from_dict(Recipe, settings or {})
    config = zoo.config(row, **fields)
    # The same seed: both begin with the same weights.
    trained = build_model(config, data.task, seed, settings)
    module = build_model(config, data.task, seed, settings)
    training = Training(trained, settings, seed)
    known = None
    if spec:  # a corpus that was given as an object has no name under which to save a run
        known = run_config(config, settings, data, spec, seed)
        known |= {"row": name, "stage": "single"}
    return TextModel(module, data, training, config=known)


@called
@guest()
def load_run(run: Path | str, data_dir: Path | None = None) -> TextModel:
    """Load the best weights of a trained run, a folder that `save`, `lmzoo train` or a sweep wrote.

    `fit` continues its training. A `UserError` says that the folder has no trained run, or that its
    corpus has changed.
    """
    run = Path(path("run", run))
    # The run of a large sweep may be in an archive.
    folder = restore_run(run.parent, run.name)
    trained = trained_runs.load_run(folder, data_dir)
    recipe = stored_recipe(trained.config["recipe"])
    training = Training(copy.deepcopy(trained.model), recipe, trained.config["seed"])
    training.load(trained.state)
    return TextModel(
        trained.model,
        trained.corpus,
        training,
        config=trained.config,
        records=epoch_records(RunFolder(folder).records()),
    )


@called
def run_study(
    study: Study,
    *,
    out: Path | str = "runs",
    data_dir: Path | None = None,
    workers: int = 0,
    device: str = "auto",
    engine: str = "packs",
    **changes: Any,
) -> "Ranking":
    """Train the pending runs of a study and return its ranking, one row for each point.

    The ranking is a polars frame. Printed, it is the short form of `lmzoo rank`; in a notebook, it
    also shows the forest plot.

    Args:
        study: The study. Workers import parts of your own from their files.
        out: Folder of the study stores. A study that is there already is continued.
        data_dir: Folder of the corpus files; None downloads them.
        workers: Maximum number of workers; 0: as many as fit.
        device: `auto`, `cpu` or `gpu`.
        engine: Who places the workers: `packs`, Ray itself; `tune`, Ray Tune.
        **changes: Fields of the study to change, such as `seeds=10`.

    Raises:
        UserError: The study is invalid, or runs failed.
        KeyboardInterrupt: It was interrupted; the same call continues it.
    """
    # Late: polars and Ray take long to import.
    from lmzoo.lab.analysis.frames import rank
    from lmzoo.lab.sweep.command import train_study

    if not isinstance(study, Study):
        raise UserError(f"study is {study!r:.60}; give a lmzoo.Study")
    workers = whole("workers", workers)
    if "storage" in changes:
        warnings.warn("storage= is out= now; it ends with 0.6", FutureWarning, stacklevel=3)
        out = changes.pop("storage")
    out = path("out", out)
    known = [field.name for field in dataclasses.fields(Study)]
    unknown = changes.keys() - set(known)
    if unknown:
        name = min(unknown)
        options = list(inspect.signature(run_study).parameters)
        raise UserError(f"a study has no field {name!r}{near(name, options + known)}")
    changed = dataclasses.replace(study, **changes)
    return rank(train_study(changed, Path(out), data_dir, workers, device, engine))
