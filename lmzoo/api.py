"""The Python interface in a few calls: build or load a model, train it, score and sample text.

model = lmzoo.build("DLM46", "captions")
model.fit(epochs=3)
model.score("a man rides a horse")
model.sample(3)
lmzoo.run_study(study)              a polars frame: the ranking
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lmzoo import zoo
from lmzoo.cluster.resources import Resources
from lmzoo.config import from_dict
from lmzoo.contract import LanguageModel, Score
from lmzoo.data.corpus import Corpus, corpus_config, open_corpus
from lmzoo.data.text import encode_sentence
from lmzoo.decode import sampling
from lmzoo.errors import UserError
from lmzoo.study.study import Study
from lmzoo.train import trained as trained_runs
from lmzoo.train.closed_form import evaluate_test
from lmzoo.train.evaluate import Losses
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit

if TYPE_CHECKING:
    import polars as pl


class TextModel:
    """A model with its corpus, which maps text to tokens.

    Attributes:
        module: The model, a `torch.nn.Module`; after `fit`, with the weights of the best epoch.
        corpus: Its corpus.
    """

    def __init__(
        self,
        module: LanguageModel,
        corpus: Corpus,
        training: Training | None = None,
        *,
        carry_state: bool = False,
    ) -> None:
        self.module, self.corpus, self._training = module, corpus, training
        self._carry_state = carry_state

    def fit(self, epochs: int = 10) -> list[dict[str, Any]]:
        """Train for more epochs and return the record of each, with its losses in nats per token.

        Raises:
            UserError: The model was loaded from a run.
        """
        if self._training is None:
            raise UserError(
                "a loaded model is not trained further; build one, or use `lmzoo train`"
            )
        training = self._training
        records = list(fit(training, self.corpus, training.epoch + epochs))
        self.module.load_state_dict(training.best_weights or training.model.state_dict())
        return records

    def score(self, text: str) -> float:
        """Return log P(text) in nats; for a model whose score is a bound, the bound.

        Tokens outside the vocabulary count as `<unk>`.

        Raises:
            UserError: The model has no probabilities of texts, or the text cannot be encoded.
        """
        model = self.module
        if model.leaks or model.score not in (Score.EXACT, Score.LOWER_BOUND):
            reason = model.leaks or f"its score is of kind {model.score}"
            raise UserError(f"{model.name} has no probability of a text: {reason}")
        with torch.no_grad():
            return float(model.eval().log_prob(*encode_sentence(self.corpus, text)).double().sum())

    def sample(self, count: int = 1, *, temperature: float = 1.0, seed: int = 0) -> list[str]:
        """Return texts drawn from the model; a temperature of 0 takes the most likely tokens.

        Raises:
            UserError: The model does not predict a next token without another input.
        """
        model = self.module
        if not model.generates or model.conditional:
            raise UserError(f"{model.name} does not generate text from left to right")
        generator = torch.Generator().manual_seed(seed)
        tokens = sampling.sample(
            model,
            count,
            self.corpus.task.length,
            temperature=float(temperature),
            generator=generator,
        )
        return [self.corpus.vocabulary.decode(row) for row in tokens.tolist()]

    def test(self) -> Losses:
        """Return the losses on the test split; `.token` is in nats per token."""
        return evaluate_test(self.module, self.corpus, carry_state=self._carry_state)


def build(
    row: str,
    corpus: str | Corpus = "captions",
    *,
    recipe: Recipe | dict[str, Any] | None = None,
    seed: int = 0,
    data_dir: Path | None = None,
    **fields: Any,
) -> TextModel:
    """Build a row of the zoo for a corpus, with initial weights.

    Args:
        row: Name or alias of a row; `lmzoo list` shows all.
        corpus: A corpus, or its name, such as `captions` or `text:PATH`.
        recipe: Training settings: a `Recipe`, or fields that differ from the default.
        seed: Seed of weights, batches and noise.
        data_dir: Folder of the corpus files; None downloads them.
        **fields: Fields of the model, such as `width=64`; a mapping changes fields of a part.

    Raises:
        UserError: A name is unknown, or a field is invalid.
    """
    data = corpus if isinstance(corpus, Corpus) else open_corpus(corpus_config(corpus), data_dir)
    settings = recipe if isinstance(recipe, Recipe) else from_dict(Recipe, recipe or {})
    config = zoo.config(row, **fields)
    trained = zoo.build(config, data.task, seed, settings.init)
    module = zoo.build(config, data.task, seed, settings.init)
    training = Training(trained, settings, seed)
    return TextModel(module, data, training, carry_state=settings.carry_state)


def load_run(run: Path | str, data_dir: Path | None = None) -> TextModel:
    """Load the best weights of a trained run, a folder that `lmzoo train` or a sweep wrote.

    Raises:
        UserError: The folder has no trained run, or its corpus has changed.
    """
    trained = trained_runs.load_run(Path(run), data_dir)
    carry_state = trained.config["recipe"].get("carry_state", False)
    return TextModel(trained.model, trained.corpus, carry_state=carry_state)


def run_study(
    study: Study,
    *,
    storage: Path | str = "runs",
    data_dir: Path | None = None,
    workers: int = 0,
    device: str = "auto",
    **changes: Any,
) -> "pl.DataFrame":
    """Train the pending runs of a study and return its ranking, one row for each point.

    Args:
        study: The study. Workers import parts of your own from their files.
        storage: Folder of the study stores. A study that is there already is continued.
        data_dir: Folder of the corpus files; None downloads them.
        workers: Maximum number of workers; 0: as many as fit.
        device: `auto`, `cpu` or `gpu`.
        **changes: Fields of the study to change, such as `seeds=10`.

    Raises:
        UserError: The study is invalid, or runs failed.
        KeyboardInterrupt: It was interrupted; the same call continues it.
    """
    from lmzoo.analysis.tables.ranking_table import study_ranking
    from lmzoo.sweep.driver.execution import Sweep

    known = {field.name for field in dataclasses.fields(Study)}
    if unknown := changes.keys() - known:
        raise UserError(f"a study has no field {min(unknown)!r}; known: {', '.join(sorted(known))}")
    resources = Resources(concurrent=workers, device=device)
    sweep = Sweep(dataclasses.replace(study, **changes), resources, prints_ranking=False)
    code = sweep.run(data_dir, Path(storage), "", {}, dry_run=False)
    if code == 130:
        raise KeyboardInterrupt
    if sweep.failed:
        raise UserError(f"runs of study {study.name} failed; the lines above say why")
    return study_ranking(sweep.folder).frame
