"""The config of a run: everything that decides its result, and known facts about it."""

import json
import platform
from collections.abc import Mapping
from typing import Any

import torch

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.base.memory import allocating
from lmzoo.base.registry import part_modules
from lmzoo.contract import MODELS, Task
from lmzoo.data.corpus import CORPORA, Corpus
from lmzoo.lab.store.records import NUMERICS, SCHEMA, USER_CODE, run_identity
from lmzoo.lab.store.user_code import UserCode, code_version, user_code
from lmzoo.laws.audit import audit_verdict
from lmzoo.train.recipe import Recipe


def run_config(
    model: Any, recipe: Recipe, corpus: Corpus, corpus_config: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Return the content of `config.json`, the run's identity and the model's facts included.

    `model` and `corpus_config` are configs. The seed decides initial weights, data order and noise.
    """
    config = identity_config(model, recipe, corpus, corpus_config, seed)
    return {**config, **model_facts(config, corpus.task)}


def identity_config(
    model: Any,
    recipe: Recipe,
    corpus: Corpus,
    corpus_config: Mapping[str, Any],
    seed: int,
    known: tuple[Mapping[str, Any], UserCode] | None = None,
) -> dict[str, Any]:
    """Return the part of the run's config that needs no model to be built.

    `known` are the fields of the model and the code of model and corpus, if they are at hand.
    """
    floor = corpus.floor
    fields, code = known or (MODELS.dump(model), parts_code(model, corpus_config))
    config = {
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
        "floor": {"token": floor.token, "sentence": floor.sentence} if floor else None,
        **({} if corpus.ceiling is None else {"ceiling": corpus.ceiling}),
    }
    if code:
        config[USER_CODE] = code.facts
    environment = {
        **code_version(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
    }
    return {"run": run_identity(config), **config, "environment": environment}


def parts_code(model: Any, corpus_config: Mapping[str, Any]) -> UserCode:
    """Return the code of a model and a corpus that is outside the package.

    A `UserError` says that a part is defined in no file.
    """
    name = corpus_config["name"]
    corpus = {CORPORA[name].__module__} if name in CORPORA else set[str]()
    return user_code(part_modules(model) | corpus)


def model_facts(config: Mapping[str, Any], task: Task, *, known: bool = False) -> dict[str, Any]:
    """Return facts about the model of a run that hold before training, cached by its config.

    Building and auditing it takes about 0.1 s. With `known` {} if they are not computed yet.
    """
    key = json.dumps(config["model"], sort_keys=True), task
    if key not in _FACTS and not known:
        _FACTS[key] = _compute_facts(config["model"], task)
    return _FACTS.get(key, {})


_FACTS: dict[tuple[str, Task], dict[str, Any]] = {}


def _compute_facts(model: Any, task: Task) -> dict[str, Any]:
    from lmzoo.train.flops import matrix_flops  # torch's flop counter imports Triton

    config = MODELS.parse(model)
    built = zoo.build(config, task)
    with allocating(f"model {MODELS.name_of(config)}"):
        return {
            "parameters": sum(p.numel() for p in built.parameters()),
            "score": built.score.value,
            "leaks": built.leaks or audit_verdict(config, task),
            "state_size": built.state_size,
            "flops": matrix_flops(built, task),
        }
