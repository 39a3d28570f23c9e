"""Which runs may share a pack, and the facts about their models. Those of programs share none.

The maximum number of members on a GPU follows from its memory:

    members ≤ MEMORY_SHARE · memory / (16 N + activations)

with N parameters in four float32 copies (weights, gradients, two moments of Adam), and the tensors
that autograd saves for one batch (`lmzoo/train/packed/memory.py`).
"""

import contextlib
import json
import threading
from collections.abc import Mapping
from typing import Any

from lmzoo import zoo
from lmzoo.base.config import from_dict
from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus
from lmzoo.lab.store.records import PROGRAM
from lmzoo.train.packed.compatibility import pack_key, packing_pays, reason_not_packable
from lmzoo.train.packed.memory import member_bytes
from lmzoo.train.recipe import Optimiser, Recipe
from lmzoo.train.run_config import known_model_facts, model_facts

Config = Mapping[str, Any]
"""The config of a run."""


def is_counted(config: Config) -> bool:
    """Return whether a run is of a count model: runs with its key load the same estimate."""
    return PROGRAM not in config and MODELS[config["model"]["name"]].closed_form


class Shape:
    """What is known of the runs of one pack key."""

    def __init__(self, config: Config, corpus: Corpus | None) -> None:
        self.pays_on_cpu = self.packable = False
        self._bytes = 0
        if corpus is None or PROGRAM in config:
            return
        self._task = corpus.task
        self._model, self._recipe = _model_and_recipe(config)
        with contextlib.suppress(Exception):  # the run fails on a worker, and says why
            self.pays_on_cpu = packing_pays(self._model, self._recipe, corpus.task)
            # Each member would need the state of its own blocks, and its own means (asgd).
            if not self._recipe.carry_state and self._recipe.optimiser is not Optimiser.ASGD:
                self.packable = not reason_not_packable(zoo.build(self._model, corpus.task))

    def member_bytes(self) -> int:
        """Return the memory of one pack member; computed at the first call."""
        if not self._bytes:
            self._bytes = member_bytes(zoo.build(self._model, self._task), self._recipe.batch)
        return self._bytes


class Shapes:
    """The shapes of runs; each is computed once, also if two threads ask for it."""

    def __init__(self, corpus: Corpus | None) -> None:
        """`corpus` is None if no run trains a row of the zoo."""
        self._corpus, self._lock = corpus, threading.Lock()
        self._known: dict[str, Shape] = {}
        self._keys: dict[str, str] = {}

    def key(self, config: Config) -> str:
        """Return a key that is equal for runs that may share a pack."""
        if PROGRAM in config:
            return f"{config[PROGRAM]} {config['point']['id']}"
        configs = json.dumps([config["model"], config["recipe"]])
        if configs not in self._keys:
            self._keys[configs] = pack_key(*_model_and_recipe(config))
        return self._keys[configs]

    def get(self, config: Config) -> Shape:
        """Return the shape of a run."""
        key = self.key(config)
        with self._lock:
            if key not in self._known:
                self._known[key] = Shape(config, self._corpus)
            return self._known[key]

    def facts(self, config: Config) -> Mapping[str, Any]:
        """Return the facts about the run's model; they are computed at the first call."""
        if self._corpus is None or PROGRAM in config:
            return {}
        return model_facts(config, self._corpus.task)

    def known_facts(self, config: Config) -> Mapping[str, Any]:
        """Return the facts about the run's model if they are computed already; else {}."""
        if self._corpus is None or PROGRAM in config:
            return {}
        return known_model_facts(config, self._corpus.task)


def _model_and_recipe(config: Config) -> tuple[Any, Recipe]:
    return MODELS.parse(config["model"]), from_dict(Recipe, config["recipe"])
