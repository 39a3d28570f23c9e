"""A run of a row of the zoo: the config that decides its result, and its training on disk.

`lmzoo/lab/store/saved_run.py` says what survives what.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.base.environment import environment
from lmzoo.base.memory import allocating
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.base.registry import part_modules
from lmzoo.contract import MODELS, Task
from lmzoo.data.corpus import CORPORA, Corpus
from lmzoo.kernels.device import CPU
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.kernels.guest import guest
from lmzoo.lab.store.opened import inputs, own_log, read_log
from lmzoo.lab.store.pack_files import RUN
from lmzoo.lab.store.records import (
    ENVIRONMENT,
    FILES,
    NUMERICS,
    SCHEMA,
    USER_CODE,
    Record,
    RunFolder,
    run_identity,
)
from lmzoo.lab.store.saved_run import SavedRun
from lmzoo.lab.store.user_code import UserCode, user_code
from lmzoo.laws.audit import audit_verdict
from lmzoo.train.checkpoint import checkpoint_bytes, read_checkpoint
from lmzoo.train.closed_form import evaluate_test
from lmzoo.train.evaluate import Losses, model_report
from lmzoo.train.optimisers import build_model
from lmzoo.train.recipe import Recipe, stored_recipe
from lmzoo.train.trainer import Training, copies, fit


def run_config(
    model: Any, recipe: Recipe, corpus: Corpus, corpus_config: Fields, seed: int
) -> FieldsDict:
    """Return the content of `config.json`, the run's identity and the model's facts included.

    `model` and `corpus_config` are configs. The seed decides initial weights, data order and noise.
    """
    config = identity_config(model, recipe, corpus, corpus_config, seed)
    return config | model_facts(config, corpus.task)


def identity_config(
    model: Any,
    recipe: Recipe,
    corpus: Corpus,
    corpus_config: Fields,
    seed: int,
    known: tuple[Fields, UserCode] | None = None,
) -> FieldsDict:
    """Return the part of the run's config that needs no model to be built.

    `known` are the fields of the model and the code of model and corpus, if they are at hand.
    """
    floor = corpus.floor
    if known is None:
        known = (MODELS.dump(model), parts_code(model, corpus_config))
    fields, code = known
    config: FieldsDict = {
        "schema": SCHEMA,
        "numerics": NUMERICS,
        "model": fields,
        "recipe": to_dict(recipe),
        "corpus": dict(corpus_config),
        "fingerprint": corpus.fingerprint,
        "vocab": corpus.task.vocab,
        "length": corpus.task.length,
        "seed": seed,
        "unit": corpus.unit,
        "floor": None,
    }
    if floor:
        config["floor"] = {"token": floor.token, "sentence": floor.sentence}
    # Left out, not None: configs of runs before there were ceilings keep their identity.
    if corpus.ceiling is not None:
        config["ceiling"] = corpus.ceiling
    if code:
        config[USER_CODE] = code.facts
    with guest():  # with its number of threads
        own = environment()
    return {"run": run_identity(config)} | config | {ENVIRONMENT: own}


def parts_code(model: Any, corpus_config: Fields) -> UserCode:
    """Return the code of a model and a corpus that is outside the package.

    A `UserError` says that a part is defined in no file.
    """
    name = corpus_config["name"]
    modules = part_modules(model)
    if name in CORPORA:
        modules = modules | {CORPORA[name].__module__}
    return user_code(modules, loaded=True)


def model_facts(config: Fields, task: Task, *, known: bool = False) -> FieldsDict:
    """Return facts about the model of a run that hold before training, cached by its config.

    Building and auditing it takes about 0.1 s. With `known` {} if they are not computed yet.
    """
    key = (json.dumps(config["model"], sort_keys=True), task)
    if key not in _FACTS and not known:
        _FACTS[key] = _compute_facts(config["model"], task)
    return _FACTS.get(key, {})


_FACTS: dict[tuple[str, Task], FieldsDict] = {}


def _compute_facts(model: Any, task: Task) -> FieldsDict:
    from lmzoo.train.flops import matrix_flops  # torch's flop counter imports Triton

    config = MODELS.parse(model)
    built = zoo.build(config, task)
    with allocating(f"model {MODELS.name_of(config)}"), without_kernels():
        # Counters see operations of torch only, not those inside a kernel.
        return {
            "parameters": sum(p.numel() for p in built.parameters()),
            "score": built.score.value,
            "leaks": built.leaks or audit_verdict(config, task),
            "state_size": built.state_size,
            "flops": matrix_flops(built, task),
        }


class Run(SavedRun):
    """One run of a row of the zoo in its folder."""

    training: Training

    def __init__(
        self,
        folder: RunFolder,
        config: Fields,
        corpus: Corpus,
        *,
        device: torch.device = CPU,
        **options: Any,
    ):
        """Open the run, which is trained on a corpus and device; `options` are of `SavedRun`."""
        self.corpus = corpus
        self._device = device
        self._own_modules = config.get(USER_CODE, {}).get("modules", {})
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
        # A closed form is fitted once: it has one record, of its last epoch.
        return not self.training.model.closed_form

    def train_epoch(self, budget: int):
        next(fit(self.training, self.corpus, budget))

    def test(self) -> Losses:
        """Score the test split by the best weights, unless their losses are known."""
        model = self.training.model
        current = copies(model.state_dict())
        model.load_state_dict(self.training.best_weights)
        with guest(model, self.training.recipe.precision):
            facts = model_report(model, self.corpus)
            losses = self.known_losses
            if losses is None:
                losses = evaluate_test(model, self.corpus)
        losses = replace(losses, report=facts)
        # The training may go on: it continues from its last weights, not from the best ones.
        model.load_state_dict(current)
        event: Record = {
            "event": "test",
            "epoch": self.epoch,
            "best_epoch": self.training.best_epoch,
            "token": losses.token,
            "sentence": losses.sentence,
        }
        event |= losses.accuracies
        if facts:
            event["report"] = facts
        event["tokens"] = losses.tokens
        event["sequences"] = len(self.corpus.test)
        if self.corpus.test_size:
            event |= self.corpus.test_size._asdict()
        self._append(event)
        return losses

    def environment(self) -> FieldsDict:
        """Return the environment, with what the parts of the user import and name."""
        if not self._own_modules:
            # Without modules of the user's own, the environment of the process is known already.
            return environment()
        files = user_code(self._own_modules).files.values()
        return environment(sys.modules, files)

    def _append_end(self, epoch: int, status: str, reason: str):
        """Append the end of the run, after the files that the parts of the user have read."""
        read = {}
        if self._own_modules:
            # Files that the user's code has read belong to what a run depends on.
            read = inputs(read_log(own_log()))
        if read:
            self._append({"event": FILES, "epoch": epoch, FILES: read})
        super()._append_end(epoch, status, reason)

    def _new_training(self, config: Fields) -> Training:
        recipe = stored_recipe(config["recipe"])
        seed = config["seed"]
        parsed = MODELS.parse(config["model"])
        model = build_model(parsed, self.corpus.task, seed, recipe)
        # Weights are drawn on the CPU, so that a seed gives the same weights on every device.
        return Training(model.to(self._device), recipe, seed)

    def _dump(self, records: list[Record]) -> Callable[[], bytes]:
        make = self.training.snapshot()
        more = {"records": records, RUN: self.identity}

        def write() -> bytes:
            return checkpoint_bytes(make() | more)

        # The state of a pack member is a copy, so it is written while the next epoch is trained.
        if self.training.row:
            return write
        return partial(bytes, write())

    def _load(self, data: bytes) -> list[Record]:
        state = read_checkpoint(data, self.identity)
        self.training.load(state)
        return state["records"]
